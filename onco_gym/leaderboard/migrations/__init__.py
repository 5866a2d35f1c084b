"""How the tables of the store came to be what they are. Alembic runs these when a store is opened."""
