"""Patients and their twins side by side, under the same decisions and the same chance.

Chance is a pure function of (key, cycle, channel). So replaying an episode's decisions with the same key gives the same episode,
and replaying them for the twin shows what the clinic would have seen of the twin.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.fairness.counterfactual import Effect, FairnessError, twin_patients
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.kinds import Encounter
from onco_gym.interfaces.origins import Origin
from onco_gym.simulator.observation import allowed
from onco_gym.simulator.state import Patient

DIFFERENT = 0.02
"""Share of patients whose replay may differ from their episode by rounding. More means another seed or engine."""


class Twin(NamedTuple):
    """The twins of some patients in one group."""

    attribute: str
    group: int
    who: NDArray[np.intp]  # (k,) numbers of the patients


class Sight(NamedTuple):
    """What can be seen of m patients at a visit, batch first."""

    observation: NDArray[np.float32]  # (m, F)
    mask: NDArray[np.bool_]  # (m, mask size)
    can: NDArray[np.bool_]  # (m, R) which regimens can be given
    alive: NDArray[np.bool_]  # (m,)


class Replay:
    """A replay of n patients of the engine's cohort and their m twins.

    Args:
        engine: the compiled environment.
        origin: the n patients and their chance.
        twins: the twins to replay. All m of them form one batch, in this order.
        effect: what changes together with the attribute.
    """

    def __init__(self, engine: Engine, origin: Origin, twins: Sequence[Twin], effect: Effect) -> None:
        self._engine, self._effect = engine, effect
        self.who = np.concatenate([twin.who for twin in twins])
        # Twins are made of all patients, and some are taken: there is one shape to compile.
        every = (twin_patients(engine, origin.row, twin.attribute, twin.group, effect) for twin in twins)
        made = [jax.tree.map(lambda v, who=twin.who: np.asarray(v)[..., who], e) for twin, e in zip(twins, every, strict=True)]
        self._patients = Patient(*(jnp.concatenate(parts, -1) for parts in zip(*made, strict=True)))
        self._factual = _admit(engine, engine.patients(origin.row), origin.key)
        # A direct twin's disease takes the same course as the patient's, so only what is shown of the twin is kept.
        self._others = _admit(engine, self._patients, origin.key[:, self.who]) if effect == "total" else None

    def look(self) -> Sight:
        """What can be seen of the n patients now."""
        return Sight(*(np.asarray(part) for part in _see(self._engine, self._factual)))

    def look_at_twins(self) -> Sight:
        """What can be seen of the m twins now."""
        others = self._others if self._others is not None else _lend(self._factual, self._patients, self.who)
        return Sight(*(np.asarray(part) for part in _see(self._engine, others)))

    @property
    def cycle(self) -> NDArray[np.int32]:
        """(n,) cycles since the first visit."""
        return np.asarray(self._factual.journey.state.cycle)

    def move(self, actions: NDArray[np.generic], given: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
        """Give the patients and their twins the same ``actions`` (n, ...).

        Args:
            actions: the patients' actions. Entries past the end of an episode have no effect.
            given: (n,) the regimens that the patients got in the episode, if known; -1 after its end.

        Returns:
            (n,) the regimens that the patients got.

        Raises:
            FairnessError: if they differ from ``given`` by more than rounding.
        """
        decisions = np.maximum(actions, np.zeros((), actions.dtype))
        self._factual, got, cycles = _move(self._engine, self._factual, decisions)
        if self._others is not None:
            self._others = _follow(self._engine, self._others, decisions[self.who], np.asarray(cycles)[self.who])
        result = np.asarray(got)
        if given is not None and ((result != given) & (given >= 0)).sum() > DIFFERENT * len(given):
            raise FairnessError("the episodes do not belong to this engine: their replay gives other regimens")
        return result


@functools.partial(jax.jit, static_argnums=0)
def _admit(engine: Engine, patient: Patient, key: jax.Array) -> Encounter:
    return engine.first_visit(patient, key)


@jax.jit
def _lend(encounter: Encounter, patients: Patient, who: jax.Array) -> Encounter:
    """``patients`` (m,) in the state of the patients ``who`` (m,) of ``encounter``."""
    lent = jax.tree.map(lambda values: jnp.take(values, who, axis=-1), encounter)
    return lent._replace(journey=lent.journey._replace(patient=patients))


@functools.partial(jax.jit, static_argnums=0)
def _see(engine: Engine, encounter: Encounter) -> tuple[jax.Array, ...]:
    observation, mask = engine.look(encounter)
    state = encounter.journey.state
    return observation.T, mask.T, allowed(engine.params, state).T > 0.5, state.alive > 0.5


@functools.partial(jax.jit, static_argnums=0)
def _move(engine: Engine, encounter: Encounter, action: jax.Array) -> tuple[Encounter, jax.Array, jax.Array]:
    # Rewards and tally are not used, so they are not computed.
    after, _, outcome = engine.advance(encounter, engine.tally(), action)
    return after, outcome.given, outcome.cycles


@functools.partial(jax.jit, static_argnums=0)
def _follow(engine: Engine, encounter: Encounter, action: jax.Array, cycles: jax.Array) -> Encounter:
    """Twins go on for as many cycles as their patients, whatever happens to them meanwhile."""
    return engine.advance(encounter, engine.tally(), action, cycles)[0]
