"""The command line, ``onco-gym``.

Each module of commands adds its own to the parser. Commands import slow packages (JAX, pydantic, Rich) only when they run,
so that ``--help`` stays fast.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from onco_gym.cli import agents, dataset, environments, evaluation, leaderboard, patients, site, submission, trials, verification
from onco_gym.cli.parser import Commands, Parser
from onco_gym.cli.screen import note, warnings_as_notes
from onco_gym.interfaces.registry import NAMESPACE
from onco_gym.version import __version__

MODULES = (environments, patients, evaluation, agents, dataset, verification, trials, leaderboard, submission, site)
"""The modules of commands, in the order of the help."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM raise SystemExit, so that commands clean up before they end."""
    plain = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and threading.current_thread() is threading.main_thread()
    if plain:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        if plain:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@_terminable()
def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit code: 0 if all went well, 1 if the output pipe is closed, 2 for a user error, 130 if interrupted. A
        command that is terminated cleans up like one that is interrupted, and exits with 143.
    """
    try:
        try:
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(errors="replace")  # show "?" for characters that the terminal lacks
            arguments = make_parser().parse_args(argv)
            with warnings_as_notes():
                arguments.run(arguments)
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.split(".")[0] not in (NAMESPACE, "gymnasium"):
            raise  # neither a file error nor a CardError, AgentError, UsageError, ...: a bug
        note(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error))
        return 2
    return 0


def make_parser() -> Parser:
    """The parser of all commands."""
    about = "Simulated patients with cancer, treated by you or by an agent."
    parser = Parser("play NSCLC", prog="onco-gym", description=about)
    parser.add_argument("--version", action="version", version=f"onco-gym {__version__}")
    commands = Commands(parser)
    for module in MODULES:
        module.register(commands)
    return parser
