"""The compiled simulator behind every environment of a card.

An engine holds a card's arrays and a cohort of patients, and compiles what environments need. ``admit``, ``receive``, ``step``
and ``readmit`` return observations batch first; the functions behind them keep the batch last. Environments with the
same card, kind, cohort and weights share one engine, so each function is compiled once.
"""

import functools
import importlib
import os
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onco_gym.cards import Card, load_card
from onco_gym.cards.scenarios import params, scenario
from onco_gym.foundation.arrays import IN_PLACE, compiler_options
from onco_gym.interfaces.arguments import (
    EngineError,
    check_secret,
    check_split,
    checked_decide,
    checked_horizon,
    checked_terms,
    checked_weights,
)
from onco_gym.interfaces.decisions import LONGEST, is_decision_point
from onco_gym.interfaces.kinds import Encounter, Kind
from onco_gym.interfaces.origins import Origin, Seat, seeds_from
from onco_gym.interfaces.registry import KINDS, environment_id, find_environment
from onco_gym.interfaces.stamp import Stamp
from onco_gym.knowledge.panel import Hearing, Panel
from onco_gym.patients import Cohort, Generator, default_generator, draw_split, read_cohort
from onco_gym.patients.traits import encode
from onco_gym.rewards import (
    TERMS,
    GroupDivergence,
    Scene,
    Tally,
    Verdict,
    blend,
    count_decisions,
    empty_tally,
    even_handedness,
    group_divergence,
    hear,
    reward_terms,
    verdict,
)
from onco_gym.rewards.carbon import carbon_kg
from onco_gym.simulator.admission import admit, embody
from onco_gym.simulator.chance import OPEN, SEALED, chacha, derived, mix
from onco_gym.simulator.state import Journey, Patient
from onco_gym.simulator.transition import USUAL_ORDERS, Events, Orders, step
from onco_gym.version import __version__

# A single patient's cycle takes a microsecond, and handing it to another thread takes twenty. No effect once JAX has started.
jax.config.update("jax_cpu_enable_async_dispatch", False)

PERSONAL = frozenset({"outcome", "guideline", "carbon"})
"""Reward terms that belong to a single patient."""

_FAIRNESS = list(TERMS).index("fairness")
OWN = "own"
"""The split of a cohort of your own."""


class Outcome(NamedTuple):
    """The outcome of a step."""

    reward: jax.Array  # (n,)
    terminated: jax.Array  # (n,) bool
    truncated: jax.Array  # (n,) bool
    terms: jax.Array  # (terms, n)
    given: jax.Array  # (n,) int32 regimen given
    verdict: Verdict  # the panel's verdict on it
    lived: jax.Array  # (n,) cycles lived
    severe: jax.Array  # (n,) 1 where a grade 3+ event happened
    carbon_kg: jax.Array  # (n,) kg CO2e
    cost: jax.Array  # (n,) USD of tests that were ordered
    change: jax.Array  # (n,) deepest change of the sum of diameters from the line's baseline, as a share
    cycles: jax.Array  # (n,) int32 cycles that passed


class Moved(NamedTuple):
    """A step of n environments in few arrays: each array that leaves compiled code costs time.

    The first of those whose episode ended are replaced by new patients, as many as :func:`at_once` says.
    """

    observation: jax.Array  # (F, n) after the step, of new patients where they have come
    mask: jax.Array  # (mask size, n)
    figures: jax.Array  # (FIGURES, n) float32
    options: jax.Array  # (R, n) bool, what the panel accepts; (0, n) if it was not asked
    last: jax.Array  # (some, F) last observations of those who were replaced
    last_mask: jax.Array  # (some, mask size)


FIGURES = ("reward", "terminated", "truncated", "given", "cycles", "carbon_kg", "cost", "code", "share", *TERMS)
"""The rows of :attr:`Moved.figures`."""


class Engine:
    """The compiled environments of one card, kind, cohort and blend of rewards. :func:`make_engine` makes one.

    Args:
        card: a validated card.
        cohort: the patients to draw from; by default those of the split.
        weights: reward weights by term.
        horizon: cycles until an episode is truncated.
        kind: what an action is; a key of :data:`onco_gym.interfaces.registry.KINDS`.
        terms: the reward terms to compute; the others are 0, and so is what is reported about them.
        generator: draws patients; by default the card's causal graph.
        split: a key of :data:`onco_gym.patients.SPLITS`; without meaning for a cohort of your own.
        secret: 32 bytes that patients and chance are drawn with, if nobody is to foresee them.
        decide: when an agent decides; see :mod:`onco_gym.interfaces.decisions`.

    Attributes:
        split: the split of the patients; :data:`OWN` for a cohort of your own.
    """

    def __init__(
        self,
        card: Card,
        cohort: Cohort | None,
        weights: Mapping[str, float],
        horizon: int,
        kind: str = "regimen",
        terms: Collection[str] = tuple(TERMS),
        generator: Generator | None = None,
        split: str = "train",
        secret: bytes | None = None,
        decide: str = "events",
    ) -> None:
        self._made_from: dict[str, Any] = {
            **{"environment": card, "cohort": cohort, "weights": dict(weights), "horizon": horizon, "kind": kind},
            **{"terms": tuple(terms), "generator": generator, "split": split, "secret": secret, "decide": decide},
        }
        self.decide = decide
        self._family = {split: self}  # the same engine on other splits
        self._ways = {decide: self}  # the same engine with other ways to decide
        self._secret = _words(secret)
        self.generator = default_generator(card) if generator is None else generator
        self.split = split if cohort is None else OWN
        self.cohort = draw_split(self.generator, split) if cohort is None else cohort
        self.card, self.weights, self.horizon = card, dict(weights), horizon
        self.scenario, self.params, self.panel = scenario(card), params(card), Panel(card)
        self.terms = frozenset(terms)
        module, _, name = KINDS[kind].entry_point.partition(":")
        self.kind: Kind = getattr(importlib.import_module(module), name)(self)
        self.pool = self._pooled()
        self.singles: dict[int, Any] = {}  # compiled for one patient, by the single environment
        self.step = jax.jit(self._step, donate_argnums=(0, 1))
        self._compile(jax.jit(self._receive))
        self._bind()

    def _pooled(self) -> jax.Array:
        """(patients, numbers) the cohort. Each row is a patient, so that admitting one reads contiguous memory."""
        patients = [np.asarray(leaf) for leaf in jax.jit(embody)(self.params, encode(self.card, self.cohort))]
        self._rows = [int(np.prod(leaf.shape[:-1])) for leaf in patients]
        self._shapes = [leaf.shape[:-1] for leaf in patients]
        n = len(self.cohort)
        columns = np.concatenate([leaf.reshape(rows, n) for leaf, rows in zip(patients, self._rows, strict=True)])
        return jnp.asarray(np.ascontiguousarray(columns.T))

    def _compile(self, receive: Any) -> None:
        """Everything that is compiled and needs the pool. Only ``receive`` does not depend on its size and on the secret."""
        self._compiled = (
            jax.jit(self._admit),
            receive,
            jax.jit(self._readmit, donate_argnums=(1, 2)),
            jax.jit(self._move, donate_argnums=(1, 3), compiler_options=compiler_options(IN_PLACE)),
        )

    def _bind(self) -> None:
        """Bind the compiled functions to the pool. It is an argument of theirs, so that all splits share them."""
        bound = (functools.partial(function, self.pool) for function in self._compiled)
        self.admit, self.receive, self.readmit, self.move = bound

    def deciding(self, decide: str) -> "Engine":
        """The same engine with another answer to when an agent decides."""
        if decide not in self._ways:
            self._ways[decide] = make_engine(**{**self._made_from, "decide": decide})
        return self._ways[decide]

    def on(self, split: str) -> "Engine":
        """The same engine on the patients of another split. An engine with a cohort of its own stays as it is.

        Raises:
            EngineError: if there is no such split.
        """
        check_split(split)
        if self.split == OWN:
            return self
        if split not in self._family:
            self._family[split] = self._with(draw_split(self.generator, split), split, {"split": split})
        return self._family[split]

    def among(self, cohort: Cohort, secret: bytes | None = None) -> "Engine":
        """The same engine with other patients of the same card, and with chance from ``secret``. Rollouts compile nothing again.

        Args:
            cohort: the patients.
            secret: 32 bytes, if nobody is to foresee them; see :func:`make_engine`.
        """
        check_secret(secret)
        other = self._with(cohort, OWN, {"cohort": cohort, "secret": secret})
        other._family, other._secret = {OWN: other}, _words(secret)
        other._compile(self._compiled[1])
        other._bind()
        return other

    def _with(self, cohort: Cohort, split: str, made_from: dict[str, Any]) -> "Engine":
        """A copy with other patients."""
        other = object.__new__(Engine)
        other.__dict__.update({name: value for name, value in self.__dict__.items() if name != "stamp"})
        other.split, other.cohort, other._made_from = split, cohort, {**self._made_from, **made_from}
        other._ways = {self.decide: other}
        other.pool = other._pooled()
        other._bind()
        return other

    def computing(self, terms: Collection[str]) -> "Engine":
        """The same engine with other reward terms; it shares everything else and is meant for use inside compiled functions."""
        other = object.__new__(Engine)
        other.__dict__.update(self.__dict__, terms=frozenset(terms), _ways={self.decide: other})
        return other

    def __repr__(self) -> str:
        return f"Engine({self.id}, {len(self.cohort):,} patients, horizon {self.horizon})"

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(make_engine, **self._made_from), ()  # compiled functions stay behind; a worker compiles its own

    @property
    def id(self) -> str:
        """The id of the environment with one reward: ``onco_gym/NSCLC-v0``."""
        return environment_id(self.card.id, self.kind.name)

    @property
    def judges(self) -> bool:
        """Whether the panel judges every decision, as the guideline and fairness terms need."""
        return bool(self.terms & {"guideline", "fairness"})

    @property
    def key_size(self) -> int:
        """Words in the keys of its episodes."""
        return OPEN if self._secret is None else SEALED

    @functools.cached_property
    def stamp(self) -> Stamp:
        """What results of this engine depend on, for files of results."""
        return Stamp(
            environment=self.id,
            card_digest=self.scenario.digest,
            split=self.split,
            cohort_digest=self.cohort.digest,
            weights=self.weights,
            horizon=self.horizon,
            decide=self.decide,
            terms=tuple(sorted(self.terms)),
            version=__version__,
        )

    def begin(self, origin: Origin) -> Encounter:
        """The first visit of patients of the cohort."""
        return self._begin(self.pool, origin)

    def _begin(self, pool: jax.Array, origin: Origin) -> Encounter:
        return self.first_visit(self.unpacked(jnp.take(pool, origin.row, axis=0).T), origin.key)

    def first_visit(self, patient: Patient, key: jax.Array) -> Encounter:
        """The first visit of any patients with chance ``key`` (words, n)."""
        return self.kind.begin(self, admit(self.scenario, self.params, patient, key))

    def patients(self, row: Any = None) -> Patient:
        """The patients at ``row`` (n,) of the cohort, ready to be simulated, batch last; by default all of them."""
        return self.unpacked((self.pool if row is None else jnp.take(self.pool, row, axis=0)).T)

    def unpacked(self, columns: jax.Array) -> Patient:
        """Patients from columns (numbers per patient, n): the rows of :attr:`pool`, transposed."""
        parts = jnp.split(columns, np.cumsum(self._rows)[:-1])
        return Patient(*(part.reshape(*shape, columns.shape[1]) for part, shape in zip(parts, self._shapes, strict=True)))

    def look(self, encounter: Encounter) -> tuple[jax.Array, jax.Array]:
        """((F, n) observation, (mask size, n) action mask)."""
        return self.kind.look(self, encounter)

    def tally(self) -> Tally:
        """An empty tally of decisions, for the fairness term."""
        return empty_tally(self.scenario)

    def cycle(
        self, journey: Journey, tally: Tally, decision: jax.Array, orders: Orders = USUAL_ORDERS
    ) -> tuple[Journey, Tally, Outcome]:
        """Simulate a cycle under ``decision`` (n,) int32. Returns the journey and the tally after it, and the outcome."""
        after, events = step(self.scenario, self.params, journey, decision, orders=orders)
        given = after.state.last
        said, surprise = self.unjudged(given)
        if self.judges:
            # A pause is judged as a pause, even while what is left of the drug still acts.
            judged = given if orders.dose is None else jnp.where(orders.dose > 0, given, self.scenario.holiday)
            said = verdict(self.panel, self.hear(journey), judged)
        if "fairness" in self.terms:
            tally, surprise = count_decisions(self.scenario, tally, journey, said.first, given)
        scene = Scene(journey, after, orders, events, said, surprise)
        terms = reward_terms(self.scenario, self.params, scene, self.terms)
        terminated = after.state.alive < 0.5
        truncated = ~terminated & (after.state.cycle >= self.horizon)
        reward = blend(self.weights, terms)
        nothing = jnp.zeros_like(reward)
        kg = carbon_kg(self.scenario, self.params, scene) if "carbon" in self.terms else nothing
        change = after.state.diameter / after.state.baseline - 1
        made = (events.lived, events.severe, kg, nothing, change, jnp.ones_like(given))
        return after, tally, Outcome(reward, terminated, truncated, terms, given, said, *made)

    def hear(self, journey: Journey) -> Hearing:
        """Put patients before the panel."""
        return hear(self.panel, self.scenario, self.params, journey)

    def personal(self, hearing: Hearing, before: Journey, after: Journey, events: Events) -> tuple[jax.Array, Verdict]:
        """((terms, n) reward terms of a cycle, the verdict). The fairness term is 0, because it belongs to no single patient."""
        said = verdict(self.panel, hearing, after.state.last)
        nobody = jnp.zeros((len(self.scenario.groups), *events.lived.shape))
        scene = Scene(before, after, USUAL_ORDERS, events, said, nobody)
        return reward_terms(self.scenario, self.params, scene, PERSONAL), said

    def unjudged(self, given: jax.Array) -> tuple[Verdict, jax.Array]:
        """Placeholders for a verdict and a surprise that are not computed."""
        zero = jnp.zeros(given.shape, jnp.float32)
        none = jnp.zeros((len(self.scenario.regimens), *given.shape), bool)
        return Verdict(given * 0, zero, zero, given * 0, none), jnp.zeros((len(self.scenario.groups), *given.shape))

    def advance(
        self, encounter: Encounter, tally: Tally, action: jax.Array, cycles: jax.Array | None = None
    ) -> tuple[Encounter, Tally, Outcome]:
        """A step under ``action`` (n, ...): one cycle, or as many as there are until the next decision point.

        With ``cycles`` (n,) it takes exactly so many, unless the episode ends before.
        """
        encounter, plan = self.kind.order(self, encounter, action)
        interval = self.kind.interval(plan)
        if interval is None and cycles is None and self.decide == "cycles":
            encounter, tally, outcome = self.kind.cycle(self, encounter, tally, plan, 0)
        else:
            most = LONGEST if interval is None else interval
            stops = self.decide == "events" and cycles is None
            encounter, tally, outcome = self._until_visit(encounter, tally, plan, most if cycles is None else cycles, stops)
        return self.kind.read(self, encounter, plan), tally, outcome

    def _until_visit(
        self, encounter: Encounter, tally: Tally, plan: Any, most: jax.Array | int, stops: bool
    ) -> tuple[Encounter, Tally, Outcome]:
        """Simulate at most ``most`` cycles; if it ``stops``, until each patient's next decision point."""

        def visit(number: jax.Array | int, before: Encounter, after: Encounter, outcome: Outcome) -> jax.Array:
            """(n,) whether cycle ``number`` led to a visit."""
            due = outcome.terminated | outcome.truncated | (number + 1 >= most)
            if stops:
                states = before.journey.state, after.journey.state
                due = due | is_decision_point(self.params, *states, self.kind.planned(plan))
                news = self.kind.news(before, after)
                due = due if news is None else due | news
            return due

        # Steps differ in length, and rollouts go on until the last patient reaches the horizon. What is past it does not count.
        state = encounter.journey.state
        state = state._replace(alive=jnp.where(state.cycle >= self.horizon, 0.0, state.alive))
        first = encounter._replace(journey=encounter.journey._replace(state=state))
        alone = self.computing(self.terms - {"fairness"})  # to go on is not another decision: fairness is added below

        def turn(carry: tuple[jax.Array, jax.Array, Encounter, Outcome]) -> tuple[jax.Array, jax.Array, Encounter, Outcome]:
            number, done, before, sofar = carry
            after, _, now = self.kind.cycle(alone, before, tally, plan, number)
            decided = jax.tree.map(lambda old, new: jnp.where(number == 0, new, old), sofar, now)
            both = decided._replace(
                terms=sofar.terms + now.terms,
                terminated=now.terminated,
                truncated=now.truncated,
                lived=sofar.lived + now.lived,
                severe=jnp.maximum(sofar.severe, now.severe),
                carbon_kg=sofar.carbon_kg + now.carbon_kg,
                change=jnp.where(number == 0, now.change, jnp.minimum(sofar.change, now.change)),
                cycles=sofar.cycles + 1,
            )
            ended = done | visit(number, before, after, now)
            stay = functools.partial(jax.tree.map, lambda old, new: jnp.where(done, old, new))
            journey = before.journey._replace(state=stay(before.journey.state, after.journey.state))
            return number + 1, ended, Encounter(journey, stay(before.memory, after.memory)), stay(sofar, both)

        carry = jnp.int32(0), jnp.zeros(state.alive.shape, bool), first, self._nothing_yet(len(state.alive))
        *_, after, outcome = jax.lax.while_loop(lambda carry: ~jnp.all(carry[1]), turn, carry)
        if "fairness" in self.terms:
            tally, surprise = count_decisions(self.scenario, tally, first.journey, outcome.verdict.first, outcome.given)
            outcome = outcome._replace(terms=outcome.terms.at[_FAIRNESS].set(even_handedness(surprise)))
        return after, tally, outcome._replace(reward=blend(self.weights, outcome.terms))

    def _nothing_yet(self, n: int) -> Outcome:
        """The outcome before the first cycle."""
        zero, none, no = jnp.zeros(n), jnp.zeros(n, jnp.int32), jnp.zeros(n, bool)
        terms = jnp.zeros((len(TERMS), n))
        return Outcome(zero, no, no, terms, none, self.unjudged(none)[0], zero, zero, zero, zero, zero, none)

    def _replace(self, pool: jax.Array, encounter: Encounter, seat: Seat, where: jax.Array) -> tuple[Encounter, Seat, Encounter]:
        """Replace the patients at ``where`` with the next ones of their seats. Indices past the end have no effect.

        Returns:
            All encounters, all seats, and the new encounters alone.
        """
        chosen = Seat(*(jnp.take(value, where, axis=-1, mode="clip") for value in seat))
        chosen = chosen._replace(episode=chosen.episode + jnp.uint32(1))
        fresh = self._begin(pool, self.draw(chosen))
        encounter = jax.tree.map(lambda old, new: old.at[..., where].set(new, mode="drop"), encounter, fresh)
        return encounter, seat._replace(episode=seat.episode.at[where].set(chosen.episode, mode="drop")), fresh

    def _replace_ended(self, encounter: Encounter, seat: Seat, ended: jax.Array) -> tuple[Encounter, Seat]:
        """Replace the patients who ``ended`` (n,), some at a time."""

        def turn(carry: tuple[jax.Array, Encounter, Seat]) -> tuple[jax.Array, Encounter, Seat]:
            ended, encounter, seat = carry
            where = _places(ended)
            encounter, seat, _ = self._replace(self.pool, encounter, seat, where)
            return ended.at[where].set(False, mode="drop"), encounter, seat

        _, encounter, seat = jax.lax.while_loop(lambda carry: jnp.any(carry[0]), turn, (ended, encounter, seat))
        return encounter, seat

    def step_autoreset(
        self, encounter: Encounter, tally: Tally, seat: Seat, action: jax.Array
    ) -> tuple[Encounter, Tally, Seat, jax.Array, jax.Array, Outcome]:
        """Step and replace patients whose episode ended, inside one compiled function. For use in ``lax.scan``.

        Returns:
            Encounters, tally, seats, (F, n) observation and (mask size, n) mask (a new patient's where an episode ended),
            outcome.
        """
        encounter, tally, outcome = self.advance(encounter, tally, action)
        ended = outcome.terminated | outcome.truncated
        encounter, seat = self._replace_ended(encounter, seat, ended)
        return encounter, tally, seat, *self.look(encounter), outcome

    def draw(self, seat: Seat) -> Origin:
        """The patient and the chance at ``seat``: a pure function of seed, episode and, if there is one, the secret."""
        if self._secret is None:
            key = derived(seat.stream, seat.episode)
            pick = mix(key[0] ^ np.uint32(0x5BD1E995))
        else:
            block = chacha(self._secret, jnp.zeros(seat.episode.shape, jnp.uint32), (*seat.stream, seat.episode))
            key, pick = jnp.stack(block[:SEALED]), block[SEALED]
        return Origin((pick % np.uint32(len(self.cohort))).astype(np.int32), key)

    def origins(self, n: int, seed: int = 0) -> Origin:
        """The origins of ``n`` episodes. Episode ``i`` begins as after ``reset(seed=seed + i)``.

        Raises:
            EngineError: if ``n`` is below 1, or a seed is not from 0 to 2**64 - 1.
        """
        origin = self.draw(Seat.first(seeds_from(seed, n)))
        return Origin(np.asarray(origin.row, np.int32), np.asarray(origin.key, np.uint32))

    def options(self, journey: Journey) -> jax.Array:
        """(R, n) bool: the regimens that at least one expert of the panel accepts now."""
        return self.panel.options(jnp, self.hear(journey))

    def _admit(self, pool: jax.Array, seat: Seat) -> tuple[Encounter, jax.Array, jax.Array, jax.Array]:
        encounter = self._begin(pool, self.draw(seat))
        observation, mask = self.look(encounter)
        return encounter, observation.T, mask.T, self.options(encounter.journey).T

    def _receive(self, pool: jax.Array, origin: Origin) -> tuple[Encounter, jax.Array, jax.Array]:
        encounter = self._begin(pool, origin)
        observation, mask = self.look(encounter)
        return encounter, observation.T, mask.T

    def _step(
        self, encounter: Encounter, tally: Tally, action: jax.Array
    ) -> tuple[Encounter, Tally, jax.Array, jax.Array, Outcome]:
        after, tally, outcome = self.advance(encounter, tally, action)
        observation, mask = self.look(after)
        return after, tally, observation.T, mask.T, outcome

    def _readmit(
        self, pool: jax.Array, encounter: Encounter, seat: Seat, where: jax.Array
    ) -> tuple[Encounter, Seat, jax.Array, jax.Array, jax.Array]:
        encounter, seat, fresh = self._replace(pool, encounter, seat, where)
        observation, mask = self.look(fresh)
        return encounter, seat, observation.T, mask.T, self.options(fresh.journey).T

    def _move(
        self, pool: jax.Array, encounter: Encounter, tally: Tally, seat: Seat, action: jax.Array
    ) -> tuple[Encounter, Tally, Seat, Moved]:
        after, tally, outcome = self.advance(encounter, tally, action)
        ended = outcome.terminated | outcome.truncated
        where = _places(ended)
        last, last_mask = self.look(jax.tree.map(lambda leaf: jnp.take(leaf, where, axis=-1, mode="clip"), after))
        after, seat, _ = self._replace(pool, after, seat, where)
        said = outcome.verdict
        rows = [outcome.reward, outcome.terminated, outcome.truncated, outcome.given, outcome.cycles]
        rows += [outcome.carbon_kg, outcome.cost, said.code, said.share, *outcome.terms]
        figures = jnp.stack([row.astype(jnp.float32) for row in rows])
        options = said.options if self.judges else said.options[:0]
        return after, tally, seat, Moved(*self.look(after), figures, options, last.T, last_mask.T)

    def nobody(self, n: int) -> Encounter:
        """Room for ``n`` patients, all dead."""
        row, key = jax.ShapeDtypeStruct((1,), np.int32), jax.ShapeDtypeStruct((self.key_size, 1), np.uint32)
        one = jax.eval_shape(self.begin, Origin(row, key))
        return jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape[:-1], n), leaf.dtype), one)


class Tallied:
    """The part of an environment that keeps the tally of decisions behind the fairness term."""

    engine: Engine
    _tally: Tally

    def fairness(self) -> dict[str, GroupDivergence]:
        """The divergence in the tally of decisions, by protected attribute; see :mod:`onco_gym.rewards.fairness`."""
        return group_divergence(self.engine.scenario, self._tally)

    def reset_fairness(self) -> None:
        """Start a new tally of decisions."""
        self._tally = self.engine.tally()


def _words(secret: bytes | None) -> tuple[np.uint32, ...] | None:
    return None if secret is None else tuple(np.frombuffer(secret, "<u4"))


def _places(ended: jax.Array) -> jax.Array:
    """(some,) the places of the first of those who ``ended`` (n,); past the end where there are no more."""
    return jnp.nonzero(ended, size=at_once(len(ended)), fill_value=len(ended))[0]


def at_once(n: int) -> int:
    """How many of ``n`` patients are replaced at a time: enough for most steps."""
    return min(n, max(32, n // 16))


def batch_size(n: int) -> int:
    """The size of the batch in which ``n`` patients are simulated together: 256, 384, 512, 768, 1024, and so on.

    Every size of batch is compiled anew, which takes longer than most simulations. With few sizes, little is compiled.
    """
    power = 256 << max(0, (n - 1).bit_length() - 8)
    return power if n <= 256 or n > power * 3 // 4 else power * 3 // 4


def make_engine(
    environment: str | os.PathLike[str] | Card,
    cohort: Cohort | str | os.PathLike[str] | None = None,
    weights: Mapping[str, float] | None = None,
    horizon: int | None = None,
    kind: str | None = None,
    terms: Collection[str] | None = None,
    generator: Generator | None = None,
    split: str = "train",
    secret: bytes | None = None,
    decide: str | None = None,
) -> Engine:
    """The engine behind an environment; see :class:`Engine`. Without a cohort of their own, equal engines are shared.

    Args:
        environment: an id (``onco_gym/NSCLC-Dose-v0``) or its short form (``NSCLC-Dose``), the name of a shipped card
            (``nsclc``), the path of a card file, or a loaded card.
        cohort: patients, or the path of a cohort file; by default those of the split.
        weights: changes to the card's reward weights.
        horizon: cycles until truncation; by default the card's.
        kind: for a card, what an action is: ``"regimen"`` (the default), ``"dose"`` or ``"workflow"``.
        terms: the reward terms to compute; by default all.
        generator: draws patients; by default the card's causal graph.
        split: ``"train"``, ``"validation"`` or ``"test"``: nobody is in two of them.
        secret: 32 bytes that patients and chance are drawn with, if nobody is to foresee them; see docs/episodes.md.
        decide: ``"events"``: a step lasts until the next decision point; ``"cycles"``: it is one cycle, the default for doses.

    Raises:
        EngineError: for arguments that make no sense. Cards, cohorts and ids raise errors of their own.
    """
    if isinstance(environment, Card):
        loaded, kind = environment, find_environment("any.toml", kind).kind
    else:
        found = find_environment(environment, kind)
        loaded, kind = load_card(found.card), found.kind
    blended, length = checked_weights(loaded, weights), checked_horizon(loaded, horizon)
    computed = checked_terms(terms)
    check_split(split)
    decide = checked_decide(decide, kind)
    check_secret(secret)
    if cohort is None and generator is None and secret is None:
        shared = _family(loaded, tuple(sorted(blended.items())), length, kind, computed, decide)
        if not shared:
            shared.append(Engine(loaded, None, blended, length, kind, computed, split=split, decide=decide))
        return shared[0].on(split)
    patients = cohort if isinstance(cohort, Cohort | None) else read_cohort(cohort, loaded)
    for what, card_id in (("cohort", patients and patients.card_id), ("generator", generator and generator.card.id)):
        if card_id not in (None, loaded.id):
            raise EngineError(f"the {what} belongs to the card {card_id!r}, expected {loaded.id!r}")
    return Engine(loaded, patients, blended, length, kind, computed, generator, split, secret, decide)


@functools.lru_cache(maxsize=32)
def _family(
    card: Card, weights: tuple[tuple[str, float], ...], horizon: int, kind: str, terms: tuple[str, ...], decide: str
) -> list[Engine]:
    """The engine made first for these arguments, or nothing yet. It knows the engines of other splits."""
    return []
