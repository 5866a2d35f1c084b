"""The compiled simulator behind every environment of a card.

An engine holds a card's arrays and a pool of patients, and compiles what environments need: ``admit``, ``step`` and
``readmit`` hand out observations batch first; the functions they are made of keep the batch last.
Environments with the same card, cohort and weights share one engine, so each function is compiled once.
"""

import functools
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card, load_card
from onco_gym.cards.scenario import params, scenario
from onco_gym.patients import CausalGenerator, Cohort
from onco_gym.patients.traits import encode
from onco_gym.rewards import TERMS, blend, reward_terms
from onco_gym.simulator.admit import admit, embody
from onco_gym.simulator.chance import mix
from onco_gym.simulator.observation import allowed, observe
from onco_gym.simulator.state import Journey, Patient
from onco_gym.simulator.step import Events, step

# A single patient's cycle takes a microsecond: handing it to another thread costs twenty. Takes effect if JAX has not started.
jax.config.update("jax_cpu_enable_async_dispatch", False)

POOL = 16_384
"""Patients in the default cohort of an environment."""


class Seat(NamedTuple):
    """One environment's place in its sequence of patients."""

    stream: Any  # (n,) uint32, from the seed; NumPy's or JAX's
    episode: Any  # (n,) uint32, episodes since the seed


class Outcome(NamedTuple):
    """What a cycle came to."""

    reward: jax.Array  # (n,)
    terminated: jax.Array  # (n,) bool
    truncated: jax.Array  # (n,) bool
    terms: jax.Array  # (terms, n)
    given: jax.Array  # (n,) int32 regimen given


class Engine:
    """See the module.

    Args:
        card: a validated card.
        cohort: the patients to draw from; by default :data:`POOL` patients of the card's own graph, seed 0.
        weights: reward weights by term; by default the card's.
        horizon: cycles until an episode is truncated; by default the card's.
    """

    def __init__(self, card: Card, cohort: Cohort, weights: Mapping[str, float], horizon: int) -> None:
        self.card, self.cohort, self.weights, self.horizon = card, cohort, dict(weights), horizon
        self.scenario, self.params = scenario(card), params(card)
        blend(self.weights, jnp.zeros((len(TERMS), 1)))
        patients = jax.jit(embody)(self.params, encode(card, cohort))
        self._rows = [int(np.prod(leaf.shape[:-1])) for leaf in patients]
        self._shapes = [leaf.shape[:-1] for leaf in patients]
        # A row is a patient, so that admitting one reads one stretch of memory.
        self.pool = jnp.concatenate([leaf.reshape(rows, -1) for leaf, rows in zip(patients, self._rows, strict=True)]).T.copy()
        self.single: Any = None  # compiled for one patient, by the single environment
        self.admit = jax.jit(self._admit)
        self.step = jax.jit(self._step, donate_argnums=0)
        self.readmit = jax.jit(self._readmit, donate_argnums=(0, 1))

    def journey(self, row: jax.Array, key: jax.Array) -> Journey:
        """Journeys at their first visit of the pool's patients ``row`` (n,) with chance ``key`` (n,)."""
        return admit(self.scenario, self.params, self.patient(jnp.take(self.pool, row, axis=0).T), key)

    def patient(self, rows: jax.Array) -> Patient:
        """The patients in ``rows`` (numbers of a patient, n), columns of the pool."""
        parts = jnp.split(rows, np.cumsum(self._rows)[:-1])
        return Patient(*(part.reshape(*shape, -1) for part, shape in zip(parts, self._shapes, strict=True)))

    def look(self, journey: Journey) -> tuple[jax.Array, jax.Array]:
        """((F, n) observation, (R, n) action mask)."""
        return observe(self.scenario, self.params, journey), allowed(self.params, journey.state) > 0.5

    def advance(self, journey: Journey, action: jax.Array) -> tuple[Journey, Events, Outcome]:
        """A cycle under ``action`` (n,) int32: the journey after it, what happened, and what it earned."""
        after, events = step(self.scenario, self.params, journey, action)
        terms = reward_terms(self.scenario, self.params, journey, after, events)
        terminated = after.state.alive < 0.5
        truncated = ~terminated & (after.state.cycle >= self.horizon)
        return after, events, Outcome(blend(self.weights, terms), terminated, truncated, terms, after.state.last)

    def replace(self, journey: Journey, seat: Seat, where: jax.Array) -> tuple[Journey, Seat, Journey]:
        """Put the next patients of their seats at ``where``; indices past the end do nothing.

        Returns:
            Journeys, seats, and the new journeys by themselves.
        """
        chosen = Seat(*(jnp.take(value, where, mode="clip") for value in seat))
        chosen = chosen._replace(episode=chosen.episode + jnp.uint32(1))
        fresh = self.journey(*self.draw(chosen))
        journey = jax.tree.map(lambda old, new: old.at[..., where].set(new, mode="drop"), journey, fresh)
        return journey, seat._replace(episode=seat.episode.at[where].set(chosen.episode, mode="drop")), fresh

    def step_autoreset(
        self, journey: Journey, seat: Seat, action: jax.Array
    ) -> tuple[Journey, Seat, jax.Array, jax.Array, Outcome]:
        """Step and replace those whose episode ended, all inside one compiled function; for use in ``lax.scan``.

        Returns:
            Journeys, seats, (F, n) observation and (R, n) mask (a new patient's where an episode ended), outcome.
        """
        journey, _, outcome = self.advance(journey, action)
        n = action.shape[0]
        some = min(n, max(32, n // 16))  # replaced at a time; one turn is enough in most cycles

        def turn(carry: tuple[jax.Array, Journey, Seat]) -> tuple[jax.Array, Journey, Seat]:
            ended, journey, seat = carry
            where = jnp.nonzero(ended, size=some, fill_value=n)[0]
            journey, seat, _ = self.replace(journey, seat, where)
            return ended.at[where].set(False, mode="drop"), journey, seat

        carry = turn((outcome.terminated | outcome.truncated, journey, seat))
        _, journey, seat = jax.lax.while_loop(lambda carry: jnp.any(carry[0]), turn, carry)
        return journey, seat, *self.look(journey), outcome

    def draw(self, seat: Seat) -> tuple[Any, Any]:
        """((n,) pool row, (n,) chance key) of the patient at ``seat``: a pure function of seed and episode."""
        key = mix(seat.stream + seat.episode * np.uint32(0x9E3779B9))
        return (mix(key ^ np.uint32(0x5BD1E995)) % np.uint32(len(self.cohort))).astype(np.int32), key

    def _admit(self, seat: Seat) -> tuple[Journey, jax.Array, jax.Array]:
        journey = self.journey(*self.draw(seat))
        observation, mask = self.look(journey)
        return journey, observation.T, mask.T

    def _step(self, journey: Journey, action: jax.Array) -> tuple[Journey, jax.Array, jax.Array, Outcome]:
        after, _, outcome = self.advance(journey, action)
        observation, mask = self.look(after)
        return after, observation.T, mask.T, outcome

    def _readmit(self, journey: Journey, seat: Seat, where: jax.Array) -> tuple[Journey, Seat, jax.Array, jax.Array]:
        journey, seat, fresh = self.replace(journey, seat, where)
        observation, mask = self.look(fresh)
        return journey, seat, observation.T, mask.T


def stream_of(seeds: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """(n,) uint32 streams of 64-bit seeds (splitmix64), so that neighbouring seeds share nothing."""
    with np.errstate(over="ignore"):
        z = seeds.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((z ^ (z >> np.uint64(31))) >> np.uint64(32)).astype(np.uint32)


def make_engine(
    card: str | os.PathLike[str] | Card,
    cohort: Cohort | str | os.PathLike[str] | None = None,
    weights: Mapping[str, float] | None = None,
    horizon: int | None = None,
) -> Engine:
    """The engine for a card; see :class:`Engine`. Without a cohort of their own, equal engines are shared."""
    loaded = card if isinstance(card, Card) else load_card(card)
    if horizon is not None and horizon < 1:
        raise ValueError(f"an episode needs at least one cycle, not {horizon}")
    blended = {"outcome": loaded.reward.outcome, **(weights or {})}
    length = horizon or loaded.horizon_cycles
    if cohort is None:
        return _shared(loaded, tuple(sorted(blended.items())), length)
    patients = cohort if isinstance(cohort, Cohort) else Cohort.read(cohort, loaded)
    if patients.card_id != loaded.id:
        raise ValueError(f"the cohort holds patients of {patients.card_id!r}, the card is {loaded.id!r}")
    return Engine(loaded, patients, blended, length)


@functools.lru_cache(maxsize=16)
def _shared(card: Card, weights: tuple[tuple[str, float], ...], horizon: int) -> Engine:
    return Engine(card, CausalGenerator(card).sample(POOL, seed=0), dict(weights), horizon)
