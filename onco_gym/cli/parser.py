"""The parser of the command line. Commands add themselves to it, and its errors suggest what was meant."""

import argparse
import functools
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from onco_gym.agents.names import describe_agents
from onco_gym.cli.arguments import output_file, whole
from onco_gym.foundation.words import did_you_mean
from onco_gym.foundation.workers import WORKERS
from onco_gym.interfaces.registry import DECIDE

LARGEST_SEED = 2**64 - 1
ENVIRONMENT = "NSCLC, NSCLC-Dose, onco_gym/NSCLC-v0, or the path of a card (.toml)"
WARNING = "Research software, not for treating patients."


class UsageError(ValueError):
    """A command that cannot be carried out as it was given. The message says what was expected."""


def needs_leaderboard(run: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], None]:
    """A command that needs the packages of the extra ``leaderboard``, and says so if one is missing."""

    @functools.wraps(run)
    def checked(arguments: argparse.Namespace) -> None:
        try:
            run(arguments)
        except ModuleNotFoundError as error:
            raise UsageError(f'this command needs {error.name}: pip install "onco_gym[leaderboard]"') from None

    return checked


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the name of a command and its help on one line. Argparse does not count how far the names are indented."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **options)
        self._action_max_length = 13


class Parser(argparse.ArgumentParser):
    """A parser whose help ends with an example, and whose errors :func:`onco_gym.cli.main` prints.

    It knows the arguments that several commands share. Each has one name, one meaning and one place in the help.

    Args:
        example: a command line, without the name of the program.
        agents: whether the help lists what an AGENT can be.
        options: see :class:`argparse.ArgumentParser`.
    """

    def __init__(self, example: str, agents: bool = False, **options: Any) -> None:
        listed = f"what AGENT can be:\n{describe_agents()}\n\n" if agents else ""
        super().__init__(
            epilog=f"{listed}example: onco-gym {example}\n\n{WARNING}", formatter_class=_Formatter, allow_abbrev=False, **options
        )

    def format_help(self) -> str:
        """The help. Its first line shows what a command needs, in the order in which it is usually given."""
        if self._subparsers is None:
            needed = [action for action in self._actions if action.required]
            words = [" ".join([*action.option_strings[-1:], str(action.metavar)]) for action in needed]
            optional = ["[options]"] if len(self._actions) > len(needed) + 1 else []
            self.usage = " ".join(["%(prog)s", *words, *optional])
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise a :class:`UsageError`."""
        raise UsageError(f"{message} (see {self.prog} --help)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as argparse does, but report an unknown option before a missing one, and suggest one that exists."""
        given = list(sys.argv[1:] if args is None else args)
        for text in given:
            if text == "--" or (self._subparsers is not None and not text.startswith("-")):
                break  # what follows is not an option of this parser
            option = text.partition("=")[0]
            if text.startswith("--") and " " not in text and option not in self._option_string_actions:
                self.error(f"there is no option {option}{did_you_mean(option, self._option_string_actions)}")
        return super().parse_known_args(given, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not one of the choices, and suggest one that is."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            expected = f"expected one of {', '.join(known)}"
            raise argparse.ArgumentError(action, f"{value!r} is unknown{did_you_mean(str(value), known)}: {expected}")

    # -------------------------------------------------------------------------------------------- shared arguments

    def add_environment(self) -> None:
        """Add the positional argument ID."""
        self.add_argument("id", metavar="ID", help=ENVIRONMENT)

    def add_agent(self, other: bool = False) -> None:
        """Add the positional argument AGENT, with ``other`` also OTHER, and the environment that it acts in."""
        self.add_argument("agent", metavar="AGENT", help="who decides (see below)")
        if other:
            self.add_argument("other", metavar="OTHER", help="the agent to compare it with")
        self.add_argument("--env", required=True, metavar="ID", help=ENVIRONMENT)

    def add_episodes(self, default: int) -> None:
        """Add the number of patients, for commands that run an episode of each."""
        text = f"number of patients, with one episode each; by default {default}"
        self.add_argument("-n", "--episodes", dest="n", type=whole(1, 1_000_000), default=default, metavar="N", help=text)

    def add_patients(self, default: int, low: int = 1, high: int = 100_000, about: str = "number of patients") -> None:
        """Add the number of patients, for commands that do not run episodes."""
        text = f"{about}; by default {default}"
        self.add_argument("-n", "--patients", dest="n", type=whole(low, high), default=default, metavar="N", help=text)

    def add_seed(self, about: str, default: int | None = 0, high: int = LARGEST_SEED) -> None:
        """Add the seed. ``about`` says what the same seed gives."""
        chosen = "a random one" if default is None else default
        self.add_argument(
            "--seed", type=whole(0, high), default=default, help=f"the same seed gives {about}; by default {chosen}"
        )

    def add_rollout(self, episodes: int) -> None:
        """Add an agent, the number of patients whom it meets, who they are, and when it decides."""
        self.add_agent()
        self.add_treated(episodes)

    def add_treated(self, episodes: int) -> None:
        """Add the number of patients, who they are, and when the agent decides."""
        self.add_episodes(episodes)
        self.add_seed("the same patients and the same chance")
        text = "which patients; nobody is in two splits; by default test"
        self.add_argument("--split", choices=("train", "validation", "test"), default="test", help=text)
        self.add_decide("when the agent decides: at decision points (events) or in every cycle (cycles, the default for doses)")

    def add_decide(self, about: str) -> None:
        """Add when an agent decides."""
        self.add_argument("--decide", choices=DECIDE, help=about)

    def add_out(self, metavar: str, about: str, *endings: str, required: bool = True) -> None:
        """Add the file that is the result of the command."""
        self.add_argument("-o", "--out", type=output_file(*endings), required=required, metavar=metavar, help=about)

    def add_json(self, about: str = "also write all figures to this file") -> None:
        """Add the file for figures."""
        self.add_argument("--json", type=output_file(), metavar="FILE.json", help=about)

    def add_html(self) -> None:
        """Add the file for a page."""
        self.add_argument("--html", type=output_file(), metavar="FILE.html", help="also write a page with pictures to this file")

    def add_plot(self, about: str, *endings: str) -> None:
        """Add the file for a picture."""
        allowed = endings or (".png", ".pdf", ".svg", ".jpg")
        self.add_argument("--plot", type=output_file(*allowed), metavar="FILE.png", help=about)

    def add_store(self) -> None:
        """Add the store of a leaderboard."""
        text = "where submissions are kept: a SQLite file, or postgresql+psycopg://...; by default a file in your folder of data"
        self.add_argument("--store", metavar="URL", help=text)

    def add_workers(self) -> None:
        """Add the options of commands whose work can be spread over processes."""
        text = "where the work is done: local (here, the default), or ray (on all cores or a cluster)"
        self.add_argument("--workers", choices=WORKERS, default="local", help=text)
        text = "with --workers ray: a cluster that is running; by default one is started"
        self.add_argument("--address", metavar="HOST:PORT", help=text)

    def add_quiet(self) -> None:
        """Add the option that silences progress."""
        self.add_argument("-q", "--quiet", action="store_true", help="do not report progress")


def workers_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments ``workers`` and ``address`` of functions that spread their work."""
    if arguments.address and arguments.workers == "local":
        raise UsageError("--address needs --workers ray")
    return {"workers": arguments.workers, "address": arguments.address}


class Commands:
    """The commands of a parser. Each module of commands has a ``register(commands)`` that adds its own."""

    def __init__(self, parser: Parser, within: str = "") -> None:
        self._parsers, self._within = parser.add_subparsers(title="commands", metavar="COMMAND", required=True), within

    def add(self, run: Callable[[argparse.Namespace], None], about: str, example: str, agents: bool = False) -> Parser:
        """Add a command.

        Args:
            run: is called with the arguments.
            about: what it does, in one sentence.
            example: a command line that begins with the name of the command.
            agents: whether the help lists what an AGENT can be.

        Returns:
            The parser of the command, which takes its arguments.
        """
        name = example.removeprefix(self._within).split()[0]
        parser: Parser = self._parsers.add_parser(name, help=about, description=about, example=example, agents=agents)
        parser.set_defaults(run=run)
        return parser

    def add_group(self, name: str, about: str, example: str) -> "Commands":
        """Add a command that has commands of its own. Their examples begin with its name, too."""
        parser: Parser = self._parsers.add_parser(name, help=about, description=about, example=example)
        return Commands(parser, within=f"{name} ")

    @property
    def names(self) -> list[str]:
        """The names of the commands, in order."""
        return list(self._parsers.choices)
