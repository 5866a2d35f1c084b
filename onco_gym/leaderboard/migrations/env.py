"""Alembic runs this. The connection, and the transaction, are those of :mod:`onco_gym.leaderboard.database`."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
