"""Find and read a card file, and turn any problem with it into one clear error."""

import functools
import hashlib
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onco_gym.cards.checks import check
from onco_gym.cards.expressions import LARGEST
from onco_gym.cards.folder import CardError, card_files, card_id
from onco_gym.cards.schema import Card
from onco_gym.foundation.words import shown


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
    try:
        stat = path.stat()
    except (OSError, ValueError) as error:  # ValueError if the path has a null byte
        raise CardError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    return _load(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=32)
def _load(path: Path, changed: int, size: int) -> Card:
    """The card at ``path``, read again if the file has changed."""
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
        raise CardError(f"{path}: {shown(line)}: expected a number of at most {LARGEST:g}") from None
    try:
        card = Card.model_validate(data)
        check(card)
    except (ValidationError, CardError) as error:
        why = _explain(data, error) if isinstance(error, ValidationError) else error
        raise CardError(f"{path}: {why}") from None
    card_id(path)
    return card


@functools.lru_cache(maxsize=64)
def digest(card: Card) -> str:
    """A fingerprint of a card's content: the same for equal cards, and only for those."""
    return hashlib.sha256(card.model_dump_json().encode()).hexdigest()[:16]


def _explain(data: dict[str, Any], error: ValidationError) -> str:
    """The first error: the key, its value and what was expected."""
    first = error.errors(include_url=False)[0]
    value: Any = data
    key = ""
    for part in first["loc"]:
        if isinstance(part, int):
            if isinstance(value, list):  # a single number in place of a list has no parts
                value = value[part] if part < len(value) else None
                key += f"[{value.get('name', part) if isinstance(value, dict) else part}]"
        elif isinstance(value, dict) and part in value:
            value = value[part]
            key += f".{part}"
        elif first["type"] in ("missing", "extra_forbidden"):
            key += f".{part}"
            value = None
    if first["type"] == "missing":
        return f"{key.lstrip('.')}: expected a value, but the key is missing"
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    expected = "no such key; check its spelling" if first["type"] == "extra_forbidden" else message[0].lower() + message[1:]
    return f"{key.lstrip('.')} = {shown(first['input'])}: expected {expected}"
