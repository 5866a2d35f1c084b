"""Interfaces: the simulator as environments."""
