"""Inverse simulation."""
