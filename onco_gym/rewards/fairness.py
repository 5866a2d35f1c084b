"""The fairness term: does a choice tell which protected group a patient belongs to?

The environment keeps a ledger of decisions: how often each regimen was chosen for each group, among patients of equal clinical
need, that is, with the same first choice by the guideline on what is known of them. Old decisions fade. Within a stratum of
need, the Jensen-Shannon divergence between the groups' distributions of regimens (groups weighted by their size) is the mean over
decisions of the pointwise information ``log p(regimen | group, need) / p(regimen | need)``. That number is what one decision
adds to the total divergence, and its negative is the term. Once the ledger is full, the term is minus the divergence on
average; while it is young, groups are taken to be treated like everybody else (:data:`PRIOR`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onco_gym.cards.scenario import Params, Scenario
from onco_gym.rewards.scene import Scene
from onco_gym.simulator.state import Journey, total

HALF_LIFE = 20_000.0
"""Decisions after which an older one counts half."""
PRIOR = 20.0
"""Decisions that a group is assumed to have had like everybody else, so that the first ones surprise nobody."""
NEW = 1e-3
"""Decisions that every regimen is assumed to have had in every stratum."""


class Ledger(NamedTuple):
    """Faded numbers of decisions. S strata of need (by first choice), R regimens, G groups of all attributes together."""

    joint: jax.Array  # (S * R * G,)
    group: jax.Array  # (S * G,)
    choice: jax.Array  # (S * R,)
    stratum: jax.Array  # (S,)


def empty_ledger(scenario: Scenario) -> Ledger:
    """A ledger in which nothing was decided yet."""
    regimens, groups = len(scenario.regimens), sum(len(names) for _, names in scenario.groups)
    sizes = regimens * regimens * groups, regimens * groups, regimens * regimens, regimens
    return Ledger(*(jnp.zeros(size, jnp.float32) for size in sizes))


def decided(before: Journey, given: jax.Array) -> jax.Array:
    """(n,) bool: whether something was decided. Going on without progression is no decision; starting, switching, stopping is."""
    return (given != before.state.last) | (before.state.progressed > 0.5)


class _Places(NamedTuple):
    joint: jax.Array  # (A, n)
    group: jax.Array  # (A, n)
    choice: jax.Array  # (n,)
    stratum: jax.Array  # (n,)


def _places(scenario: Scenario, groups: jax.Array, need: jax.Array, given: jax.Array) -> _Places:
    sizes = [len(names) for _, names in scenario.groups]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    one = groups.astype(jnp.int32) + starts[:, None]
    choice = need * len(scenario.regimens) + given
    return _Places(choice * sum(sizes) + one, need * sum(sizes) + one, choice, need)


def record(scenario: Scenario, ledger: Ledger, before: Journey, need: jax.Array, given: jax.Array) -> tuple[Ledger, jax.Array]:
    """Write a batch of decisions down.

    Args:
        scenario: static side of the card.
        ledger: before this batch.
        before: n patients before the decision.
        need: (n,) int32 stratum of need.
        given: (n,) int32 regimen.

    Returns:
        The ledger after it, and (A, n) how surprising each decision was by the ledger before it, in nats; 0 where
        nothing was decided.
    """
    made = decided(before, given) & (before.state.alive > 0.5)
    at = _places(scenario, before.patient.groups, need, given)
    # A choice that was never made in a stratum tells nothing of a group: both shares get the same small number.
    decisions = jnp.take(ledger.stratum, at.stratum) + NEW * len(scenario.regimens)
    group = jnp.take(ledger.group, at.group)
    usual = (jnp.take(ledger.choice, at.choice) + NEW) / decisions
    ours = (jnp.take(ledger.joint, at.joint) + NEW * group / decisions + PRIOR * usual) / (group + PRIOR)
    surprise = jnp.where(made, jnp.log(ours / usual), 0.0)
    one = made.astype(jnp.float32)
    fade = 0.5 ** (jnp.sum(one) / HALF_LIFE)

    def add(counts: jax.Array, place: jax.Array) -> jax.Array:
        return (counts * fade).at[place.reshape(-1)].add(jnp.broadcast_to(one, place.shape).reshape(-1), mode="drop")

    return Ledger(*(add(counts, place) for counts, place in zip(ledger, at, strict=True))), surprise


def fairness(scenario: Scenario, params: Params, scene: Scene) -> jax.Array:
    """(n,) minus what the decision adds to the divergence between groups, in nats, mean over the protected attributes."""
    del scenario, params
    return -total(scene.surprise) / len(scene.surprise)


class Divergence(NamedTuple):
    """How far the groups of one attribute are apart."""

    nats: float  # Jensen-Shannon divergence between groups, mean over strata of need by decisions
    chance: float  # what equal treatment would show by chance alone at this number of decisions
    decisions: float  # faded number of decisions


def divergence(scenario: Scenario, ledger: Ledger) -> dict[str, Divergence]:
    """What the ledger shows, by protected attribute."""
    regimens = len(scenario.regimens)
    joint = np.asarray(ledger.joint, float).reshape(regimens, regimens, -1)
    result, start = {}, 0
    for name, levels in scenario.groups:
        counts = joint[:, :, start : start + len(levels)]
        start += len(levels)
        every = counts.sum()
        if every <= 0:
            result[name] = Divergence(0.0, 0.0, 0.0)
            continue
        by_group, by_choice = counts.sum(1, keepdims=True), counts.sum(2, keepdims=True)
        stratum = counts.sum((1, 2), keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            nats = np.where(counts > 0, counts * np.log(counts * stratum / (by_group * by_choice)), 0.0).sum() / every
        free = np.maximum((by_group > 0).sum(2) - 1, 0) * np.maximum((by_choice > 0).sum(1) - 1, 0)
        result[name] = Divergence(float(nats), float(free.sum() / (2 * every)), float(every))
    return result
