"""Where an episode lost value, and why, in plain words."""

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.interfaces.engine import Engine
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.simulator import tumour
from onco_gym.verification.course import Cases, Course, Sequence
from onco_gym.verification.solver import value_of

STRETCHES = 8
"""Largest number of stretches into which an episode is split. Short ones are merged with the one before."""
SMALL = 0.01
"""Value below which a difference is called small."""
KILLS = 0.04
"""Difference in log volume per cycle at which one regimen counts as better than another."""
HARMS = 0.02
"""The same for the probability of a grade 3+ event per cycle."""


@dataclass(frozen=True)
class LostValue:
    """A stretch of cycles in which another regimen would have been better.

    Attributes:
        first, last: its cycles, from 1, both included.
        done, instead: what was given, and what would have been best.
        lost: value lost. The stretches of an episode add up to its total loss.
        cause: ``resistance``, ``sensitivity``, ``toxicity``, ``evidence`` or ``order``.
        text: the reason in plain words.
    """

    first: int
    last: int
    done: str
    instead: str
    lost: float
    cause: str
    text: str


def explain(
    engine: Engine, who: Cases, done: Sequence, best: Sequence, cycles: NDArray[Any], was: Course, instead: Course
) -> tuple[tuple[LostValue, ...], ...]:
    """For each patient, where value was lost in the first ``cycles`` (n,) of what was ``done`` (H, n), and why.

    What was done is replaced by the best sequence stretch by stretch, from the first on. Each stretch is charged with the change
    in expected value. The last one is also charged with what the better beginning makes possible afterwards.
    """

    def reason(i: int, first: int, last: int, lost: float) -> LostValue:
        at = first + int(np.argmax(done[first:last, i] != best[first:last, i]))  # the first cycle in which they differ
        given, better = engine.card.regimens[done[at, i]], engine.card.regimens[best[at, i]]
        cause, why = _cause(engine, known, i, at, last, int(done[at, i]), int(best[at, i]), was, instead)
        when = f"Cycle {first + 1}" if last - first == 1 else f"Cycles {first + 1} to {last}"
        sense = "would have been worth" if lost > SMALL else "would have made little difference:"
        text = f"{when}: {given.title} was given. {better.title} {sense} {lost:+.2f} quality-adjusted life years. {why}"
        return LostValue(first + 1, last, given.name, better.name, lost, cause, text)

    n = done.shape[1]
    edges = [_stretches(done[:, i], best[:, i], int(cycles[i])) for i in range(n)]
    before = value_of(engine, who, done)
    known = jax.tree.map(np.asarray, who)  # patients are taken one by one
    mixed = done.copy()
    found: list[list[LostValue]] = [[] for _ in range(n)]
    for number in range(max(map(len, edges), default=0)):
        some = [i for i in range(n) if number < len(edges[i])]
        for i in some:
            first, last = edges[i][number]
            end = len(done) if number + 1 == len(edges[i]) else last
            mixed[first:end, i] = best[first:end, i]
        after = value_of(engine, who, mixed)
        for i in some:
            first, last = edges[i][number]
            if (done[first:last, i] != best[first:last, i]).any():
                found[i].append(reason(i, first, last, float(after[i] - before[i])))
        before = after
    return tuple(tuple(sorted(rows, key=lambda reason: -reason.lost)) for rows in found)


def _stretches(done: NDArray[np.int32], best: NDArray[np.int32], cycles: int) -> list[tuple[int, int]]:
    """The stretches, at most :data:`STRETCHES`, over which neither sequence changes."""
    changes = (np.diff(done[:cycles]) != 0) | (np.diff(best[:cycles]) != 0)
    cuts = np.flatnonzero(changes) + 1
    while len(cuts) >= STRETCHES:
        lengths = np.diff([0, *cuts, cycles])
        cuts = np.delete(cuts, min(int(lengths[1:].argmin()), len(cuts) - 1))
    edges = [0, *cuts.tolist(), cycles]
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


def _cause(
    engine: Engine, who: Cases, i: int, first: int, last: int, given: int, better: int, was: Course, instead: Course
) -> tuple[str, str]:
    card = engine.card
    clones = was.clones[first, :, i].astype(float)
    share = np.exp(clones - clones.max())
    share /= share.sum()
    hit = effects(engine, who, i, was.clones[first, :, i])
    mean = hit @ share
    names = card.regimens
    if mean[better] - mean[given] > KILLS:
        escaped = hit[given, 0] - mean[given]
        if hit[given, 0] > KILLS and escaped > 0.4 * hit[given, 0]:
            worst = int(np.argmax(share * (hit[given, 0] - hit[given])))
            title = card.clones[worst].title
            return "resistance", (
                f"By then {100 * share[worst]:.0f}% of the tumour resisted what was given ({within(title)}); "
                f"the other regimen is {_times(mean[better], mean[given])} as effective against it per cycle."
            )
        if hit[given, 0] <= KILLS and names[given].active:
            return "sensitivity", f"This tumour is hardly sensitive to {names[given].title}."
        return "sensitivity", f"It is {_times(mean[better], mean[given])} as effective against this tumour per cycle."
    at = slice(first, last), i
    severe = [100 * float(course.severe[at].sum() / max(course.alive[at].sum(), 1e-6)) for course in (was, instead)]
    if severe[0] - severe[1] > 100 * HARMS:
        return "toxicity", f"It is less toxic: {severe[1]:.0f}% instead of {severe[0]:.0f}% grade 3+ events per cycle."
    verdicts = [VERDICTS[int(course.verdict[first, i])].replace("_", " ") for course in (was, instead)]
    if was.verdict[first, i] < instead.verdict[first, i]:
        return "evidence", f"The panel rates what was given as {verdicts[0]}, and the other as {verdicts[1]}."
    return "order", "The order matters: it is worth more now, and the regimen that was given can wait."


def effects(engine: Engine, who: Cases, i: int, clones: NDArray[np.float32]) -> NDArray[np.float64]:
    """(2R, K) log volume of each clone that a cycle of each regimen removes, by killing cells and holding back growth."""
    patient = who.patient
    return np.asarray(_effects(engine, patient.sensitivity[:, i], patient.growth[i], jnp.asarray(clones)), float).T


@functools.partial(jax.jit, static_argnums=0)
def _effects(engine: Engine, sensitivity: jax.Array, growth: jax.Array, clones: jax.Array) -> jax.Array:
    scenario, params = engine.scenario, engine.params
    immune, static = np.flatnonzero(scenario.immune), np.flatnonzero(scenario.static)
    effect = jnp.asarray(params.regimens)[:, : len(scenario.mechanisms)].T * sensitivity[:, None]  # (M, 2R)
    start = jnp.repeat(clones[:, None], effect.shape[1], 1)

    def after(effect: jax.Array) -> jax.Array:
        kill = tumour.clone_kill(params, effect, effect[immune], immune, static)
        return tumour.grow(params, growth * tumour.brake(params, effect, static), start, tumour.log_volume(start), kill)[0]

    return after(jnp.zeros_like(effect)) - after(effect)


def within(title: str) -> str:
    """A title for use within a sentence. Names such as RB1 stay as they are."""
    return title if title[1:2] != title[1:2].lower() or title[1:2].isdigit() else title[0].lower() + title[1:]


def _times(more: float, less: float) -> str:
    return f"{more / less:.1f} times" if less > 0.01 else "many times"
