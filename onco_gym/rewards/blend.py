"""The blend: terms by name, weighted and added up."""

from collections.abc import Mapping
from typing import Protocol

import jax
import jax.numpy as jnp

from onco_gym.cards.scenario import Params, Scenario
from onco_gym.rewards.outcome import outcome
from onco_gym.simulator.state import Journey
from onco_gym.simulator.step import Events


class Term(Protocol):
    """One reward term."""

    def __call__(self, scenario: Scenario, params: Params, before: Journey, after: Journey, events: Events) -> jax.Array:
        """(n,) the term for one cycle, in its own unit."""


TERMS: Mapping[str, Term] = {"outcome": outcome}
"""Every term by the name it has in ``info["reward_terms"]`` and in the weights."""


def reward_terms(scenario: Scenario, params: Params, before: Journey, after: Journey, events: Events) -> jax.Array:
    """(terms, n) every term, in the order of :data:`TERMS`."""
    return jnp.stack([term(scenario, params, before, after, events) for term in TERMS.values()])


def blend(weights: Mapping[str, float], terms: jax.Array) -> jax.Array:
    """(n,) the scalar reward: ``weights`` times ``terms`` (terms, n)."""
    unknown = set(weights) - set(TERMS)
    if unknown:
        raise ValueError(f"weights name {sorted(unknown)}, expected {list(TERMS)}")
    total = jnp.zeros(terms.shape[1], jnp.float32)
    for name, term in zip(TERMS, terms, strict=True):
        total = total + jnp.float32(weights.get(name, 0.0)) * term
    return total
