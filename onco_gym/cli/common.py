"""What commands share: how arguments are read, and how tables are printed."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import gymnasium as gym
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from onco_gym.foundation.files import replaced
from onco_gym.interfaces.registry import NAMESPACE, registered_ids

COLUMNS = (SpinnerColumn(), *Progress.get_default_columns()[:-1], TimeElapsedColumn())
"""Of a progress bar whose stages are named."""


class UsageError(ValueError):
    """A command that cannot be carried out as it was given."""


def whole(low: int, high: int, text: str) -> int:
    """A whole number between ``low`` and ``high``."""
    if text.isdecimal() and len(text) < 25 and low <= int(text) <= high:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {low}..{high}")


def target(text: str) -> Path:
    """A file that can be written; found out before the work, not after it."""
    path = Path(text)
    file = replaced(path)
    if file is None:
        fine = os.access(path, os.W_OK)
    else:
        fine = not file.is_dir() and file.parent.is_dir() and os.access(file.parent, os.W_OK | os.X_OK)
    if not fine:
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in a folder that exists and can be written to")
    return path


def resolve(text: str) -> tuple[str, str]:
    """(environment id, card name or path) of what the user calls an environment or a card."""
    known, ids = {}, registered_ids()
    for key in ids:
        card, short = str(gym.spec(key).kwargs["card"]), key.removeprefix(f"{NAMESPACE}/")
        plain = short.removesuffix("-v0")
        names = (key, short, plain, card) if plain.lower() == card else (key, short, plain)
        known.update({name.lower(): (key, card) for name in names})
    if text.endswith(".toml"):
        return f"{NAMESPACE}/Card-v0", text
    if text.lower() not in known:
        raise UsageError(f"there is no environment or card {text!r}: expected a path (.toml) or one of {', '.join(ids)}")
    return known[text.lower()]


def console(stderr: bool = False) -> Console:
    """Standard output, or standard error; 140 characters wide where nobody says otherwise."""
    stream = sys.stderr if stderr else sys.stdout
    fixed = "COLUMNS" in os.environ or (stream is not None and stream.isatty())
    return Console(stderr=stderr, highlight=False, width=None if fixed else 140)


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str] = ()) -> Table:
    """A table of plain text; ``numbers`` names the columns that stand to the right."""
    table = Table(title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.show_header = any(columns)
    for column in columns:
        table.add_column(
            column, justify="right" if column in numbers else "left", overflow="fold", no_wrap=column in ("id", "trial")
        )
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    return table


def number(low: float, high: float, text: str) -> float:
    """A number between ``low`` and ``high``."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if low <= value <= high:
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number {low:g}..{high:g}")


def weeks(text: str) -> tuple[float, ...]:
    """Weeks separated by commas."""
    return tuple(number(1, 520, part) for part in text.split(","))


def picture(text: str) -> Path:
    """A file for a picture, of a kind that can be drawn."""
    if Path(text).suffix not in ("", ".png", ".pdf", ".svg", ".jpg"):
        raise argparse.ArgumentTypeError(f"{text!r}: a picture ends in .png, .pdf, .svg or .jpg")
    return target(text)
