"""Dosing: an action is an intensity for every anti-cancer regimen, and drug levels carry over from cycle to cycle.

The level is 1 under the standard dose in every cycle. Kill, toxicity and exposure follow it. With dose ``d`` and the regimen's
carry-over ``k``, ``level <- k * level + (1 - k) * d``. If nothing is on board, the first dose loads: ``level <- d``. As in the
plain environment, nothing acts in a cycle held for toxicity, and nothing is left after it. So the standard dose of one regimen
in every cycle gives the plain environment.

Regrowth while a drug is paused says nothing about resistance to it. So if nothing was given since the last scan, a scan shows
progression if the sum is 20% and 5 mm above the line's *baseline*, not its nadir. When dosing resumes, the reference is what
that scan measured, or the baseline if that is smaller. Trials of intermittent treatment count "progression on treatment" in the
same spirit (IMPROVE: Avallone, J Clin Oncol 2025;43:829).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from onco_gym.cards.scenarios import Field, Scenario
from onco_gym.foundation.arrays import either
from onco_gym.interfaces.kinds import Encounter, Plain
from onco_gym.rewards import Tally
from onco_gym.simulator.observation import allowed, observe, one_hot
from onco_gym.simulator.state import Journey, State
from onco_gym.simulator.transition import Orders

if TYPE_CHECKING:
    from onco_gym.interfaces.engine import Engine, Outcome

PAUSE = 0.05
"""Intensities below this are a pause: nothing is given. Drug levels below it count as 0."""
_BEYOND = 20.0  # log cm3 that no tumour reaches: compared with this volume at the last scan, nothing has grown


class DoseMemory(NamedTuple):
    """What dosing remembers about patients."""

    level: jax.Array  # (n,) level of the line's drug at the end of the last cycle; 1 under the standard dose
    dose: jax.Array  # (n,) share of the standard dose ordered for the last cycle
    clean: jax.Array  # (n,) 1 where nothing was given since the last scan


class _DoseChoice(NamedTuple):
    """What an action means for each patient."""

    decision: jax.Array  # (n,) int32 regimen
    ordered: jax.Array  # (n,) share of the standard dose, 0 for a pause
    dose: jax.Array  # (n,) the same, but 0 also where the regimen cannot be given
    keep: jax.Array  # (n,) share of the level that is kept; 0 where a dose loads
    left: jax.Array  # (n,) level left over from the last cycle
    paused: jax.Array  # (n,) bool: nothing is given, though the line's regimen could be


def observation_fields(layout: Scenario) -> tuple[Field, ...]:
    """The plain environment's fields, followed by those that dosing adds."""
    first = len(layout.fields)
    return (
        *layout.fields,
        Field("drug_level", "share of the standard dose's level, at the end of the last cycle", first, 0.0, 1.0, "dose"),
        Field("dose", "share of the standard dose, ordered for the last cycle", first + 1, 0.0, 1.0, "dose"),
    )


class Dosing(Plain):
    """Gives the regimen with the highest intensity, at that share of its standard dose.

    A pause keeps the line open: the level falls by the regimen's carry-over, what is left keeps acting until it is below
    :data:`PAUSE`, and dosing can resume. ``info["given"]`` names the drug on board, or the drug holiday. A regimen that
    cannot be given becomes a drug holiday: nothing acts, while the level falls as in a pause. Once the line's regimen can no
    longer be given, or another is given, what is left of it is no longer tracked.
    """

    name = "dose"

    def __init__(self, engine: "Engine") -> None:
        self._regimens = np.flatnonzero(engine.params.active).astype(np.int32)
        self._holiday = engine.scenario.holiday
        self.mask_size = len(self._regimens)
        self.parts: Mapping[str, int] = {}
        self.space: spaces.Space[Any] = spaces.Box(0.0, 1.0, (self.mask_size,), np.float32)
        self.fields = observation_fields(engine.scenario)

    def begin(self, engine: "Engine", journey: Journey) -> Encounter:
        """The first visit: no drug on board, and a scan just made."""
        nothing = jnp.zeros_like(journey.state.line)
        return Encounter(journey, DoseMemory(nothing, nothing, nothing + 1.0))

    def look(self, engine: "Engine", encounter: Encounter) -> tuple[jax.Array, jax.Array]:
        """((F + 2, n) observation with drug level and last dose, (D, n) which regimens can be given)."""
        journey, memory = encounter
        rows = [observe(engine.scenario, engine.params, journey), memory.level[None], memory.dose[None]]
        return jnp.concatenate(rows), self._open(engine, journey.state)

    def cycle(
        self, engine: "Engine", encounter: Encounter, tally: Tally, plan: jax.Array, number: jax.Array | int
    ) -> tuple[Encounter, Tally, "Outcome"]:
        """One cycle under the intensities ``plan`` (n, D)."""
        journey, memory = encounter
        choice = self._choose(engine, journey.state, memory, plan)
        level = self._level(journey, memory, choice)
        clean = memory.clean * (choice.dose == 0)
        lenient = choice.paused & (clean > 0.5) & (journey.state.progressed < 0.5)
        before = journey._replace(state=_against_baseline(journey.state, lenient))
        orders = self._orders(engine, journey.state, memory, choice)
        after, tally, outcome = engine.cycle(before, tally, choice.decision, orders)
        after = after._replace(state=_unless_scanned(after.state, journey.state, lenient))
        scanned = after.state.since_scan == 0
        return Encounter(after, DoseMemory(level, choice.ordered, jnp.where(scanned, 1.0, clean))), tally, outcome

    def planned(self, plan: jax.Array) -> jax.Array:
        """The regimen with the highest intensity, or the drug holiday in a pause."""
        chosen = jnp.take(jnp.asarray(self._regimens), jnp.argmax(plan, 1))
        return jnp.where(jnp.max(plan, 1) < PAUSE, self._holiday, chosen).astype(jnp.int32)

    def news(self, before: Encounter, after: Encounter) -> jax.Array:
        """Whether there was a scan: doses follow the tumour more closely than regimens do."""
        return after.journey.state.since_scan == 0

    def checked(self, actions: Any, n: int | None) -> NDArray[Any]:
        """Check that actions are intensities from 0 to 1."""
        expected = (self.mask_size,) if n is None else (n, self.mask_size)
        try:
            values = np.asarray(actions)
        except ValueError:  # rows of different lengths
            raise InvalidAction(f"the action is not an array, expected intensities of shape {expected}") from None
        if values.shape != expected or values.dtype.kind not in "fiu":
            raise InvalidAction(f"the action is {values.dtype} of shape {values.shape}, expected intensities of shape {expected}")
        if not np.all((values >= 0) & (values <= 1)):
            raise InvalidAction("the action has intensities outside 0..1 or NaN: each is a share of the standard dose")
        return values.astype(np.float32)

    def regimens(self, actions: NDArray[Any]) -> NDArray[np.int64]:
        """The regimen with the highest intensity, or the drug holiday in a pause."""
        return np.where(actions.max(1) < PAUSE, self._holiday, self._regimens[actions.argmax(1)]).astype(np.int64)

    def _open(self, engine: "Engine", state: State) -> jax.Array:
        """(D, n) bool: which regimens can be given. Once replaced, a regimen is closed, however little of it was given."""
        left = (state.exposure > 0) & (one_hot(state.treatment, len(engine.scenario.regimens)) < 0.5)
        return ((allowed(engine.params, state) > 0.5) & ~left)[self._regimens]

    def _choose(self, engine: "Engine", state: State, memory: DoseMemory, action: jax.Array) -> _DoseChoice:
        best, can = jnp.argmax(action, 1), self._open(engine, state)
        chosen = jnp.take(jnp.asarray(self._regimens), best)
        ordered = jnp.max(action, 1)
        ordered = jnp.where(ordered < PAUSE, 0.0, ordered)
        given = (ordered > 0) & jnp.take_along_axis(can, best[None], axis=0)[0]
        line = jnp.asarray(self._regimens)[:, None] == state.treatment
        resumable = either(line & can)
        keep = jnp.where(state.treatment >= 0, jnp.take(jnp.asarray(engine.params.carryover), state.treatment, mode="clip"), 0.0)
        left = keep * memory.level * resumable
        left = jnp.where(left < PAUSE, 0.0, left)
        fading = (ordered == 0) & (left > 0)
        resting = jnp.where(fading, state.treatment, engine.scenario.holiday)
        loads = (chosen != state.treatment) | (memory.level == 0)
        return _DoseChoice(
            decision=jnp.where(given, chosen, resting).astype(jnp.int32),
            ordered=ordered,
            dose=jnp.where(given, ordered, 0.0),
            keep=jnp.where(given & loads, 0.0, keep),
            left=left,
            paused=~given & resumable,
        )

    def _level(self, journey: Journey, memory: DoseMemory, choice: _DoseChoice) -> jax.Array:
        """(n,) the level at the end of the cycle. Treatment that starts late in a cycle still reaches its level."""
        state = journey.state
        started = state.cycle + 1 > journey.patient.delay
        dosed = choice.keep * memory.level + (1 - choice.keep) * choice.dose
        return jnp.where(choice.dose > 0, dosed * started, choice.left) * (1 - state.held)

    def _orders(self, engine: "Engine", state: State, memory: DoseMemory, choice: _DoseChoice) -> Orders:
        holiday = choice.decision == engine.scenario.holiday
        visits = jnp.asarray(engine.params.visits)
        # In a pause, patients visit as often as on a drug holiday, although a cycle of the drug is simulated.
        fewer = jnp.minimum(visits[engine.scenario.holiday] / jnp.maximum(jnp.take(visits, choice.decision), 1e-6), 1.0)
        return Orders(
            dose=jnp.where(holiday, 1.0, choice.dose),  # a cycle of drug holiday counts in full
            keep=jnp.where(holiday, 0.0, choice.keep),
            level=memory.level * (1 - state.held),
            visits=jnp.where(choice.dose > 0, 1.0, fewer),
        )


def _against_baseline(state: State, where: jax.Array) -> State:
    """Before a cycle: make scans compare with the line's baseline, and ignore new lesions, ``where`` true."""
    return state._replace(
        nadir=jnp.where(where, state.baseline, state.nadir),
        scanned=jnp.where(where, _BEYOND, state.scanned),
    )


def _unless_scanned(after: State, before: State, where: jax.Array) -> State:
    """After a cycle: undo :func:`_against_baseline` where no scan was made."""
    untouched = where & (after.since_scan > 0)
    return after._replace(
        nadir=jnp.where(untouched, before.nadir, after.nadir),
        scanned=jnp.where(untouched, before.scanned, after.scanned),
    )
