"""Accounts and their tokens. A token is shown once; the store keeps only its hash."""

import datetime
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from sqlalchemy import insert, select, update

from onco_gym.leaderboard.store import LOCAL, Store
from onco_gym.leaderboard.tables import ACCOUNTS

SIZE = 32
"""Random bytes of a token."""
LONGEST = 200
"""Characters of what is looked at as a token."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class AccountError(ValueError):
    """An account that cannot be made or changed. The message says what was expected."""


@dataclass(frozen=True)
class Account:
    """Somebody who submits.

    Attributes:
        name: of the account.
        created: when, in UTC.
        active: whether it has a token that is valid.
    """

    name: str
    created: datetime.datetime
    active: bool


def add_account(store: Store, name: str) -> str:
    """Make an account, or give a new token to one whose token was revoked.

    Returns:
        The token. It cannot be shown again.

    Raises:
        AccountError: if the name is not allowed, or the account has a token.
    """
    if not _NAME.fullmatch(name) or name == LOCAL:
        raise AccountError(f"{name!r} cannot be the name of an account: expected up to 40 of a-z, 0-9 and -, and not {LOCAL!r}")
    token = secrets.token_urlsafe(SIZE)
    with store.writing() as connection:
        found = connection.execute(select(ACCOUNTS.c.token).where(ACCOUNTS.c.name == name)).first()
        if found is None:
            now = datetime.datetime.now(datetime.UTC)
            connection.execute(insert(ACCOUNTS).values(name=name, token=_hash(token), created=now))
        elif found.token is None:
            connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.name == name).values(token=_hash(token)))
        else:
            raise AccountError(f"there is an account {name!r}, and it has a token: revoke that first")
    return token


def revoke_account(store: Store, name: str) -> None:
    """Make the token of an account invalid. Its submissions stay.

    Raises:
        AccountError: if there is no such account.
    """
    with store.writing() as connection:
        if connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.name == name).values(token=None)).rowcount == 0:
            raise AccountError(f"there is no account {name!r}")


def list_accounts(store: Store) -> list[Account]:
    """All accounts, by name."""
    table = ACCOUNTS.c
    with store.reading() as connection:
        rows = connection.execute(select(table.name, table.created, table.token).order_by(table.name)).all()
    return [Account(name, created, token is not None) for name, created, token in rows]


def find_account(store: Store, token: str) -> str | None:
    """The name of the account with this token; None if nobody has it."""
    if not 0 < len(token) <= LONGEST:
        return None
    wanted = _hash(token)
    with store.reading() as connection:
        row = connection.execute(select(ACCOUNTS.c.name, ACCOUNTS.c.token).where(ACCOUNTS.c.token == wanted)).first()
    return row.name if row is not None and hmac.compare_digest(row.token, wanted) else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
