"""Seasons: secret patients with secret chance, committed to before the first submission and revealed after the last.

Everything that is secret in a season comes from 32 random bytes. Their hash is published first, so that the secret cannot be
chosen to suit an entry. With the secret, anyone can make the season's environments and run every entry again.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onco_gym.cards import Card, load_card
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.interfaces.registry import find_environment
from onco_gym.leaderboard.boards import Board, BoardError, Season
from onco_gym.patients import Cohort, default_generator

SIZE = 32
"""Bytes of a secret."""
POOL = 8192
"""Patients of a season, from whom the test patients are drawn."""
_DOMAIN = b"onco_gym leaderboard 1\0"


def new_secret() -> bytes:
    """A new secret."""
    return secrets.token_bytes(SIZE)


def commitment(board: str, season: str, secret: bytes) -> str:
    """The hash of a season's secret, in hexadecimal digits. It is bound to the names of board and season."""
    return hashlib.sha256(_DOMAIN + f"{board}\0{season}\0".encode() + secret).hexdigest()


def checked_secret(board: Board, secret: bytes) -> bytes:
    """The secret, if it is that of the board's season.

    Raises:
        BoardError: if it is another one.
    """
    if len(secret) != SIZE or not hmac.compare_digest(commitment(board.name, board.season.name, secret), board.season.commitment):
        raise BoardError(f"this is not the secret of season {board.season.name!r} of {board.name}: its hash is another one")
    return secret


def published_secret(season: Season) -> bytes | None:
    """The secret of a season that has ended, else None."""
    return None if season.secret is None else bytes.fromhex(season.secret)


def derived_secret(secret: bytes, purpose: str) -> bytes:
    """32 bytes for one purpose. They say nothing about the secret or about those for another purpose."""
    return hmac.new(secret, _DOMAIN + purpose.encode(), hashlib.sha256).digest()


def season_cohort(card: Card, secret: bytes, where: str | None = None, do: Mapping[str, Any] | None = None) -> Cohort:
    """The patients of a season, or those of another population; see :meth:`onco_gym.patients.CausalGenerator.sample`."""
    seed = int.from_bytes(derived_secret(secret, f"patients\0{card.id}\0{where or ''}\0{json.dumps(do or {}, sort_keys=True)}"))
    return default_generator(card).sample(POOL, seed, where, do)


def season_engine(environment: str, secret: bytes) -> Engine:
    """An environment of a season: patients and chance come from the secret."""
    cohort = season_cohort(load_card(find_environment(environment).card), secret)
    return make_engine(environment).among(cohort, derived_secret(secret, f"chance\0{environment}"))


def keep_secret(folder: str | os.PathLike[str], board: str, season: str, secret: bytes) -> Path:
    """Write a secret to a new file that only its owner can read.

    Raises:
        FileExistsError: if there is a secret of this season already.
    """
    path = _secret_file(folder, board, season)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret.hex() + "\n")
    return path


def find_secret(board: Board, folder: str | os.PathLike[str] | None) -> bytes | None:
    """The secret of a board's season: the published one, or the one kept in ``folder``; None if neither exists.

    Raises:
        BoardError: if what is found is not the secret of this season.
    """
    found = published_secret(board.season)
    if found is None and folder is not None and (path := _secret_file(folder, board.name, board.season.name)).is_file():
        try:
            found = bytes.fromhex(path.read_text().strip())
        except ValueError:
            raise BoardError(f"{path} does not hold {2 * SIZE} hexadecimal digits") from None
    return None if found is None else checked_secret(board, found)


def _secret_file(folder: str | os.PathLike[str], board: str, season: str) -> Path:
    return Path(folder) / f"{board}.{season}.secret"
