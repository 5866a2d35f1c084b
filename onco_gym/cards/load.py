"""Find and read a card file, and turn any problem with it into one clear error."""

import functools
import hashlib
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onco_gym.cards.checks import MismatchError, check
from onco_gym.cards.expressions import LARGEST
from onco_gym.cards.folder import CardError, card_files, card_id
from onco_gym.cards.schema import Card


def load_card(card: str | os.PathLike[str]) -> Card:
    """Load and validate a card.

    Args:
        card: the name of a shipped card (``"nsclc"``) or the path of a TOML file.

    Raises:
        CardError: if anything is wrong; the message names the file, the key, the value and what was expected.
    """
    shipped = card_files()
    path = Path(card)
    if str(card) in shipped:
        path = shipped[str(card)]
    elif path.suffix != ".toml":
        raise CardError(f"there is no card {str(card)!r}: expected a path ending in .toml or one of {', '.join(shipped)}")
    return _load(path, _stamp(path))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except (OSError, ValueError) as error:  # ValueError if the path has a null byte
        raise CardError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    return stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=32)
def _load(path: Path, stamp: tuple[int, int]) -> Card:
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as error:
        raise CardError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CardError(f"{path}: is not TOML: {error}") from None
    except RecursionError:
        raise CardError(f"{path}: is too deeply nested: expected tables and lists as in the shipped cards") from None
    except ValueError:  # Python refuses integers of more than 4300 digits
        line = max(text.splitlines(), key=lambda line: sum(map(str.isdigit, line)))
        raise CardError(f"{path}: {_short(line)}: expected a number of at most {LARGEST:g}") from None
    try:
        card = Card.model_validate(data)
        check(card)
    except ValidationError as error:
        raise CardError(_explain(path, data, error)) from None
    except MismatchError as error:
        raise CardError(f"{path}: {error.key} = {_short(error.value)}: expected {error.expected}") from None
    card_id(path)
    return card


@functools.lru_cache(maxsize=64)
def digest(card: Card) -> str:
    """A fingerprint of a card's content: the same for equal cards, and only for those."""
    return hashlib.sha256(card.model_dump_json().encode()).hexdigest()[:16]


def _explain(path: Path, data: dict[str, Any], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    value: Any = data
    key = ""
    for part in first["loc"]:
        if isinstance(part, int):
            if isinstance(value, list):  # a single number in place of a list has no parts
                value = value[part] if part < len(value) else None
                name = value.get("name", part) if isinstance(value, dict) else part
                key += f"[{name}]"
        elif isinstance(value, dict) and part in value:
            value = value[part]
            key += f".{part}"
        elif first["type"] == "missing" or first["type"] == "extra_forbidden":
            key += f".{part}"
            value = None
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    expected = {
        "missing": "a value, but the key is missing",
        "extra_forbidden": "no such key; check its spelling",
    }.get(first["type"], message[0].lower() + message[1:])
    shown = "" if first["type"] == "missing" else f" = {_short(first['input'])}"
    return f"{path}: {key.lstrip('.')}{shown}: expected {expected}"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, which TOML allows in hexadecimal, or deep nesting
        text = f"a value of type {type(value).__name__} that is too long to show"
    return text if len(text) <= 120 else text[:117] + "..."
