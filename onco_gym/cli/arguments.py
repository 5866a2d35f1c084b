"""Arguments that several commands share. Each option has one name, one meaning and one place in the help of every command."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onco_gym.cli.parser import Parser, UsageError
from onco_gym.foundation.files import replaced
from onco_gym.foundation.workers import WORKERS
from onco_gym.interfaces.registry import DECIDE

LARGEST_SEED = 2**64 - 1
ENVIRONMENT = "NSCLC, NSCLC-Dose, onco_gym/NSCLC-v0, or the path of a card (.toml)"

# ------------------------------------------------------------------------------------------------ types


def whole(low: int, high: int) -> Callable[[str], int]:
    """The type of whole numbers from ``low`` to ``high``."""

    def read(text: str) -> int:
        if text.isdecimal() and len(text) < 25 and low <= int(text) <= high:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")

    return read


def number(low: float, high: float) -> Callable[[str], float]:
    """The type of numbers from ``low`` to ``high``."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if low <= value <= high:
            return value
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")

    return read


def weeks(text: str) -> tuple[float, ...]:
    """Weeks, separated by commas."""
    return tuple(map(number(1, 520), text.split(",")))


def output_file(*endings: str) -> Callable[[str], Path]:
    """The type of files that can be written. It fails before any work is done.

    Args:
        endings: suffixes that the file may have; by default any.
    """

    def read(text: str) -> Path:
        path = Path(text)
        if not _writable(path):
            raise argparse.ArgumentTypeError(f"{text!r} is not a file in a folder that exists and can be written to")
        if endings and path.suffix not in endings:
            raise argparse.ArgumentTypeError(f"{text!r} does not end in {' or '.join(endings)}")
        return path

    return read


def _writable(path: Path) -> bool:
    file = replaced(path)
    if file is None:  # a pipe or a device
        return os.access(path, os.W_OK)
    return not file.is_dir() and file.parent.is_dir() and os.access(file.parent, os.W_OK | os.X_OK)


# ------------------------------------------------------------------------------------------------ subjects


def add_environment(parser: Parser) -> None:
    """Add the positional argument ID."""
    parser.add_argument("id", metavar="ID", help=ENVIRONMENT)


def add_agent(parser: Parser) -> None:
    """Add the positional argument AGENT and the environment that it acts in."""
    parser.add_argument("agent", metavar="AGENT", help="who decides (see below)")
    parser.add_argument("--env", required=True, metavar="ID", help=ENVIRONMENT)


# ------------------------------------------------------------------------------------------------ options


def add_episodes(parser: Parser, default: int) -> None:
    """Add the number of patients, for commands that run an episode of each."""
    text = f"number of patients, with one episode each; by default {default}"
    parser.add_argument("-n", "--episodes", dest="n", type=whole(1, 1_000_000), default=default, metavar="N", help=text)


def add_patients(parser: Parser, default: int, low: int = 1, high: int = 100_000, about: str = "number of patients") -> None:
    """Add the number of patients, for commands that do not run episodes."""
    text = f"{about}; by default {default}"
    parser.add_argument("-n", "--patients", dest="n", type=whole(low, high), default=default, metavar="N", help=text)


def add_seed(parser: Parser, about: str, default: int | None = 0, high: int = LARGEST_SEED) -> None:
    """Add the seed. ``about`` says what the same seed gives."""
    chosen = "a random one" if default is None else default
    parser.add_argument("--seed", type=whole(0, high), default=default, help=f"the same seed gives {about}; by default {chosen}")


def add_split(parser: Parser, default: str = "test") -> None:
    """Add the patients whom an agent meets, and when it decides."""
    text = f"which patients; nobody is in two splits; by default {default}"
    parser.add_argument("--split", choices=("train", "validation", "test"), default=default, help=text)
    add_decide(parser, "when the agent decides: in every cycle (cycles, the default) or at decision points (events)")


def add_decide(parser: Parser, about: str) -> None:
    """Add when an agent decides."""
    parser.add_argument("--decide", choices=DECIDE, default=DECIDE[0], help=about)


def add_out(parser: Parser, metavar: str, about: str, *endings: str, required: bool = True) -> None:
    """Add the file that is the result of the command."""
    parser.add_argument("-o", "--out", type=output_file(*endings), required=required, metavar=metavar, help=about)


def add_json(parser: Parser, about: str = "also write all figures to this file") -> None:
    """Add the file for figures."""
    parser.add_argument("--json", type=output_file(), metavar="FILE.json", help=about)


def add_html(parser: Parser) -> None:
    """Add the file for a page."""
    parser.add_argument("--html", type=output_file(), metavar="FILE.html", help="also write a page with pictures to this file")


def add_plot(parser: Parser, about: str, *endings: str) -> None:
    """Add the file for a picture."""
    allowed = endings or (".png", ".pdf", ".svg", ".jpg")
    parser.add_argument("--plot", type=output_file(*allowed), metavar="FILE.png", help=about)


def add_workers(parser: Parser) -> None:
    """Add the options of commands whose work can be spread over processes."""
    text = "where the work is done: local (here, the default), or ray (on all cores or a cluster)"
    parser.add_argument("--workers", choices=WORKERS, default="local", help=text)
    text = "with --workers ray: a cluster that is running; by default one is started"
    parser.add_argument("--address", metavar="HOST:PORT", help=text)


def workers_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments ``workers`` and ``address`` of functions that spread their work."""
    if arguments.address and arguments.workers == "local":
        raise UsageError("--address needs --workers ray")
    return {"workers": arguments.workers, "address": arguments.address}


def add_quiet(parser: Parser) -> None:
    """Add the option that silences progress."""
    parser.add_argument("-q", "--quiet", action="store_true", help="do not report progress")
