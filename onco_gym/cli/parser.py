"""The parser of the command line. Commands add themselves to it, and its errors suggest what was meant."""

import argparse
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from onco_gym.agents.names import describe_agents
from onco_gym.foundation.words import did_you_mean

WARNING = "Research software, not for treating patients."


class UsageError(ValueError):
    """A command that cannot be carried out as it was given. The message says what was expected."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the name of a command and its help on one line. Argparse does not count how far the names are indented."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **options)
        self._action_max_length = 13


class Parser(argparse.ArgumentParser):
    """A parser whose help ends with an example, and whose errors :func:`onco_gym.cli.main` prints.

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


class Commands:
    """The commands of a parser. Each module of commands has a ``register(commands)`` that adds its own."""

    def __init__(self, parser: Parser) -> None:
        self._parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

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
        name = example.split()[0]
        parser: Parser = self._parsers.add_parser(name, help=about, description=about, example=example, agents=agents)
        parser.set_defaults(run=run)
        return parser

    @property
    def names(self) -> list[str]:
        """The names of the commands, in order."""
        return list(self._parsers.choices)
