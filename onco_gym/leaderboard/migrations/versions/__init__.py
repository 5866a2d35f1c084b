"""Migrations, oldest first by their numbers."""
