"""Tables of the store."""

import datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.types import TypeDecorator

METADATA = MetaData()


class Moment(TypeDecorator[datetime.datetime]):
    """A time in UTC. SQLite keeps no time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: Dialect) -> datetime.datetime | None:
        """To the database."""
        return None if value is None else value.astimezone(datetime.UTC)

    def process_result_value(self, value: datetime.datetime | None, dialect: Dialect) -> datetime.datetime | None:
        """From the database."""
        if value is None or value.tzinfo is not None:
            return value and value.astimezone(datetime.UTC)
        return value.replace(tzinfo=datetime.UTC)


Number = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up integers only

ACCOUNTS = Table(
    "accounts",
    METADATA,
    Column("name", String(40), primary_key=True),
    Column("token", String(64), unique=True),  # SHA-256; null for an account that cannot log in
    Column("created", Moment, nullable=False),
)

SUBMISSIONS = Table(
    "submissions",
    METADATA,
    Column("id", String(12), primary_key=True),
    Column("board", String(32), nullable=False),
    Column("season", String(32), nullable=False),
    Column("account", String(40), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("manifest", JSON, nullable=False),
    Column("submitted", Moment, nullable=False),
    Column("policies", JSON, nullable=False),  # environment to SHA-256
    Column("agent", Text, nullable=False),
    Column("state", String(8), nullable=False),
    Column("reason", Text, nullable=False),
    Column("published", Boolean, nullable=False),
    Column("content", String(64)),  # SHA-256 of all policies together; null for an agent without files
    Column("attempt", Integer, nullable=False),  # how often a worker took it and did not give it back
    Column("holder", String(16)),  # of the worker that has it; no other may write
    Column("lease", Moment),  # until then the worker that took it must give a sign of life
    Column("ended", Moment),  # when it was judged, refused or given up
    Column("imported", String(64)),  # SHA-256 of the files in a board's folder that it was read from
    Index("submissions_by_board", "board", "season", "submitted"),
    Index("submissions_by_account", "account", "board", "submitted"),
    Index("submissions_by_state", "state", "submitted"),
)

POLICIES = Table(
    "policies",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

RESULTS = Table(
    "results",
    METADATA,
    Column("submission", ForeignKey("submissions.id", ondelete="CASCADE"), primary_key=True),
    Column("judgements", Text, nullable=False),  # JSON
    Column("explorations", Text, nullable=False),  # JSON
)

STEPS = Table(
    "steps",
    METADATA,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("submission", ForeignKey("submissions.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("at", Moment, nullable=False),
    Column("text", Text, nullable=False),
)
