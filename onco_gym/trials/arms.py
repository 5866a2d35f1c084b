"""Simulate the arms of a trial: who enrols, what they are given, and what is counted.

The card's figures are traced and a trial's conduct is data, so one compiled function runs every arm of a card under any
figures. A key per patient fixes chance. Arms share patients and chance unless they are drawn separately.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.checks import HOLIDAY, patient_vocabulary
from onco_gym.cards.expressions import ExpressionError, parse
from onco_gym.cards.protocols import ProtocolError, Stage, parse_protocol
from onco_gym.cards.scenarios import Params, Scenario, scenario, schedule
from onco_gym.foundation.units import WEEKS_PER_MONTH
from onco_gym.interfaces.engine import batch_size
from onco_gym.knowledge.conditions import with_flags
from onco_gym.patients import Cohort, CohortError, default_generator
from onco_gym.patients.traits import Traits, encode
from onco_gym.simulator.admission import admit, embody
from onco_gym.simulator.chance import OPEN, derived, mix
from onco_gym.simulator.observation import is_scheduled, last_scan, one_hot
from onco_gym.simulator.state import Journey
from onco_gym.simulator.transition import step

PRIOR_CYCLES = 60
"""Patients enter a later-line trial only if each prior line failed within this many cycles."""
BATCHES = 30
"""A trial stops recruiting after screening this many times the patients it needs."""
STAGES = 6
"""Sequences are padded to this length, so that they share one compiled function."""


class TrialError(ValueError):
    """A trial that cannot be run as it was asked for."""


@dataclass(frozen=True)
class Setting:
    """The population and conduct of a trial, which all its arms share.

    Attributes:
        population: a condition on patient variables, such as ``"EGFR_L858R and ecog <= 1"``. After prior lines, ECOG is
            that at enrolment.
        prior: regimens that failed before, such as ``"platinum_pemetrexed > docetaxel"``.
        scan_weeks: weeks between scans. The last interval repeats: ``(6, 6, 9)`` scans at weeks 6, 12, 21, 30, ...
            The default is the card's schedule.
    """

    population: str
    prior: str = ""
    scan_weeks: tuple[float, ...] = ()


class Plan(NamedTuple):
    """The treatment of each patient, stage by stage. The last stage has no end."""

    regimen: Any  # (S, n) int32
    cycles: Any  # (S, n) int32, cycles until the next stage
    toxicity: Any  # (S, n) bool, whether a stop for toxicity also starts the next stage
    count: Any  # (n,) int32, stages before best supportive care


class Candidates(NamedTuple):
    """Patients who could enrol, with their prior lines and their plan. Arrays have the batch last."""

    traits: Traits
    key: Any  # (words, n) uint32
    prior: Plan
    plan: Plan
    eligible: Any  # (5, n) bool, whether a patient may enrol with ECOG 0..4
    measurable: Any  # (n,) bool, whether a response can be seen
    scans: dict[str, Any]  # the scan schedule, as fields of Params


class ArmCourse(NamedTuple):
    """What a trial records for each patient from enrolment. Times are in cycles."""

    row: Any  # (n,) index among the screened patients
    enrolled: Any  # (n,) bool
    progression: Any  # (n,) time of progression or death, or of the end of follow-up
    progressed: Any  # (n,) bool, whether it came before the end
    survival: Any  # (n,) time of death, or of the end of follow-up
    died: Any  # (n,) bool
    best: Any  # (n,) deepest change of the sum of diameters that two scans in a row showed before progression, as a share
    last: Any  # (n,) change at the last scan
    severe: Any  # (n,) bool, grade 3+ event before progression
    stopped: Any  # (n,) bool, a regimen was stopped for toxicity before progression
    utility: Any  # (n,) quality-adjusted cycles lived


def simulate(layout: Scenario, params: Params, candidates: Candidates, follow_up: int) -> ArmCourse:
    """Run one arm. It is compiled once per card and :func:`onco_gym.interfaces.engine.batch_size`.

    Args:
        layout: static side of the card.
        params: the card's figures.
        candidates: n patients.
        follow_up: cycles from enrolment.
    """
    n = candidates.key.shape[-1]
    everybody = np.resize(np.arange(n), batch_size(n))
    parts = {name: part for name, part in candidates._asdict().items() if name != "scans"}  # which belong to nobody
    filled = candidates._replace(**jax.tree.map(lambda values: np.asarray(values)[..., everybody], parts))
    course: ArmCourse = _simulate(layout, params, filled, jnp.int32(follow_up))
    return ArmCourse(*(np.asarray(values)[..., :n] for values in course))


@functools.partial(jax.jit, static_argnums=0)
def _simulate(layout: Scenario, params: Params, candidates: Candidates, follow_up: jax.Array) -> ArmCourse:
    params = jax.tree.map(jnp.asarray, params)
    journey = admit(layout, params, embody(params, candidates.traits), candidates.key)
    journey, enrolled = _earlier_lines(layout, params, journey, candidates)
    conducted = params._replace(**candidates.scans)
    course = _follow(layout, conducted, _enrol(journey, enrolled), enrolled, candidates.plan, follow_up)
    return course._replace(best=jnp.where(candidates.measurable, course.best, 0.0))


class _Place(NamedTuple):
    """Where patients are in a plan."""

    stage: jax.Array  # (n,) int32
    spent: jax.Array  # (n,) int32 cycles in it


def _at(table: jax.Array, stage: jax.Array) -> jax.Array:
    """(n,) each patient's entry of ``table`` (S, n)."""
    return jnp.take_along_axis(table, jnp.minimum(stage, table.shape[0] - 1)[None], 0)[0]


def _advance(
    layout: Scenario, params: Params, journey: Journey, plan: Plan, place: _Place
) -> tuple[Journey, Any, _Place, jax.Array]:
    """One cycle of a plan: the journey, its events, the next place, and (n,) whether the regimen was stopped for toxicity."""
    regimen = _at(plan.regimen, place.stage)
    journey, events = step(layout, params, journey, regimen)
    stopped = jnp.sum(journey.state.barred * one_hot(regimen, len(layout.regimens)), 0) > 0.5
    spent = place.spent + 1
    switch = (journey.state.progressed > 0.5) | (spent >= _at(plan.cycles, place.stage))
    switch = (switch | (stopped & _at(plan.toxicity, place.stage))) & (place.stage < plan.count)
    return journey, events, _Place(place.stage + switch, jnp.where(switch, 0, spent)), stopped


def _earlier_lines(layout: Scenario, params: Params, journey: Journey, candidates: Candidates) -> tuple[Journey, jax.Array]:
    """Give the prior lines. Returns the journeys, each at the end of its last prior line, and (n,) who can enrol."""
    plan = candidates.prior
    limit = PRIOR_CYCLES * jnp.max(plan.count)

    def under_way(journey: Journey, place: _Place) -> jax.Array:
        return (place.stage < plan.count) & (journey.state.alive > 0.5)

    def going(carry: tuple[Journey, _Place, jax.Array]) -> jax.Array:
        journey, place, cycle = carry
        return (cycle < limit) & jnp.any(under_way(journey, place))

    def cycle(carry: tuple[Journey, _Place, jax.Array]) -> tuple[Journey, _Place, jax.Array]:
        journey, place, cycle = carry
        moves = under_way(journey, place)
        after, _, next_place, _ = _advance(layout, params, journey, plan, place)
        keep = functools.partial(jax.tree.map, lambda new, old: jnp.where(moves, new, old))
        return keep(after, journey), keep(next_place, place), cycle + 1

    zero = jnp.zeros_like(plan.count)
    journey, place, _ = jax.lax.while_loop(going, cycle, (journey, _Place(zero, zero), jnp.int32(0)))
    ecog = jnp.clip(jnp.floor(journey.state.performance + 0.5), 0, 4).astype(jnp.int32)
    may = jnp.take_along_axis(jnp.asarray(candidates.eligible), ecog[None], 0)[0]
    return journey, (place.stage >= plan.count) & (journey.state.alive > 0.5) & may


def _enrol(journey: Journey, enrolled: jax.Array) -> Journey:
    """Reset time, RECIST, exposure and chance; keep tumour, toxicity, performance and past failures.

    Exposure is reset because a regimen such as "chemotherapy" stands for drugs that the patient has not had before.
    """
    state = journey.state
    none = jnp.zeros_like(state.exposure)
    fresh = state._replace(
        cycle=jnp.zeros_like(state.cycle),
        alive=enrolled.astype(jnp.float32),
        held=jnp.zeros_like(state.held),
        barred=none,
        exposure=none,
        treatment=jnp.full_like(state.treatment, -1),
        progressed=jnp.zeros_like(state.progressed),
        baseline=state.diameter,
        nadir=state.diameter,
    )
    return Journey(journey.patient, fresh, derived(journey.key, jnp.uint32(0x2545F491)))


def _follow(
    layout: Scenario, params: Params, journey: Journey, enrolled: jax.Array, plan: Plan, follow_up: jax.Array
) -> ArmCourse:
    """Treat to plan until death or the end of follow-up, and record the course.

    After a regimen is stopped for toxicity or runs out of cycles, the simulator pauses treatment until progression. Patients
    who are too ill for a later regimen skip it. Those who are too ill for the first one wait.
    """
    n = enrolled.shape[0]
    end, no, zero = jnp.full(n, follow_up, jnp.float32), jnp.zeros(n, bool), jnp.zeros(n, jnp.float32)
    start = ArmCourse(jnp.arange(n), enrolled, end, no, end, no, zero, zero, no, no, zero)
    baseline = journey.state.baseline

    def going(carry: tuple[Journey, _Place, ArmCourse, jax.Array]) -> jax.Array:
        journey, _, _, time = carry
        return (time < follow_up) & jnp.any(journey.state.alive > 0.5)

    def cycle(carry: tuple[Journey, _Place, ArmCourse, jax.Array]) -> tuple[Journey, _Place, ArmCourse, jax.Array]:
        journey, place, course, time = carry
        alive = journey.state.alive > 0.5
        journey, events, place, stopped = _advance(layout, params, journey, plan, place)
        state = journey.state
        counted = alive & ~course.progressed
        died, progressed = alive & (state.alive < 0.5), counted & (state.progressed > 0.5)
        death = time + events.lived
        # Scheduled scans count on their day within the cycle, scans for symptoms at its end.
        scan = jnp.where(is_scheduled(params, state.cycle), last_scan(params, state.cycle), state.cycle.astype(jnp.float32))
        event = jnp.where(died, jnp.where(progressed, jnp.minimum(scan, death), death), scan)
        seen = counted & ~died & ~progressed & (state.since_scan < 0.5)
        change = state.diameter / baseline - 1
        course = ArmCourse(
            row=course.row,
            enrolled=enrolled,
            progression=jnp.where(counted & (died | progressed), event, course.progression),
            progressed=course.progressed | (counted & (died | progressed)),
            survival=jnp.where(died, death, course.survival),
            died=course.died | died,
            best=jnp.where(seen, jnp.minimum(course.best, jnp.maximum(course.last, change)), course.best),
            last=jnp.where(seen, change, course.last),
            severe=course.severe | (counted & (events.severe > 0.5)),
            stopped=course.stopped | (counted & stopped),
            utility=course.utility + events.lived * events.utility,
        )
        return journey, place, course, time + 1

    place = _Place(jnp.zeros(n, jnp.int32), jnp.zeros(n, jnp.int32))
    return jax.lax.while_loop(going, cycle, (journey, place, start, jnp.int32(0)))[2]


# ------------------------------------------------------------------------------------------------ recruiting


def recruit(card: Card, setting: Setting, protocol: str, n: int, seed: int = 0) -> Candidates:
    """Screen ``n`` patients of the population at diagnosis, with the plan of an arm.

    Trials treat at once and make sure that tablets are taken, so the delays and lapses of ordinary care are left out.

    Args:
        card: a validated card.
        setting: population and conduct of the trial.
        protocol: the arm's sequence of regimens; best supportive care follows. See :mod:`onco_gym.cards.protocols`.
        n: number of patients.
        seed: same seed, same patients and chance.

    Raises:
        TrialError: if the population, a regimen or the scan schedule is invalid.
    """
    layout = scenario(card)
    try:
        stages = parse_protocol(protocol, layout.regimens)
        prior = parse_protocol(setting.prior, layout.regimens) if setting.prior.strip() else ()
    except ProtocolError as error:
        raise TrialError(str(error)) from None
    active = {regimen.name for regimen in card.regimens if regimen.active}
    for sequence in (prior, stages):
        given = [stage.regimen for stage in sequence if stage.regimen in active]
        for name in given:
            if given.count(name) > 1:
                raise TrialError(f"{name!r} appears twice: a regimen that was left cannot be given again")
    for weeks in setting.scan_weeks:
        if not card.cycle_weeks <= weeks <= 520:
            raise TrialError(f"a scan interval is {weeks:g} weeks, expected {card.cycle_weeks:g} (one cycle) to 520")
    try:
        scans = schedule(card, setting.scan_weeks)
    except ValueError as error:
        raise TrialError(f"scan schedule: {error}") from None
    cohort, traits, keys, eligible = screen(card, setting.population, n, seed)
    unseen = card.observation.not_measurable
    return Candidates(
        traits=traits,
        key=keys,
        prior=_plan(layout, prior, keys, 0x1B873593),
        plan=_plan(layout, stages, keys, 0xCC9E2D51),
        eligible=eligible,
        measurable=~holds(card, unseen, cohort) if unseen else np.ones(n, bool),
        scans=scans,
    )


def holds(card: Card, condition: str, cohort: Cohort) -> NDArray[np.bool_]:
    """(n,) for which patients a condition holds."""
    return np.broadcast_to(parse(condition, patient_vocabulary(card)).holds(with_flags(card, cohort.columns)), len(cohort))


@functools.lru_cache(maxsize=64)
def screen(card: Card, population: str, n: int, seed: int) -> tuple[Cohort, Traits, NDArray[np.uint32], NDArray[np.bool_]]:
    """Patients of a population: cohort, traits, keys, and (5, n) whether each would qualify with ECOG 0..4."""
    try:
        condition = parse(population, patient_vocabulary(card)) if population.strip() else None
        cohort = default_generator(card).sample(n, seed, where=population if condition else None)
    except (ExpressionError, CohortError) as error:
        raise TrialError(f"population: {error}") from None
    traits = encode(card, cohort)
    keys = np.random.default_rng([seed, 7]).integers(0, 2**32, (OPEN, n), np.uint32)
    eligible = np.ones((5, n), bool)
    if condition:
        for ecog in range(5):
            columns = {**cohort.columns, card.performance.variable: np.full(n, float(ecog))}
            eligible[ecog] = condition.holds(with_flags(card, columns))
    at_once = traits._replace(delay=np.zeros_like(traits.delay), adherence=np.ones_like(traits.adherence))
    return cohort, at_once, keys, eligible


def _plan(layout: Scenario, stages: Sequence[Stage], keys: NDArray[np.uint32], salt: int) -> Plan:
    """The stages of each patient. Patients outside a stage's share skip it."""
    n, rows = keys.shape[1], list(stages)
    if rows and rows[-1].cycles is not None:  # pause until progression after a last regimen of fixed length
        rows.append(Stage(HOLIDAY))
    depth = max(STAGES, len(rows) + 1)
    regimen, cycles = np.full((depth, n), layout.supportive, np.int32), np.full((depth, n), 2**30, np.int32)
    toxicity, count = np.zeros((depth, n), bool), np.zeros(n, np.int32)
    patients = np.arange(n)
    for number, stage in enumerate(rows):
        draw = mix(keys[0] ^ np.uint32(salt) ^ np.uint32((number + 1) * 0x9E3779B9 & 0xFFFFFFFF)) / 2.0**32
        takes = draw < stage.share
        place = count[takes], patients[takes]
        regimen[place] = layout.regimens.index(stage.regimen)
        cycles[place] = stage.cycles or 2**30
        toxicity[place] = stage.toxicity
        count += takes
    return Plan(regimen, cycles, toxicity, count)


def run_arm(
    card: Card, params: Params, setting: Setting, protocol: str, n: int, seed: int = 0, months: float = 60.0
) -> ArmCourse:
    """Enrol ``n`` patients in an arm and follow them. The course holds NumPy arrays (n,).

    Patients are screened in rounds until ``n`` have enrolled.

    Raises:
        TrialError: as in :func:`recruit`, or if too few patients can enrol.
    """
    layout, follow_up = scenario(card), cycles_of(card, months)
    found: list[ArmCourse] = []
    enrolled = 0
    for batch in range(BATCHES):
        candidates = recruit(card, setting, protocol, n, seed * BATCHES + batch)
        course = simulate(layout, params, candidates, follow_up)
        course = course._replace(row=course.row + batch * n)
        found.append(ArmCourse(*(values[course.enrolled] for values in course)))
        enrolled += int(course.enrolled.sum())
        if enrolled >= n:
            return ArmCourse(*(np.concatenate(parts)[:n] for parts in zip(*found, strict=True)))
        if n * (batch + 1) >= 500 and batch >= 2 and enrolled < n * (batch + 1) / BATCHES / 2:
            break
    raise TrialError(
        f"only {enrolled} of {n * len(found)} screened patients could enrol: population {setting.population!r}"
        + (f" after {setting.prior!r}, each line within {PRIOR_CYCLES} cycles" if setting.prior else "")
    )


def patients_of(card: Card, setting: Setting, n: int, seed: int, course: ArmCourse) -> Cohort:
    """The patients behind the ``course`` that :func:`run_arm` returned for ``n`` and ``seed``, in its order."""
    batches = range(int(course.row.max()) // n + 1)
    screened = [screen(card, setting.population, n, seed * BATCHES + batch)[0] for batch in batches]
    return Cohort.concatenate(screened).take(course.row)


def cycles_of(card: Card, months: float) -> int:
    """Cycles of a follow-up of ``months``, rounded up."""
    if not 1 <= months <= 600:
        raise TrialError(f"follow-up is {months:g} months, expected 1 to 600")
    return int(np.ceil(months * WEEKS_PER_MONTH / card.cycle_weeks))
