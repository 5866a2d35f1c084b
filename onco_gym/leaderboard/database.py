"""The database of a leaderboard: SQLite in a file, or PostgreSQL by URL."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

VERSION = "0001"
"""The newest migration."""
PATIENCE = 60
"""Seconds to wait for others who write to a SQLite file."""
_LOCK = 0x6F6E636F  # PostgreSQL's advisory locks have numbers; this one is "onco"
_SECRET = ("password", "sslpassword")  # options of PostgreSQL that a URL may hold
_MIGRATIONS = Path(__file__).parent / "migrations"


class DatabaseError(ValueError):
    """A database that cannot be used. The message says why."""


def default_url() -> str:
    """The database of this user: a file in the user's folder of data."""
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "onco_gym"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return f"sqlite:///{folder / 'leaderboard.sqlite'}"


def shown(url: str) -> str:
    """The URL of a database without its password, for people to read.

    Raises:
        DatabaseError: if it is not a URL.
    """
    return _parsed(url).difference_update_query(_SECRET).render_as_string(hide_password=True)


def _parsed(url: str) -> URL:
    try:
        return make_url(url if "://" in url else f"sqlite:///{url}")
    except (ArgumentError, ValueError):  # what it says may hold the password
        raise DatabaseError("the store cannot be opened: expected a file or a URL, KIND://USER@HOST/NAME") from None


class Database:
    """A database with the tables of this version. They are made or changed when it is opened.

    Args:
        url: ``sqlite:///FILE``, ``postgresql+psycopg://USER@HOST/NAME``, or the path of a SQLite file.

    Raises:
        DatabaseError: if it cannot be opened, or was written by a newer version.
    """

    def __init__(self, url: str) -> None:
        parsed, self.name = _parsed(url), shown(url)
        try:
            if parsed.get_backend_name() not in ("sqlite", "postgresql"):
                raise DatabaseError(f"the store {self.name} is not of a known kind: expected sqlite:/// or postgresql+psycopg://")
            self._engine = create_engine(parsed, pool_pre_ping=True)
        except ImportError as error:
            raise DatabaseError(f'this store needs {error.name}: pip install "onco_gym[postgres]"') from None
        except (ArgumentError, NoSuchModuleError) as error:
            raise DatabaseError(f"the store cannot be opened, expected a file or a URL: {_line(error)}") from None
        if parsed.get_backend_name() == "sqlite":
            _prepare_sqlite(self._engine)
        try:
            self._migrate()
        except SQLAlchemyError as error:
            raise DatabaseError(f"the store {self.name} cannot be opened: {_line(error)}") from None

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads."""
        with self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes. SQLite has one at a time."""
        with self._engine.connect().execution_options(writes=True) as connection, connection.begin():
            yield connection

    def _migrate(self) -> None:
        with self.reading() as connection:
            if _version(connection) == VERSION:
                return
        with self.writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            found = _version(connection)
            if found == VERSION:
                return
            if found is not None and found > VERSION:
                raise DatabaseError(f"the store {self.name} was written by a newer version of onco_gym: expected {VERSION}")
            _upgrade(connection)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "head")


def _prepare_sqlite(engine: Engine) -> None:
    """Transactions that write begin by locking the file, so that none fails half-way because another has written."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin below, not in the driver
        for setting in (f"busy_timeout = {1000 * PATIENCE}", "journal_mode = WAL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _line(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return " ".join(str(cause).split())[:300]
