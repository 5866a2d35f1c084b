"""Evaluation: what agents did, and what it was worth."""
