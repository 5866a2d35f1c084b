"""The decisions that explain an observed course: which regimens most likely led to these scans, ctDNA and toxicities.

The search is a beam search over hypotheses, cycle by cycle. Each hypothesis is extended with every regimen that could be given.
Chance is not drawn but read off the course: a severe event that was observed happens. The prediction is then compared with the
observation. A hypothesis is penalised, in nats, for misfit, for a regimen that no expert would accept, and for a change of
regimen; the card's ``[inverse]`` table weighs the three. Posterior weights of the hypotheses show how certain the answer is.

A decision cannot be identified if nothing was given (a held dose does not show which drug was held, and a pause looks like
supportive care), or if another regimen would have left the same traces. :class:`Reconstruction` gives the nats between the
decision in a cycle and the next best explanation.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from onco_gym.interfaces.engine import Engine
from onco_gym.simulator.chance import Channel, Sampled, numbered
from onco_gym.simulator.observation import allowed, ctdna, diameter
from onco_gym.simulator.state import Journey, State
from onco_gym.simulator.transition import step
from onco_gym.verification.course import Cases, Sequence, begin, in_parts

BEAM = 12
"""Hypotheses kept for each patient."""
AT_ONCE = 16
"""Patients searched at once; more would not fit into the processor's cache."""
GRADES = 0.05
"""Error of a toxicity grade, in grades, because charts round."""
BLUNT = 12.0
"""Largest penalty of one observation in nats, because charts contain errors."""


C = TypeVar("C", bound=Sampled)


class Observed(NamedTuple):
    """What was seen of n patients at the end of each of T cycles. Arrays are NumPy or JAX."""

    alive: Any  # (T, n) bool: the patient was seen, alive
    scanned: Any  # (T, n) bool
    diameter: Any  # (T, n) mm, at the last scan
    progressed: Any  # (T, n) bool, on the current line
    ctdna: Any  # (T, n) log10 molecules per ml
    toxicity: Any  # (T, O, n) grades
    severe: Any  # (T, O, n) bool: a grade 3+ event in the cycle


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Inferred decisions.

    Attributes:
        decisions: (T, n) int32 the most likely regimens, -1 where the patient was not seen.
        probability: (T, n) posterior probability of that regimen.
        margin: (T, n) nats by which the observations in the cycle favour it over the next best regimen.
        misfit: (n,) misfit of the observations under the inferred decisions, in nats.
    """

    decisions: Sequence
    probability: NDArray[np.float32]
    margin: NDArray[np.float32]
    misfit: NDArray[np.float32]


def watch(engine: Engine, who: Cases, decisions: Sequence) -> Observed:
    """What the clinic sees of patients under ``decisions`` (T, n), each patient with their own chance."""
    return Observed(*map(np.asarray, _watch(engine, who, jnp.asarray(decisions, jnp.int32))))


@functools.partial(jax.jit, static_argnums=0)
def _watch(engine: Engine, who: Cases, decisions: jax.Array) -> Observed:
    def cycle(journey: Journey, decision: jax.Array) -> tuple[Journey, Observed]:
        after, noted = _stepped(engine, journey, decision, _Noted)
        state = after.state
        marker = ctdna(engine.params, after, Sampled(after.key, state.cycle))
        seen = Observed(
            alive=state.alive > 0.5,
            scanned=state.since_scan < 0.5,
            diameter=state.diameter,
            progressed=state.progressed > 0.5,
            ctdna=marker,
            toxicity=state.toxicity,
            severe=noted.events > 0.5,
        )
        return after, seen

    return jax.lax.scan(cycle, begin(engine, who, "sampled"), decisions)[1]


class _Noted(Sampled):
    """Chance that remembers which severe events were drawn."""

    events: jax.Array

    def one_of(self, hazards: jax.Array, further: jax.Array, channel: Channel) -> tuple[jax.Array, jax.Array]:
        self.events, stop = super().one_of(hazards, further, channel)
        return self.events, stop


class Read(Sampled):
    """Chance read off the observations: severe events as observed, no measurement error, no deaths."""

    def __init__(self, events: jax.Array, cycle: jax.Array) -> None:
        super().__init__(numbered(cycle.astype(jnp.uint32)), cycle)
        self._events = events
        self.surprise = jnp.zeros(cycle.shape)  # nats of the events under the hazards of the regimen

    def one_of(self, hazards: jax.Array, further: jax.Array, channel: Channel) -> tuple[jax.Array, jax.Array]:
        """The events that were seen; permanent stops are not known."""
        every = jnp.maximum(jnp.sum(hazards, 0), 1e-9)
        share = jnp.sum(hazards * self._events, 0) / every
        happened = jnp.sum(self._events, 0) > 0.5
        came = -jnp.log(jnp.maximum(-jnp.expm1(-every) * share, 1e-6))
        self.surprise = jnp.where(happened, came, every)
        return self._events, jnp.zeros_like(every)

    def event(self, probability: jax.Array, channel: Channel) -> jax.Array:
        """Symptoms and new lesions do not matter, because the result of the scan is known."""
        del channel
        return jnp.zeros_like(probability)

    def normal(self, channel: Channel) -> jax.Array:
        """No error."""
        del channel
        return jnp.zeros(())

    def lived(self, hazard: jax.Array, channel: Channel) -> tuple[jax.Array, jax.Array]:
        """Patients seen at the end of the cycle have lived through it."""
        del channel
        return jnp.ones_like(hazard), jnp.zeros_like(hazard)


def _stepped(
    engine: Engine, journey: Journey, decision: jax.Array, chance: Callable[[jax.Array, jax.Array], C]
) -> tuple[Journey, C]:
    """A cycle under ``decision`` (n,): the journey after it, and the chance that it was given."""
    made: list[C] = []

    def draw(key: jax.Array, cycle: jax.Array) -> C:
        made.append(chance(key, cycle))
        return made[-1]

    after, _ = step(engine.scenario, engine.params, journey, decision, draw=draw)
    return after, made[-1]


def _explained(engine: Engine, journey: Journey, decision: jax.Array, now: Observed) -> tuple[Journey, jax.Array]:
    """A cycle under a hypothesis: the journey after it, set to what was seen, and (n,) misfit in nats."""
    params, severe = engine.params, now.severe.astype(jnp.float32)
    after, read = _stepped(engine, journey, decision, lambda _, cycle: Read(severe, cycle))
    state, patient = after.state, journey.patient
    error = (jnp.log(jnp.maximum(now.diameter, 1e-3)) - jnp.log(diameter(state.volume, patient.lesions))) / params.scan_error
    scan = jnp.where(now.scanned, jnp.minimum(0.5 * error**2, BLUNT), 0.0)
    ten = np.float32(np.log(10))
    expected = jax.nn.softplus(state.volume + patient.shedding * ten) / ten
    # Near the detection limit the error of the logarithm is smaller than the error of the shedding.
    slope = jax.nn.sigmoid(state.volume + patient.shedding * ten)
    spread = params.ctdna_error * jnp.maximum(slope, 0.05) / ten + 1e-3
    shed = jnp.minimum(0.5 * ((now.ctdna - expected) / spread) ** 2, BLUNT)
    grades = jnp.sum(jnp.minimum(0.5 * ((now.toxicity - state.toxicity) / GRADES) ** 2, BLUNT), 0)
    misfit = scan + shed + jnp.minimum(grades, 2 * BLUNT) + jnp.minimum(read.surprise, BLUNT)
    return after._replace(state=_as_seen(journey.state, state, now)), jnp.where(now.alive, misfit, 0.0)


def _as_seen(before: State, after: State, now: Observed) -> State:
    """``after``, with what the clinic knows set to what it saw."""
    progressed = now.progressed.astype(jnp.float32)
    size = jnp.where(now.scanned, now.diameter, after.diameter)
    return after._replace(
        toxicity=now.toxicity,
        held=jnp.max(now.severe.astype(jnp.float32), 0),
        progressed=progressed,
        failed=before.failed + (progressed > 0.5) * (before.progressed < 0.5),
        diameter=size,
        since_scan=jnp.where(now.scanned, 0.0, after.since_scan),
    )


class _Beam(NamedTuple):
    """Hypotheses of n patients, (…, n * B)."""

    journey: Journey
    score: jax.Array  # (n, B) nats, higher is better
    misfit: jax.Array  # (n, B)


def reconstruct(engine: Engine, who: Cases, observed: Observed) -> Reconstruction:
    """The decisions that most likely led to what was ``observed``; see the module.

    Args:
        engine: the environment; its actions must be regimens.
        who: (…, n) the patients, whose biology is known. Their chance is not used.
        observed: T cycles of n patients.
    """

    def some(rows: NDArray[np.intp]) -> tuple[NDArray[Any], ...]:
        seen = Observed(*(jnp.asarray(part[..., rows]) for part in observed))
        return _traced(*map(np.asarray, _search(engine, who.take(rows), seen)))

    decisions, probability, margin, misfit = in_parts(some, who.key.shape[-1], AT_ONCE)
    alive = np.asarray(observed.alive)
    return Reconstruction(
        decisions=np.where(alive, decisions, -1).astype(np.int32),
        probability=np.where(alive, probability, 0).astype(np.float32),
        margin=np.where(alive, margin, 0).astype(np.float32),
        misfit=misfit,
    )


def _traced(
    chosen: NDArray[Any], parents: NDArray[Any], by: NDArray[Any], margin: NDArray[Any], score: NDArray[Any], misfit: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    """Follow the hypotheses of :func:`_search` back: (T, n) decisions, probabilities and margins, and (n,) misfit of the best."""
    cycles, n, _ = chosen.shape
    best, rows = score.argmax(1), np.arange(n)[:, None]
    paths = np.empty((cycles, n, BEAM), np.int32)
    at = np.tile(np.arange(BEAM), (n, 1))
    for time in range(cycles - 1, -1, -1):
        paths[time] = chosen[time][rows, at]
        at = parents[time][rows, at]
    decisions = paths[:, np.arange(n), best]
    # Hypotheses that survived to the end give the probability of every cycle. The others count through the filter.
    agreed = (softmax(score, 1) * (paths == decisions[..., None])).sum(2)
    filtered, margin = (np.take_along_axis(part, decisions[..., None], 2)[..., 0] for part in (by, margin))
    return decisions, np.minimum(agreed, np.maximum(filtered, 0)), margin, misfit[np.arange(n), best]


@functools.partial(jax.jit, static_argnums=0)
def _search(engine: Engine, who: Cases, observed: Observed) -> tuple[jax.Array, ...]:
    """The beams of n patients over T cycles.

    For each cycle (T, n, B) regimens and parents of the hypotheses kept, and (T, n, R) probability and margin of each regimen.
    At the end (n, B) score and misfit.
    """
    scenario, weights = engine.scenario, engine.card.inverse
    n, count = who.key.shape[-1], len(scenario.regimens)
    wide = BEAM * count
    start = begin(engine, who, "sampled")
    start = jax.tree.map(lambda x: jnp.repeat(x, BEAM, axis=-1), start)
    lone = jnp.where(jnp.arange(BEAM) == 0, 0.0, -1e9) + jnp.zeros((n, BEAM))
    options = jnp.tile(jnp.arange(count, dtype=jnp.int32), n * BEAM)

    def cycle(beam: _Beam, now: Observed) -> tuple[_Beam, tuple[jax.Array, ...]]:
        hearing = engine.hear(beam.journey)
        accepted = engine.panel.options(jnp, hearing)  # (R, n * B)
        can = allowed(engine.params, beam.journey.state) > 0.5
        each = jax.tree.map(lambda x: jnp.repeat(x, count, axis=-1), beam.journey)
        seen = jax.tree.map(lambda x: jnp.repeat(x, wide, axis=-1), now)
        after, misfit = _explained(engine, each, options, seen)
        changed = (options != each.state.last) & (each.state.last >= 0)
        lost = weights.mismatch * misfit + weights.guideline * ~accepted.T.reshape(-1) + weights.consistency * changed
        score = jnp.repeat(beam.score.reshape(-1), count) - lost
        score = jnp.where(can.T.reshape(-1), score, -1e9).reshape(n, wide)
        over = beam.score.repeat(count, 1) + jnp.where(options.reshape(n, wide) == 0, 0.0, -1e9)
        score = jnp.where(now.alive[:, None], score, over)
        value, place = jax.lax.top_k(score, BEAM)
        flat = (place + jnp.arange(n)[:, None] * wide).reshape(-1)
        kept = jax.tree.map(lambda x: jnp.take(x, flat, axis=-1), after)
        total = (jnp.repeat(beam.misfit.reshape(-1), count) + misfit).reshape(n, wide)
        # The filter: the probability of each regimen in this cycle, given the data so far.
        by = jax.nn.softmax(score, 1).reshape(n, BEAM, count).sum(1)
        local = jnp.where(can.T.reshape(n, BEAM, count), -misfit.reshape(n, BEAM, count), -1e9)[:, 0]
        second = jnp.sort(local, 1)[:, -2:]
        margin = local - jnp.where(local >= second[:, 1:], second[:, :1], second[:, 1:])
        beam = _Beam(kept, value, jnp.take_along_axis(total, place, 1))
        return beam, (place % count, place // count, by, margin)

    beam = _Beam(start, lone, jnp.zeros((n, BEAM)))
    beam, (chosen, parents, by, margin) = jax.lax.scan(cycle, beam, observed)
    return chosen, parents, by, margin, beam.score, beam.misfit


def misfit(engine: Engine, who: Cases, observed: Observed, decisions: Sequence) -> NDArray[np.float32]:
    """(T, n) misfit of the observations under claimed ``decisions`` (T, n), in nats, cycle by cycle."""

    def some(rows: NDArray[np.intp]) -> list[jax.Array]:
        seen = Observed(*(jnp.asarray(part[..., rows]) for part in observed))
        return [_claimed(engine, who.take(rows), seen, jnp.asarray(np.maximum(decisions[:, rows], 0), jnp.int32))]

    return in_parts(some, decisions.shape[1])[0]


@functools.partial(jax.jit, static_argnums=0)
def _claimed(engine: Engine, who: Cases, observed: Observed, decisions: jax.Array) -> jax.Array:
    def cycle(journey: Journey, at: tuple[Observed, jax.Array]) -> tuple[Journey, jax.Array]:
        return _explained(engine, journey, at[1], at[0])

    return jax.lax.scan(cycle, begin(engine, who, "sampled"), (observed, decisions))[1]
