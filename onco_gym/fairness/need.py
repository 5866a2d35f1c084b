"""Clinical need: what the guideline would choose for a patient, whoever they are."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.observations import ObservationReader
from onco_gym.cards import Card
from onco_gym.cards.scenarios import scenario
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.origins import Origin
from onco_gym.knowledge import Guideline
from onco_gym.simulator.admission import admit
from onco_gym.simulator.observation import allowed, observe
from onco_gym.simulator.state import Patient


class Needs(NamedTuple):
    """Need of n patients at a visit. R regimens."""

    case: NDArray[np.bool_]  # (n,) whether this is a case
    first: NDArray[np.int64]  # (n,) the guideline's first choice in a case, else -1
    stratum: NDArray[np.int64]  # (n,) below 2R + 1: the first choice, or else R + 1 + the regimen of the last cycle


class Guide:
    """Finds cases, and what the guideline would choose in them, from observations.

    A *case* is a decision at the start of a line: no line has begun yet, or the disease has progressed, and the guideline
    has a new anti-cancer regimen to offer. This depends on the patient's state alone. What the reward's tally counts
    (:func:`onco_gym.rewards.fairness.decided`) depends on what was given, and would count a policy's odd choices more
    often than its usual ones.

    Args:
        card: a validated card.
    """

    def __init__(self, card: Card) -> None:
        layout = scenario(card)
        self._guideline, self._knowledge = Guideline(card), ObservationReader(card)
        self._active = np.array([regimen.active for regimen in card.regimens])
        self._supportive, self.strata = layout.supportive, 2 * len(layout.regimens) + 1

    def first_choice(self, observation: NDArray[np.float32], can: NDArray[np.bool_]) -> NDArray[np.int64]:
        """(n,) the first regimen recommended for a new line that ``can`` (n, R) be given and was not given before."""
        known = self._knowledge(observation)
        return self._guideline.first_choice(known, can & ~((known.cycles > 0.5) & self._active), self._supportive)

    def needs(self, observation: NDArray[np.float32], can: NDArray[np.bool_]) -> Needs:
        """The need of patients with ``observation`` (n, F). ``can`` (n, R) says which regimens can be given."""
        known = self._knowledge(observation)
        case = (known["line"] <= 0) | (known["progressed"] > 0.5)
        first = np.full(len(observation), -1, np.int64)
        rows = np.flatnonzero(case)
        if len(rows):
            choice = self.first_choice(observation[rows], can[rows])
            first[rows] = np.where(self._active[choice], choice, -1)
        first[first == known.current] = -1
        case = first >= 0
        return Needs(case, first, np.where(case, first, len(self._active) + 1 + known.current))

    def at_start(self, engine: Engine, origin: Origin) -> NDArray[np.int64]:
        """(n,) the first choice at the first visit of n patients, had every test been done.

        Whether a test was done depends on social position; need does not.
        """
        seen, can = _fully_tested(engine, engine.patients(origin.row), origin.key)
        return self.first_choice(np.asarray(seen), np.asarray(can))


@functools.partial(jax.jit, static_argnums=0)
def _fully_tested(engine: Engine, patient: Patient, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    patient = patient._replace(result_cycle=jnp.zeros_like(patient.result_cycle))
    journey = admit(engine.scenario, engine.params, patient, key)
    return observe(engine.scenario, engine.params, journey).T, allowed(engine.params, journey.state).T > 0.5
