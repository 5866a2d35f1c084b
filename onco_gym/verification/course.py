"""The course of patients under a given sequence of decisions, and what it is worth.

Chance can be read in three ways. *Expected* replaces chance by its mean, and is smooth in the decisions. *Sampled* uses each
patient's own chance. *Weighed* does so too, except that death becomes a weight, so that a mean over a few draws of chance is
precise. The worth is the environment's own reward without the fairness term, which does not belong to a single patient.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.foundation.threads import beside
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.origins import Origin
from onco_gym.rewards import TERMS, Verdict, blend
from onco_gym.simulator.admission import admit
from onco_gym.simulator.chance import Sampled, Weighed, derived
from onco_gym.simulator.observation import one_hot
from onco_gym.simulator.state import Journey, Patient
from onco_gym.simulator.transition import Events, step

QUALITY = list(TERMS).index("outcome")
LANES = 256
"""Patients followed at once."""

Reading = Literal["expected", "weighed", "sampled"]
"""How chance is read; see the module."""

Sequence = NDArray[np.int32]
"""(H, n) a regimen's index for every cycle and patient."""


class Cases(NamedTuple):
    """Patients whose decisions are examined, batch last."""

    patient: Patient
    key: jax.Array  # (words, n) uint32, each patient's own chance
    row: jax.Array  # (n,) int32, their rows in the engine's cohort

    @property
    def origin(self) -> Origin:
        """The origin of their episodes."""
        return Origin(self.row, self.key)

    def take(self, rows: Any) -> "Cases":
        """The patients in ``rows``, which may repeat."""
        return jax.tree.map(lambda x: jnp.take(x, rows, axis=-1), self)


def cases(engine: Engine, n: int, seed: int = 0) -> Cases:
    """The patients that :func:`onco_gym.rollout` meets under ``seed``, with the same chance."""
    return cases_at(engine, engine.origins(n, seed))


def cases_at(engine: Engine, origin: Origin) -> Cases:
    """The patients at ``origin``, with their chance."""
    return Cases(engine.patients(origin.row), jnp.asarray(origin.key), jnp.asarray(origin.row))


def redrawn(who: Cases, numbers: NDArray[np.int64]) -> Cases:
    """(…, n * D) each patient with D other draws of chance, given by ``numbers`` (D,); patient by patient."""
    n = who.key.shape[-1]
    salts = ((numbers + 1) * 0x9E3779B9 & 0xFFFFFFFF).astype(np.uint32)
    many = who.take(np.repeat(np.arange(n), len(numbers)))
    return many._replace(key=derived(many.key, jnp.asarray(np.tile(salts, n))))


def filled(engine: Engine, given: Sequence) -> Sequence:
    """(H, n) the regimens ``given`` (T, n), and a pause after the end, where they are -1."""
    out = np.full((engine.horizon, given.shape[1]), engine.scenario.holiday, np.int32)
    out[: len(given)] = np.where(given >= 0, given, engine.scenario.holiday)
    return out


class Course(NamedTuple):
    """What happened, cycle by cycle."""

    worth: Any  # (H, n) reward without the fairness term
    quality: Any  # (H, n) quality-adjusted life years
    alive: Any  # (H, n) at the end of the cycle: 1 or 0 if sampled, otherwise the probability
    volume: Any  # (H, n) log cm3 at the end of the cycle
    clones: Any  # (H, K, n) log cm3 at its start
    given: Any  # (H, n) int32 regimen given: the decision, or a pause where it could not be given
    verdict: Any  # (H, n) int32 the panel's verdict on it, an index into VERDICTS
    severe: Any  # (H, n) grade 3+ event; its probability in the expected reading


def follow(engine: Engine, who: Cases, decisions: Sequence, reading: Reading = "expected") -> Course:
    """The course of n patients under ``decisions`` (H, n), as NumPy arrays."""

    def some(rows: NDArray[np.intp]) -> Course:
        return _follow(engine, who.take(rows), jnp.asarray(decisions[:, rows], jnp.int32), reading)

    return Course(*in_parts(some, decisions.shape[1]))


@functools.partial(jax.jit, static_argnums=(0, 3))
def _follow(engine: Engine, who: Cases, decisions: jax.Array, reading: Reading) -> Course:
    def cycle(journey: Journey, decision: jax.Array) -> tuple[Journey, Course]:
        after, events, terms, said = move(engine, journey, decision, reading)
        state = after.state
        seen = (state.alive, state.volume, journey.state.clones, state.last, said.code, events.severe * events.lived)
        return after, Course(blend(engine.weights, terms), terms[QUALITY], *seen)

    return jax.lax.scan(cycle, begin(engine, who, reading), decisions)[1]


def begin(engine: Engine, who: Cases, reading: Reading) -> Journey:
    """The first visit."""
    return admit(engine.scenario, engine.params, who.patient, who.key, reading == "expected")


def move(engine: Engine, journey: Journey, decision: jax.Array, reading: Reading) -> tuple[Journey, Events, jax.Array, Verdict]:
    """A cycle under ``decision`` (n,): the journey after it, events, (terms, n) and the verdict; see :meth:`Engine.personal`."""
    after, events = advance(engine, journey, decision, reading)
    hearing = engine.hear(crisp(journey) if reading == "expected" else journey)
    return after, events, *engine.personal(hearing, journey, after, events)


def advance(engine: Engine, journey: Journey, decision: jax.Array, reading: Reading) -> tuple[Journey, Events]:
    """A cycle under ``decision`` (n,), in any reading."""
    expected = reading == "expected"
    acts = one_hot(decision, len(engine.scenario.regimens)) if expected else decision
    return step(engine.scenario, engine.params, journey, acts, expected, draw=Weighed if reading == "weighed" else Sampled)


def crisp(journey: Journey) -> Journey:
    """A journey of the expected reading as the clinic would see it."""
    state = journey.state
    begun = jnp.sum(state.treatment, 0) > 0.5
    treatment = jnp.where(begun, jnp.argmax(state.treatment, 0), -1).astype(jnp.int32)
    return journey._replace(state=state._replace(line=jnp.round(state.line), treatment=treatment))


def in_parts(work: Callable[[NDArray[np.intp]], Iterable[Any]], n: int, at_once: int = LANES) -> list[NDArray[Any]]:
    """The arrays (…, n) from ``work`` on ``at_once`` patients at a time, joined. One shape needs one compilation."""

    def part(start: int) -> list[NDArray[Any]]:
        rows = np.resize(np.arange(start, min(start + at_once, n)), at_once)
        return [np.asarray(array) for array in work(rows)]

    return [np.concatenate(arrays, -1)[..., :n] for arrays in zip(*beside(part, range(0, n, at_once)), strict=True)]
