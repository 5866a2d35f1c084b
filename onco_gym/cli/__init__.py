"""The command line, ``onco-gym``.

Each module of commands adds its own to the parser. Commands import what is slow to import (JAX, pydantic, Rich) when they run,
so that ``--help`` stays fast.
"""

import os
import sys
from collections.abc import Sequence

from onco_gym.cli import agents, dataset, environments, evaluation, patients, trials, verification
from onco_gym.cli.parser import Commands, Parser
from onco_gym.cli.screen import note, warnings_as_notes
from onco_gym.interfaces.registry import NAMESPACE
from onco_gym.version import __version__

MODULES = (environments, patients, evaluation, agents, dataset, verification, trials)
"""The modules of commands, in the order of the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit code: 0 if all went well, 1 if nobody reads the output, 2 for an error of the user, 130 if interrupted.
    """
    try:
        try:
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a sign shows "?" instead
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
            raise  # not of the file system, and not a CardError, AgentError, UsageError, ...: a fault of ours
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
