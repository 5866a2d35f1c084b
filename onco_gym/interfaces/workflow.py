"""The workflow: which tests to order, which evidence to look up, what to give, and when to see the patient again.

No test or scan is done unless it is ordered. Tissue is taken at the visit, and its result is read at the first visit after it
arrives. Scans and ctDNA are done, and evidence is looked up, for the next visit. If ordinary care would not have done a test
for a patient (because of insurance, deprivation or rurality), it needs an appeal and takes :data:`APPEAL` cycles longer.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Field, Scenario, scenario
from onco_gym.foundation.arrays import either, total
from onco_gym.interfaces.kinds import Encounter
from onco_gym.knowledge.plausibility import RESISTANT
from onco_gym.patients.traits import NEVER
from onco_gym.rewards import Tally, hear
from onco_gym.simulator.chance import Sampled
from onco_gym.simulator.observation import allowed, ctdna, observe
from onco_gym.simulator.state import Journey, State
from onco_gym.simulator.transition import Orders

if TYPE_CHECKING:
    from onco_gym.interfaces.engine import Engine, Outcome

APPEAL = 2.0
"""Extra cycles for a test that ordinary care would not have done; our estimate."""
AWAITED = 0.5 * NEVER
"""``State.result_cycle`` of a test under way. Its result is unknown until a visit at which it is read."""
IMAGING = ("none", "CT", "MRI")
EVIDENCE = ("none", "guideline", "resistance")


class VisitMemory(NamedTuple):
    """What the workflow remembers about patients."""

    due: jax.Array  # (T, n) cycle in which the result of the pending sample arrives, NEVER if there is none
    biopsy: jax.Array  # (K - 1, n) resistant clones in the last sample sent for sequencing
    ctdna: jax.Array  # (n,) log10 molecules per ml when last measured
    drawn: jax.Array  # (n,) cycle of that measurement, -NEVER before the first
    evidence: jax.Array  # (n,) int32 what was looked up for this visit


class _VisitChoice(NamedTuple):
    tests: jax.Array  # (T, n) bool
    ctdna: jax.Array  # (n,) bool
    imaging: jax.Array  # (n,)
    evidence: jax.Array  # (n,)
    regimen: jax.Array  # (n,)
    cycles: jax.Array  # (n,) until the next visit


class _VisitPlan(NamedTuple):
    choice: _VisitChoice
    kg: jax.Array  # (n,) kg CO2e of what was ordered
    cost: jax.Array  # (n,) USD


def action_parts(card: Card) -> dict[str, int]:
    """The parts of an action in their order, and how many choices each has."""
    layout = scenario(card)
    return {
        **dict.fromkeys(layout.tests, 2),
        "ctdna": 2,
        "imaging": len(IMAGING),
        "evidence": len(EVIDENCE),
        "regimen": len(layout.regimens),
        "next_visit": card.workup.longest_interval_cycles,
    }


def observation_fields(layout: Scenario) -> tuple[Field, ...]:
    """The plain environment's fields, followed by those that the workflow adds."""
    accepted = "share of experts who accept it, or 1 if known resistant"
    rows = [(f"pending_{name}", "0 or 1", 1.0, "pending") for name in layout.tests]
    rows += [("known_ctdna", "0 or 1", 1.0, "ctdna"), ("cycles_since_ctdna", "cycles, most where never measured", 12.0, "ctdna")]
    rows += [(f"looked_up_{name}", "0 or 1", 1.0, "evidence") for name in EVIDENCE[1:]]
    rows += [(f"evidence_{name}", accepted, 1.0, "evidence") for name in layout.regimens]
    first = len(layout.fields)
    added = (Field(name, unit, first + row, 0.0, high, block) for row, (name, unit, high, block) in enumerate(rows))
    return (*layout.fields, *added)


class Workflow:
    """A step is the time from one visit to the next.

    The parts of an action are, in this order: each of the card's tests (0 or 1), ctDNA (0 or 1), imaging (none, CT, MRI),
    evidence (none, guideline, resistance), the regimen, and the cycles until the next visit minus 1.
    """

    name = "workflow"

    def __init__(self, engine: "Engine") -> None:
        card, layout, params = engine.card, engine.scenario, engine.params
        self.parts: Mapping[str, int] = action_parts(card)
        self._sizes = np.array(list(self.parts.values()))
        self._regimen = list(self.parts).index("regimen")
        self.space: spaces.Space[Any] = spaces.MultiDiscrete(self._sizes)
        self.mask_size = int(self._sizes.sum())
        self.fields = observation_fields(layout)
        self._since = next(field for field in self.fields if field.name == "cycles_since_ctdna")
        self._ctdna = next(field for field in layout.fields if field.name == "ctdna")
        self._sequencing = np.array(layout.repeated)[:, None]  # (T, 1) tests that show resistant clones
        regimens = len(layout.regimens)
        kill = params.regimens[:regimens, : len(layout.mechanisms)]
        escaped = params.resistance @ kill.T / np.maximum(kill.sum(1), 1e-9)
        self._resists = (escaped[1:] >= RESISTANT) & (kill.sum(1) > 0)  # (K - 1, R) whether a clone escapes most of the kill
        self._in_clinic = np.array([regimen.route not in ("oral", "none") for regimen in card.regimens])
        self._cost = np.array([[test.cost_usd] for test in card.tests], np.float32)
        self._kg = np.asarray(params.tests_kg)[:, None]
        self._scan_cost = np.array([0.0, card.workup.ct_cost_usd, card.workup.mri_cost_usd], np.float32)

    def begin(self, engine: "Engine", journey: Journey) -> Encounter:
        """The first visit: nothing has been tested."""
        state = journey.state
        never = jnp.full_like(state.result_cycle, NEVER)
        zero = jnp.zeros_like(state.line)
        memory = VisitMemory(never, jnp.zeros_like(state.marker), zero, zero - NEVER, state.cycle * 0)
        return Encounter(journey._replace(state=state._replace(result_cycle=never)), memory)

    def look(self, engine: "Engine", encounter: Encounter) -> tuple[jax.Array, jax.Array]:
        """((F, n) observation, (sum of sizes, n) mask, in which only regimens that cannot be given are false)."""
        journey, memory = encounter
        state = journey.state
        plain = observe(engine.scenario, engine.params, journey)
        asked = jnp.stack([memory.evidence == number for number in range(1, len(EVIDENCE))])
        accepted = engine.panel.shares(jnp, hear(engine.panel, engine.scenario, engine.params, journey))
        resistant = functools.reduce(jnp.maximum, self._resists[:, :, None] * state.marker[:, None])
        rows = [
            plain.at[self._ctdna.index].set(_scaled(self._ctdna, memory.ctdna)),
            memory.due < NEVER,
            (memory.drawn >= 0)[None],
            _scaled(self._since, state.cycle - memory.drawn)[None],
            asked,
            asked[0] * accepted + asked[1] * resistant,
        ]
        can = allowed(engine.params, state) > 0.5
        before, after = int(self._sizes[: self._regimen].sum()), int(self._sizes[self._regimen + 1 :].sum())
        mask = [jnp.ones((before, can.shape[1]), bool), can, jnp.ones((after, can.shape[1]), bool)]
        return jnp.concatenate([row.astype(jnp.float32) for row in rows]), jnp.concatenate(mask)

    def order(self, engine: "Engine", encounter: Encounter, action: jax.Array) -> tuple[Encounter, _VisitPlan]:
        """Take the samples, and plan the cycles until the next visit under ``action`` (n, parts)."""
        choice = self._choice(action)
        encounter, kg, cost = self._order(engine, encounter, choice)
        return encounter, _VisitPlan(choice, kg, cost)

    def interval(self, plan: _VisitPlan) -> jax.Array:
        """The cycles that were chosen."""
        return plan.choice.cycles

    def planned(self, plan: _VisitPlan) -> jax.Array:
        """The regimen that was chosen."""
        return plan.choice.regimen

    def news(self, before: Encounter, after: Encounter) -> jax.Array:
        """Whether the result of a test that was ordered has arrived."""
        return either(after.memory.due <= after.journey.state.cycle)

    def cycle(
        self, engine: "Engine", encounter: Encounter, tally: Tally, plan: _VisitPlan, number: jax.Array | int
    ) -> tuple[Encounter, Tally, "Outcome"]:
        """Simulate cycle ``number`` after the visit. Between visits, patients come only for treatment given in the clinic."""
        journey, choice = encounter.journey, plan.choice
        can = jnp.take_along_axis(allowed(engine.params, journey.state), choice.regimen[None], axis=0)[0] > 0.5
        given = jnp.where(can, choice.regimen, engine.scenario.holiday)
        first = jnp.asarray(number) == 0
        orders = Orders(
            imaging=jnp.where(number + 1 >= choice.cycles, choice.imaging, 0),
            visits=(first | jnp.take(jnp.asarray(self._in_clinic), given)).astype(jnp.float32),
            prompts=(first & (choice.evidence > 0)).astype(jnp.float32),
            extra_kg=jnp.where(first, plan.kg, 0.0),
        )
        after, tally, outcome = engine.cycle(journey, tally, choice.regimen, orders)
        # A scan alone shows no resistant clones.
        after = after._replace(state=after.state._replace(marker=journey.state.marker))
        return Encounter(after, encounter.memory), tally, outcome._replace(cost=jnp.where(first, plan.cost, 0.0))

    def checked(self, actions: Any, n: int | None) -> NDArray[Any]:
        """Check that actions are whole numbers below the sizes of the parts."""
        values = np.asarray(actions)
        shape = (len(self._sizes),) if n is None else (n, len(self._sizes))
        if values.shape != shape or values.dtype.kind not in "iu":
            raise InvalidAction(f"the action is {values.dtype} of shape {values.shape}, expected whole numbers of shape {shape}")
        wrong = np.argwhere((values < 0) | (values >= self._sizes))
        if len(wrong):
            part = int(wrong[0][-1])
            raise InvalidAction(f"{list(self.parts)[part]} is {values[tuple(wrong[0])]}, expected 0..{self._sizes[part] - 1}")
        return values.astype(np.int32)

    def regimens(self, actions: NDArray[Any]) -> NDArray[np.int64]:
        """The part called ``regimen``."""
        return actions[:, self._regimen].astype(np.int64)

    def _choice(self, action: jax.Array) -> _VisitChoice:
        *tests, drawn, imaging, evidence, regimen, interval = action.T
        return _VisitChoice(jnp.stack(tests) > 0, drawn > 0, imaging, evidence, regimen, interval + 1)

    def _order(self, engine: "Engine", encounter: Encounter, choice: _VisitChoice) -> tuple[Encounter, jax.Array, jax.Array]:
        """Take the samples. Returns the encounter, and (n,) kg CO2e and (n,) USD of what was ordered.

        Ordering a test that is already under way does not restart it, but costs again. The kg of scans count when they are made.
        """
        journey, memory = encounter
        state, patient, workup = journey.state, journey.patient, engine.card.workup
        refused = (patient.result_cycle >= NEVER).astype(jnp.float32)
        comes = state.cycle.astype(jnp.float32) + 1 + patient.wait + APPEAL * refused  # a wait of 0 ends before the next cycle
        fresh = choice.tests & (memory.due >= NEVER)
        sent = either(fresh & self._sequencing)
        memory = memory._replace(
            due=jnp.where(fresh, comes, memory.due),
            biopsy=jnp.where(sent, _resistant_clones(engine, state), memory.biopsy),
        )
        state = state._replace(result_cycle=jnp.where(fresh, jnp.minimum(state.result_cycle, AWAITED), state.result_cycle))
        kg = total(choice.tests * self._kg) + choice.ctdna * workup.ctdna_kgco2e
        cost = total(choice.tests * self._cost) + choice.ctdna * workup.ctdna_cost_usd
        cost = cost + jnp.take(jnp.asarray(self._scan_cost), choice.imaging)
        return Encounter(journey._replace(state=state), memory), kg.astype(jnp.float32), cost.astype(jnp.float32)

    def read(self, engine: "Engine", encounter: Encounter, plan: _VisitPlan) -> Encounter:
        """Read what is known at the next visit: results that have arrived, and ctDNA if it was ordered.

        If the tumour sheds enough, ctDNA shows what sequencing shows, including resistant clones.
        """
        (journey, memory), choice = encounter, plan.choice
        state, cycle = journey.state, journey.state.cycle.astype(jnp.float32)
        level = ctdna(engine.params, journey, Sampled(journey.key, state.cycle))
        shed = choice.ctdna & (level >= engine.card.workup.ctdna_detection)
        back = memory.due <= cycle
        known = back | (shed & self._sequencing)
        from_tissue = either(back & self._sequencing) * memory.biopsy
        from_blood = shed * _resistant_clones(engine, state)
        seen: State = state._replace(
            result_cycle=jnp.where(known, jnp.minimum(state.result_cycle, cycle), state.result_cycle),
            marker=jnp.maximum(state.marker, jnp.maximum(from_tissue, from_blood)),
        )
        memory = memory._replace(
            due=jnp.where(back, NEVER, memory.due),
            ctdna=jnp.where(choice.ctdna, level, memory.ctdna),
            drawn=jnp.where(choice.ctdna, cycle, memory.drawn),
            evidence=choice.evidence,
        )
        return Encounter(journey._replace(state=seen), memory)


def _resistant_clones(engine: "Engine", state: State) -> jax.Array:
    """(K - 1, n) 1 where a resistant clone is large enough for sequencing to show it."""
    return (state.clones[1:] - state.volume >= jnp.log(engine.params.marker_detection)).astype(jnp.float32)


def _scaled(field: Field, raw: jax.Array) -> jax.Array:
    return jnp.clip((raw - field.low) / (field.high - field.low), 0.0, 1.0)
