"""Conformance checks for environments, shipped so that cards and wrappers of your own can be held to them too."""

from onco_gym.testing.conformance import (
    check_all,
    check_api,
    check_determinism,
    check_errors,
    check_finite,
    check_masks,
    check_single_equals_vector,
    sample,
    scalar,
)

__all__ = [
    "check_all",
    "check_api",
    "check_determinism",
    "check_errors",
    "check_finite",
    "check_masks",
    "check_single_equals_vector",
    "sample",
    "scalar",
]
