"""Conformance checks for environments. You can run them on your own cards and wrappers too."""

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
