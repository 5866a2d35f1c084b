"""The compiled simulator behind every environment of a card.

An engine holds a card's arrays and a pool of patients, and compiles what environments need: ``admit`` (patients of the pool),
``receive`` (any), ``step`` and ``readmit`` hand out observations batch first; the functions they are made of keep the batch last.
Environments with the same card, kind, cohort and weights share one engine, so each function is compiled once.
"""

import functools
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card, load_card
from onco_gym.cards.scenario import params, scenario
from onco_gym.interfaces.dosing import Dosing
from onco_gym.interfaces.kinds import Encounter, Kind, Regimens
from onco_gym.interfaces.workflow import Workflow
from onco_gym.knowledge.panel import Hearing, Panel
from onco_gym.patients import CausalGenerator, Cohort
from onco_gym.patients.traits import encode
from onco_gym.rewards import TERMS, Ledger, Scene, Verdict, blend, card_weights, empty_ledger, hear, record, reward_terms, verdict
from onco_gym.simulator.admit import admit, embody
from onco_gym.simulator.chance import mix
from onco_gym.simulator.state import Journey, Patient
from onco_gym.simulator.step import USUAL, Events, Orders, step

# A single patient's cycle takes a microsecond: handing it to another thread costs twenty. Takes effect if JAX has not started.
jax.config.update("jax_cpu_enable_async_dispatch", False)

POOL = 16_384
"""Patients in the default cohort of an environment."""

PERSONAL = frozenset({"outcome", "guideline", "carbon"})
"""Terms that belong to a single patient."""

KINDS: Mapping[str, Callable[["Engine"], Kind]] = {"regimen": Regimens, "dose": Dosing, "workflow": Workflow}
"""Kinds of environment by name."""


class Seat(NamedTuple):
    """One environment's place in its sequence of patients."""

    stream: Any  # (n,) uint32, from the seed; NumPy's or JAX's
    episode: Any  # (n,) uint32, episodes since the seed


class Outcome(NamedTuple):
    """What a step came to."""

    reward: jax.Array  # (n,)
    terminated: jax.Array  # (n,) bool
    truncated: jax.Array  # (n,) bool
    terms: jax.Array  # (terms, n)
    given: jax.Array  # (n,) int32 regimen given
    verdict: Verdict  # what the panel says of it
    lived: jax.Array  # (n,) cycles lived
    severe: jax.Array  # (n,) 1 where a grade 3+ event happened
    cost: jax.Array  # (n,) USD of tests that were ordered


class Engine:
    """See the module.

    Args:
        card: a validated card.
        cohort: the patients to draw from.
        weights: reward weights by term.
        horizon: cycles until an episode is truncated.
        kind: what an action is; one of :data:`KINDS`.
        terms: the terms to compute; the others are 0, and so is what is reported of them.
    """

    def __init__(
        self,
        card: Card,
        cohort: Cohort,
        weights: Mapping[str, float],
        horizon: int,
        kind: str = "regimen",
        terms: Collection[str] = tuple(TERMS),
    ) -> None:
        self.card, self.cohort, self.weights, self.horizon = card, cohort, dict(weights), horizon
        self.scenario, self.params, self.panel = scenario(card), params(card), Panel(card)
        self.terms = frozenset(terms)
        self.kind_name = kind
        self.kind: Kind = KINDS[kind](self)
        patients = jax.jit(embody)(self.params, encode(card, cohort))
        self._rows = [int(np.prod(leaf.shape[:-1])) for leaf in patients]
        self._shapes = [leaf.shape[:-1] for leaf in patients]
        # A row is a patient, so that admitting one reads one stretch of memory.
        self.pool = jnp.concatenate([leaf.reshape(rows, -1) for leaf, rows in zip(patients, self._rows, strict=True)]).T.copy()
        self.single: Any = None  # compiled for one patient, by the single environment
        self.admit = jax.jit(self._admit)
        self.receive = jax.jit(self._receive)
        self.step = jax.jit(self._step, donate_argnums=(0, 1))
        self.readmit = jax.jit(self._readmit, donate_argnums=(0, 1))

    def begin(self, row: jax.Array, key: jax.Array) -> Encounter:
        """The first visit of the pool's patients ``row`` (n,) with chance ``key`` (n,)."""
        return self.first_visit(self.patient(jnp.take(self.pool, row, axis=0).T), key)

    def first_visit(self, patient: Patient, key: jax.Array) -> Encounter:
        """The first visit of patients with chance ``key`` (n,)."""
        return self.kind.begin(self, admit(self.scenario, self.params, patient, key))

    def patient(self, rows: jax.Array) -> Patient:
        """The patients in ``rows`` (numbers of a patient, n), columns of the pool."""
        parts = jnp.split(rows, np.cumsum(self._rows)[:-1])
        return Patient(*(part.reshape(*shape, -1) for part, shape in zip(parts, self._shapes, strict=True)))

    def look(self, encounter: Encounter) -> tuple[jax.Array, jax.Array]:
        """((F, n) observation, (mask size, n) action mask)."""
        return self.kind.look(self, encounter)

    def ledger(self) -> Ledger:
        """An empty ledger of decisions, for the fairness term."""
        return empty_ledger(self.scenario)

    def cycle(
        self, journey: Journey, ledger: Ledger, decision: jax.Array, orders: Orders = USUAL
    ) -> tuple[Journey, Ledger, Outcome]:
        """A cycle under ``decision`` (n,) int32: the journey and the ledger after it, and what it came to."""
        after, events = step(self.scenario, self.params, journey, decision, orders=orders)
        given = after.state.last
        said, surprise = self.unjudged(given)
        if self.terms & {"guideline", "fairness"}:
            # A pause is judged as one, also while what is left of the drug still acts.
            judged = given if orders.dose is None else jnp.where(orders.dose > 0, given, self.scenario.holiday)
            said = verdict(self.panel, self.hear(journey), judged)
        if "fairness" in self.terms:
            ledger, surprise = record(self.scenario, ledger, journey, said.first, given)
        terms = reward_terms(self.scenario, self.params, Scene(journey, after, orders, events, said, surprise), self.terms)
        terminated = after.state.alive < 0.5
        truncated = ~terminated & (after.state.cycle >= self.horizon)
        reward = blend(self.weights, terms)
        made = (events.lived, events.severe, jnp.zeros_like(reward))
        return after, ledger, Outcome(reward, terminated, truncated, terms, given, said, *made)

    def hear(self, journey: Journey) -> Hearing:
        """Put patients under way before the panel."""
        return hear(self.panel, self.scenario, self.params, journey)

    def personal(self, hearing: Hearing, before: Journey, after: Journey, events: Events) -> tuple[jax.Array, Verdict]:
        """((terms, n) what a cycle was worth to each patient: the fairness term, which belongs to none, is 0; the verdict)."""
        said = verdict(self.panel, hearing, after.state.last)
        nobody = jnp.zeros((len(self.scenario.groups), *events.lived.shape))
        scene = Scene(before, after, USUAL, events, said, nobody)
        return reward_terms(self.scenario, self.params, scene, PERSONAL), said

    def unjudged(self, given: jax.Array) -> tuple[Verdict, jax.Array]:
        """What stands for a verdict and a surprise where nobody asked for them."""
        zero = jnp.zeros(given.shape, jnp.float32)
        none = jnp.zeros((len(self.scenario.regimens), *given.shape), bool)
        return Verdict(given * 0, zero, zero, given * 0, none), jnp.zeros((len(self.scenario.groups), *given.shape))

    def advance(self, encounter: Encounter, ledger: Ledger, action: jax.Array) -> tuple[Encounter, Ledger, Outcome]:
        """A step under ``action`` (n, ...)."""
        return self.kind.advance(self, encounter, ledger, action)

    def replace(self, encounter: Encounter, seat: Seat, where: jax.Array) -> tuple[Encounter, Seat, Encounter]:
        """Put the next patients of their seats at ``where``; indices past the end do nothing.

        Returns:
            Encounters, seats, and the new encounters by themselves.
        """
        chosen = Seat(*(jnp.take(value, where, mode="clip") for value in seat))
        chosen = chosen._replace(episode=chosen.episode + jnp.uint32(1))
        fresh = self.begin(*self.draw(chosen))
        encounter = jax.tree.map(lambda old, new: old.at[..., where].set(new, mode="drop"), encounter, fresh)
        return encounter, seat._replace(episode=seat.episode.at[where].set(chosen.episode, mode="drop")), fresh

    def step_autoreset(
        self, encounter: Encounter, ledger: Ledger, seat: Seat, action: jax.Array
    ) -> tuple[Encounter, Ledger, Seat, jax.Array, jax.Array, Outcome]:
        """Step and replace those whose episode ended, all inside one compiled function; for use in ``lax.scan``.

        Returns:
            Encounters, ledger, seats, (F, n) observation and (mask size, n) mask (a new patient's where an episode ended),
            outcome.
        """
        encounter, ledger, outcome = self.advance(encounter, ledger, action)
        n = action.shape[0]
        some = min(n, max(32, n // 16))  # replaced at a time; one turn is enough in most cycles

        def turn(carry: tuple[jax.Array, Encounter, Seat]) -> tuple[jax.Array, Encounter, Seat]:
            ended, encounter, seat = carry
            where = jnp.nonzero(ended, size=some, fill_value=n)[0]
            encounter, seat, _ = self.replace(encounter, seat, where)
            return ended.at[where].set(False, mode="drop"), encounter, seat

        carry = turn((outcome.terminated | outcome.truncated, encounter, seat))
        _, encounter, seat = jax.lax.while_loop(lambda carry: jnp.any(carry[0]), turn, carry)
        return encounter, ledger, seat, *self.look(encounter), outcome

    def draw(self, seat: Seat) -> tuple[Any, Any]:
        """((n,) pool row, (n,) chance key) of the patient at ``seat``: a pure function of seed and episode."""
        key = mix(seat.stream + seat.episode * np.uint32(0x9E3779B9))
        return (mix(key ^ np.uint32(0x5BD1E995)) % np.uint32(len(self.cohort))).astype(np.int32), key

    def options(self, journey: Journey) -> jax.Array:
        """(R, n) bool: the regimens that at least one expert of the panel accepts now."""
        return self.panel.options(jnp, self.hear(journey))

    def _admit(self, seat: Seat) -> tuple[Encounter, jax.Array, jax.Array, jax.Array]:
        encounter = self.begin(*self.draw(seat))
        observation, mask = self.look(encounter)
        return encounter, observation.T, mask.T, self.options(encounter.journey).T

    def _receive(self, patient: Patient, key: jax.Array) -> tuple[Encounter, jax.Array, jax.Array]:
        encounter = self.first_visit(patient, key)
        observation, mask = self.look(encounter)
        return encounter, observation.T, mask.T

    def _step(
        self, encounter: Encounter, ledger: Ledger, action: jax.Array
    ) -> tuple[Encounter, Ledger, jax.Array, jax.Array, Outcome]:
        after, ledger, outcome = self.advance(encounter, ledger, action)
        observation, mask = self.look(after)
        return after, ledger, observation.T, mask.T, outcome

    def _readmit(self, encounter: Encounter, seat: Seat, where: jax.Array) -> tuple[Encounter, Seat, jax.Array, jax.Array]:
        encounter, seat, fresh = self.replace(encounter, seat, where)
        observation, mask = self.look(fresh)
        return encounter, seat, observation.T, mask.T


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
    kind: str = "regimen",
    terms: Collection[str] | None = None,
) -> Engine:
    """The engine for a card; see :class:`Engine`. Without a cohort of their own, equal engines are shared.

    Args:
        card: the name of a shipped card, the path of a card file, or a loaded card.
        cohort: patients, or the path of a cohort file; by default :data:`POOL` patients of the card's own graph, seed 0.
        weights: changes to the card's reward weights.
        horizon: cycles until truncation; by default the card's.
        kind: one of :data:`KINDS`.
        terms: the reward terms to compute; by default all.
    """
    loaded = card if isinstance(card, Card) else load_card(card)
    if horizon is not None and horizon < 1:
        raise ValueError(f"an episode needs at least one cycle, not {horizon}")
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {list(KINDS)}")
    unknown = set(terms or ()) - set(TERMS)
    if unknown:
        raise ValueError(f"terms name {sorted(unknown)}, expected some of {list(TERMS)}")
    blended, length = card_weights(loaded, weights), horizon or loaded.horizon_cycles
    computed = tuple(TERMS) if terms is None else tuple(sorted(set(terms)))
    if cohort is None:
        return _shared(loaded, tuple(sorted(blended.items())), length, kind, computed)
    patients = cohort if isinstance(cohort, Cohort) else Cohort.read(cohort, loaded)
    if patients.card_id != loaded.id:
        raise ValueError(f"the cohort holds patients of {patients.card_id!r}, the card is {loaded.id!r}")
    return Engine(loaded, patients, blended, length, kind, computed)


@functools.lru_cache(maxsize=32)
def _shared(card: Card, weights: tuple[tuple[str, float], ...], horizon: int, kind: str, terms: tuple[str, ...]) -> Engine:
    return Engine(card, _default_cohort(card), dict(weights), horizon, kind, terms)


@functools.lru_cache(maxsize=8)
def _default_cohort(card: Card) -> Cohort:
    return CausalGenerator(card).sample(POOL, seed=0)
