"""The fairness term: does a choice tell which protected group a patient belongs to?

The environment keeps a tally of decisions: how often each regimen was chosen for each group, among patients of equal clinical
need. Patients have equal need if the guideline has the same first choice for them, given what is known. Old decisions fade.
Within a stratum of need, the Jensen-Shannon divergence between the groups' distributions of regimens (groups weighted by their
size) is the mean over decisions of the pointwise information ``log p(regimen | group, need) / p(regimen | need)``. This is what
one decision adds to the total divergence, and its negative is the term. Once the tally is full, the term is minus the divergence
on average. While the tally is young, groups are assumed to be treated like everybody else (:data:`PRIOR`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onco_gym.cards.scenarios import Params, Scenario
from onco_gym.foundation.arrays import one_turn, settled, total
from onco_gym.rewards.scene import Scene
from onco_gym.simulator.state import Journey

HALF_LIFE = 20_000.0
"""Number of newer decisions after which a decision counts half."""
PRIOR = 20.0
"""Pseudo-decisions, distributed like everybody's, that are added to each group, so that the first real ones are no surprise."""
NEW = 1e-3
"""Pseudo-decisions that are added to every regimen in every stratum."""


class Tally(NamedTuple):
    """Counts of decisions (S, R, G): strata of need (by first choice), regimens chosen, the groups of all attributes in a row.

    The decisions of the last step are kept apart until the next, so that batches of patients can be stepped beside each other.
    """

    counts: jax.Array  # until the last step; old decisions fade
    new: jax.Array  # in the last step


def empty_tally(scenario: Scenario) -> Tally:
    """A tally without decisions."""
    regimens, groups = len(scenario.regimens), sum(len(names) for _, names in scenario.groups)
    return Tally(*(jnp.zeros((regimens, regimens, groups), jnp.float32) for _ in Tally._fields))


def merged(tallies: Sequence[Tally]) -> Tally:
    """One tally of a step that batches of patients made beside each other, all with the same tally before it."""
    return tallies[0]._replace(new=total(tally.new for tally in tallies))


def _every_count(scenario: Scenario, tally: Tally) -> jax.Array:
    """The counts, with those of the last step."""
    first = len(scenario.groups[0][1])  # every attribute counts every decision once
    return tally.counts * 0.5 ** (jnp.sum(tally.new[..., :first]) / HALF_LIFE) + tally.new


def decided(scenario: Scenario, before: Journey, given: jax.Array) -> jax.Array:
    """(n,) bool: whether something was decided.

    Starting, switching and stopping are decisions, and so is staying on a treatment after progression. Continuing without
    progression is not a decision, nor is continuing without treatment.
    """
    idle = (given == scenario.holiday) | (given == scenario.supportive)
    return (given != before.state.last) | ((before.state.progressed > 0.5) & ~idle)


def count_decisions(
    scenario: Scenario, tally: Tally, before: Journey, need: jax.Array, given: jax.Array
) -> tuple[Tally, jax.Array]:
    """Add a batch of decisions to the tally.

    Args:
        scenario: static side of the card.
        tally: the tally before this batch.
        before: n patients before the decision.
        need: (n,) int32 stratum of need.
        given: (n,) int32 regimen.

    Returns:
        The tally after this batch, and (A, n) how surprising each decision was given the tally before it, in nats; 0 where
        nothing was decided.
    """
    made = decided(scenario, before, given) & (before.state.alive > 0.5)
    counts, groups, sizes = _every_count(scenario, tally), before.patient.groups, [len(names) for _, names in scenario.groups]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    strata, row = counts, need
    if len(need) < len(counts):  # few patients: compute only their strata
        strata, row = jnp.take(counts, need, axis=0), jnp.arange(len(need))
    table = _surprises(strata, sizes[0])
    if len(need) > 1:
        table = settled(one_turn(need >= 0), table)
    group = groups.astype(jnp.int32) + starts[:, None]
    surprise = jnp.take(table.ravel(), (row * counts.shape[1] + given) * counts.shape[2] + group)
    new = jnp.zeros(counts.size, jnp.float32)
    for place in (need * counts.shape[1] + given) * counts.shape[2] + group:
        new = new.at[place].add(made.astype(jnp.float32))
    return Tally(counts, new.reshape(counts.shape)), jnp.where(made, surprise, 0.0)


def _surprises(counts: jax.Array, first: int) -> jax.Array:
    """(S, R, G) nats: how surprising every decision would be. The first attribute has ``first`` groups."""
    by_choice = jnp.sum(counts[..., :first], -1, keepdims=True)  # every attribute counts every decision once
    # A choice that was never made in a stratum says nothing about a group: both shares get the same small number.
    decisions = jnp.sum(by_choice, 1, keepdims=True) + NEW * counts.shape[1]
    usual = (by_choice + NEW) / decisions
    ours = jnp.sum(counts, 1, keepdims=True)
    return jnp.log((counts + NEW * ours / decisions + PRIOR * usual) / ((ours + PRIOR) * usual))


def fairness_term(scenario: Scenario, params: Params, scene: Scene) -> jax.Array:
    """(n,) minus what the decision adds to the divergence between groups, in nats, averaged over protected attributes."""
    del scenario, params
    return even_handedness(scene.surprise)


def even_handedness(surprise: jax.Array) -> jax.Array:
    """(n,) the fairness term, from ``surprise`` (A, n)."""
    return -total(surprise) / len(surprise)


class GroupDivergence(NamedTuple):
    """How differently the groups of one attribute are treated."""

    nats: float  # Jensen-Shannon divergence between groups, mean over strata of need weighted by decisions
    chance: float  # what equal treatment would show by chance alone at this number of decisions
    decisions: float  # number of decisions; old ones have faded


def group_divergence(scenario: Scenario, tally: Tally) -> dict[str, GroupDivergence]:
    """The divergence between groups in the tally, by protected attribute."""
    every_count = np.asarray(_every_count(scenario, tally), float)
    result, start = {}, 0
    for name, levels in scenario.groups:
        counts = every_count[:, :, start : start + len(levels)]
        start += len(levels)
        every = counts.sum()
        if every <= 0:
            result[name] = GroupDivergence(0.0, 0.0, 0.0)
            continue
        by_group, by_choice = counts.sum(1, keepdims=True), counts.sum(2, keepdims=True)
        stratum = counts.sum((1, 2), keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            nats = np.where(counts > 0, counts * np.log(counts * stratum / (by_group * by_choice)), 0.0).sum() / every
        free = np.maximum((by_group > 0).sum(2) - 1, 0) * np.maximum((by_choice > 0).sum(1) - 1, 0)
        result[name] = GroupDivergence(float(nats), float(free.sum() / (2 * every)), float(every))
    return result
