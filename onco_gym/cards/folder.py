"""Where card files are. This module imports nothing heavy, because registering environments needs it."""

import os
import re
from pathlib import Path

_PACKAGED = Path(__file__).parents[1] / "cards_data"
_CHECKOUT = Path(__file__).parents[2] / "envs"
_HEAD = re.compile(r'^id = "(\w+)"$')


class CardError(ValueError):
    """A card that cannot be used; the message names the file, the key, the value and what was expected."""


def cards_folder() -> Path:
    """The folder of the shipped cards and of what they share."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


def card_files() -> dict[str, Path]:
    """The shipped cards: name (the file's stem) to path."""
    return {path.stem: path for path in sorted(cards_folder().glob("*.toml"))}


def kept_beside(card: str | os.PathLike[str], folder: str, suffix: str) -> Path:
    """The path of a file that belongs to a card (a shipped card's name, or a path): in ``folder`` beside the card."""
    path = card_files().get(str(card), Path(card))
    return path.parent / folder / f"{path.stem}{suffix}"


def card_id(path: Path) -> str:
    """The environment name on a card's first line, read without parsing the rest."""
    with path.open(encoding="utf-8") as file:
        match = _HEAD.match(file.readline().rstrip())
    if match is None:
        raise CardError(f'{path}: the first line of a card must be its id, as in: id = "NSCLC"')
    return match[1]
