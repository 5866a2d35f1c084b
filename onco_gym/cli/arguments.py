"""Types of arguments. What does not fit is refused before any work is done."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from onco_gym.foundation.files import replaced


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
