"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the tables. A migration keeps its own list, because it must do the same when the tables have changed since."""
    op.create_table(
        "accounts",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("token", sa.String(64), unique=True),
        sa.Column("created", MOMENT, nullable=False),
    )
    op.create_table(
        "submissions",
        sa.Column("id", sa.String(12), primary_key=True),
        sa.Column("board", sa.String(32), nullable=False),
        sa.Column("season", sa.String(32), nullable=False),
        sa.Column("account", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("manifest", sa.JSON, nullable=False),
        sa.Column("submitted", MOMENT, nullable=False),
        sa.Column("policies", sa.JSON, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("published", sa.Boolean, nullable=False),
        sa.Column("content", sa.String(64)),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("holder", sa.String(16)),
        sa.Column("lease", MOMENT),
        sa.Column("ended", MOMENT),
        sa.Column("imported", sa.String(64)),
    )
    op.create_index("submissions_by_board", "submissions", ["board", "season", "submitted"])
    op.create_index("submissions_by_account", "submissions", ["account", "board", "submitted"])
    op.create_index("submissions_by_state", "submissions", ["state", "submitted"])
    op.create_table(
        "policies",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "results",
        sa.Column("submission", sa.String(12), sa.ForeignKey("submissions.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("judgements", sa.Text, nullable=False),
        sa.Column("explorations", sa.Text, nullable=False),
    )
    op.create_table(
        "steps",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("submission", sa.String(12), sa.ForeignKey("submissions.id", ondelete="CASCADE"), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("ix_steps_submission", "steps", ["submission"])


def downgrade() -> None:
    """Drop the tables."""
    for name in ("steps", "results", "policies", "submissions", "accounts"):
        op.drop_table(name)
