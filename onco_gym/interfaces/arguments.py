"""Checks of what environments are asked for. Anything that makes no sense ends in an :class:`EngineError`."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from onco_gym.cards import Card
from onco_gym.interfaces.registry import DECIDE, KINDS
from onco_gym.patients import SPLITS
from onco_gym.rewards import TERMS, card_weights
from onco_gym.simulator.chance import SEALED

LARGEST_WEIGHT = 1e6
"""Reward weights with a larger absolute value are refused: float32 sums would overflow or lose every other term."""
LONGEST_HORIZON = 10_000
"""Cycles; longer horizons are refused."""


class EngineError(ValueError):
    """An environment that cannot be made or reset as asked. The message says what was expected."""


def checked_weights(card: Card, weights: Any) -> dict[str, float]:
    """The card's reward weights, with the changes in ``weights``."""
    if weights is not None and not isinstance(weights, Mapping):
        raise EngineError(f"weights are {weights!r}, expected a mapping from some of {', '.join(TERMS)} to numbers")
    for name, value in (weights or {}).items():
        if name not in TERMS:
            raise EngineError(f"weights name {name!r}, expected some of {', '.join(TERMS)}")
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or abs(value) > LARGEST_WEIGHT:
            raise EngineError(
                f"the weight of {name} is {value!r}, expected a number from {-LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
            )
    return card_weights(card, weights)


def checked_horizon(card: Card, horizon: Any) -> int:
    """``horizon`` in cycles; by default the card's."""
    if horizon is None:
        return card.horizon_cycles
    whole = isinstance(horizon, int | np.integer) and not isinstance(horizon, bool)
    if not whole or not 1 <= horizon <= LONGEST_HORIZON:
        raise EngineError(f"horizon is {horizon!r}, expected a whole number of cycles from 1 to {LONGEST_HORIZON}")
    return int(horizon)


def checked_terms(terms: Any) -> tuple[str, ...]:
    """The reward terms to compute, in alphabetical order; by default all."""
    if terms is None:
        return tuple(sorted(TERMS))
    if isinstance(terms, str) or not isinstance(terms, Collection) or not set(terms) <= set(TERMS):
        raise EngineError(f"terms are {terms!r}, expected a list with some of {', '.join(TERMS)}")
    return tuple(sorted(set(terms)))


def check_split(split: Any) -> None:
    """Check that ``split`` is one of :data:`onco_gym.patients.SPLITS`."""
    if not isinstance(split, str) or split not in SPLITS:
        raise EngineError(f"split is {split!r}, expected one of {', '.join(SPLITS)}")


def check_secret(secret: Any) -> None:
    """Check that ``secret`` is None or 32 bytes."""
    if secret is not None and (not isinstance(secret, bytes) or len(secret) != 4 * SEALED):
        raise EngineError(f"secret is of type {type(secret).__name__}, expected {4 * SEALED} bytes")


def checked_decide(decide: Any, kind: str) -> str:
    """``decide``, or how this kind of environment decides if it is not said."""
    if decide is None:
        return KINDS[kind].decide
    if decide not in DECIDE:
        raise EngineError(f"decide is {decide!r}, expected one of {', '.join(DECIDE)}")
    return str(decide)


def checked_seed(seed: Any) -> int:
    """``seed`` as a whole number of 64 bits.

    Raises:
        EngineError: for anything else.
    """
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**64:
        raise EngineError(f"seed is {seed!r}, expected a whole number from 0 to 2**64 - 1")
    return int(seed)
