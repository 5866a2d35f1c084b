"""The reward: a weighted sum of named terms."""

from collections.abc import Collection, Mapping
from typing import Protocol

import jax
import jax.numpy as jnp

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Params, Scenario
from onco_gym.rewards.carbon import carbon_term
from onco_gym.rewards.fairness import fairness_term
from onco_gym.rewards.guideline import guideline_term
from onco_gym.rewards.outcome import outcome_term
from onco_gym.rewards.scene import Scene


class Term(Protocol):
    """One reward term."""

    def __call__(self, scenario: Scenario, params: Params, scene: Scene) -> jax.Array:
        """(n,) the term for one cycle, in its own unit; more is better."""


TERMS: Mapping[str, Term] = {
    "outcome": outcome_term,
    "guideline": guideline_term,
    "fairness": fairness_term,
    "carbon": carbon_term,
}
"""Every term by the name it has in ``info["reward_terms"]`` and in the weights."""
UNITS = {
    "outcome": "quality-adjusted life years",
    "guideline": "guideline points",
    "fairness": "nats of divergence, negative",
    "carbon": "tonnes CO2e, negative",
}


def card_weights(card: Card, changes: Mapping[str, float] | None = None) -> dict[str, float]:
    """The card's weights, in quality-adjusted life years per unit of each term, with ``changes`` applied.

    Raises:
        ValueError: if ``changes`` names something that is not a term.
    """
    unknown = set(changes or {}) - set(TERMS)
    if unknown:
        raise ValueError(f"weights name {sorted(unknown)}, expected {list(TERMS)}")
    return {name: float({**card.reward.model_dump(), **(changes or {})}[name]) for name in TERMS}


def reward_terms(scenario: Scenario, params: Params, scene: Scene, wanted: Collection[str]) -> jax.Array:
    """(terms, n) the terms in the order of :data:`TERMS`; 0 for those that are not ``wanted``."""
    nothing = jnp.zeros_like(scene.events.lived)
    return jnp.stack([term(scenario, params, scene) if name in wanted else nothing for name, term in TERMS.items()])


def blend(weights: Mapping[str, float], terms: jax.Array) -> jax.Array:
    """(n,) the scalar reward: ``weights`` times ``terms`` (terms, n)."""
    total = jnp.zeros(terms.shape[1], jnp.float32)
    for name, term in zip(TERMS, terms, strict=True):
        total = total + jnp.float32(weights[name]) * term
    return total
