"""A card as the simulator reads it: ``Scenario`` (names and sizes, static) and ``Params`` (arrays, traced)."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards.checks import HOLIDAY, SUPPORTIVE
from onco_gym.cards.grid import intensity
from onco_gym.cards.load import digest
from onco_gym.cards.schema import Card, Case, Categorical, Discrete, Lognormal, Normal, Ordinal, Regimen, Variable

Array = Any
"""Float32 NumPy arrays when made from a card; JAX arrays where they are traced, as in calibration."""
Columns = Sequence[tuple[str, Variable]]
"""Observed columns, each with the variable it shows."""


@dataclass(frozen=True)
class Field:
    """One number of an observation. Its raw value is ``low + (high - low) * observation[index]``.

    Attributes:
        name: its name, as in guideline rules.
        unit: unit of the raw value.
        index: its position in the observation.
        low, high: the raw values shown as 0 and 1.
        block: the part of the record it belongs to: ``trait``, ``biomarker``, ``test``, ``course``, ``toxicity``,
            ``marker``, ``regimen`` or ``exposure``; a kind of environment may add others.
    """

    name: str
    unit: str
    index: int
    low: float
    high: float
    block: str

    def raw(self, shown: Any) -> Any:
        """The raw value, in :attr:`unit`, of a number or array ``shown`` in 0..1."""
        return self.low + (self.high - self.low) * shown


@dataclass(frozen=True)
class Scenario:
    """The static side of a card: names, sizes, schedules, observation layout. Hashable.

    ``traits`` and ``biomarkers`` name the observed patient columns: traits are always known, biomarkers once tested. ``levels``
    gives the columns of each categorical variable among them, ``groups`` the groups of each protected attribute.
    """

    id: str
    digest: str
    cycle_weeks: float
    horizon: int
    mechanisms: tuple[str, ...]
    immune: tuple[bool, ...]
    static: tuple[bool, ...]
    regimens: tuple[str, ...]
    clones: tuple[str, ...]
    organs: tuple[str, ...]
    tests: tuple[str, ...]
    repeated: tuple[bool, ...]
    traits: tuple[str, ...]
    biomarkers: tuple[str, ...]
    biomarker_test: tuple[int, ...]
    fields: tuple[Field, ...]
    levels: tuple[tuple[str, tuple[str, ...]], ...]
    groups: tuple[tuple[str, tuple[str, ...]], ...]

    def block(self, name: str) -> slice:
        """The slice of the observation that holds a block; see :class:`Field`."""
        places = [field.index for field in self.fields if field.block == name]
        return slice(places[0], places[-1] + 1) if places else slice(0, 0)

    @property
    def holiday(self) -> int:
        """Index of the drug holiday, which replaces a choice that is not allowed."""
        return self.regimens.index(HOLIDAY)

    @property
    def supportive(self) -> int:
        """Index of best supportive care."""
        return self.regimens.index(SUPPORTIVE)


class Params(NamedTuple):
    """Everything that could be fitted. R regimens, M mechanisms, K clones, O organs, T tests, C cases.

    The table of regimens has 2R rows: R for induction, then R for maintenance. Its columns are log kill per cycle at
    sensitivity 1, by mechanism; hazard of a grade 3+ event in the first cycle, by organ; standing toxicity in grades;
    probability of stopping for good, given a grade 3+ event; share of the kill that depends on tablets; infusions per cycle.
    """

    regimens: Array  # (2R, M + O + 4)
    induction: Array  # (R,) cycles
    max_cycles: Array  # (R,) cycles
    max_ecog: Array  # (R,) worst ECOG at which it is given
    active: Array  # (R,) 1 for anti-cancer treatment
    carryover: Array  # (R,) share of a cycle's drug level that remains a cycle later
    sensitivity: Array  # (M, C) median by case
    sensitivity_spread: Array  # (M,) log sd
    fading: Array  # (M,) per cycle received
    resistance: Array  # (K, M) share of kill escaped
    fraction: Array  # (K, C) log10 share at diagnosis, by case
    fraction_spread: Array  # (K,) log10 sd
    fitness: Array  # (K,) growth relative to the first clone
    flux: Array  # (K, K) share of clone j (column) that becomes clone k (row) in a cycle; the diagonal is minus what leaves
    growth: Array  # (C,) per cycle at the reference volume, by case
    growth_spread: Array  # () log sd
    log_capacity: Array  # () log cm3
    log_reference: Array  # () log cm3
    initial: Array  # (C,) cm3 at diagnosis, by case
    initial_spread: Array  # () log sd
    lesions: Array  # (C,) measured lesions, by case
    beyond: Array  # () share of kill kept after the tumour has progressed under the regimen
    changeover: Array  # () share of a cycle without drug between one anti-cancer regimen and another
    immune_onset: Array  # () per cycle
    immune_waning: Array  # () per cycle
    immune_memory: Array  # () response at which waning is halved
    first_immune: Array  # (M,) 1 for the first immune mechanism
    immune_shared: Array  # (M,) correlation of each mechanism's sensitivity with that to the first immune one
    recovery: Array  # (O,) per cycle
    hospital_days: Array  # (O,) per grade 3+ event
    fatal: Array  # (O,) hazard of death added by a grade 3+ event
    disutility: Array  # (O,) per grade
    onset_cycles: Array  # () e-folding of toxicity risk
    toxicity_spread: Array  # () log sd
    background: Array  # () deaths per cycle
    tumour_hazard: Array  # () deaths per cycle at the reference volume and ECOG 1
    burden_exponent: Array  # ()
    ecog_log_hazard: Array  # () per ECOG point
    failed_log_hazard: Array  # () per progression so far
    hazard_spread: Array  # () log sd
    burden_weight: Array  # () ECOG points from no tumour to capacity
    toxicity_weight: Array  # () ECOG points per summed grade
    performance_rate: Array  # () per cycle
    utility: Array  # (4,) base, per ECOG, progressed, per infusion
    scan_early: Array  # (4,) cycles of the scans before regular ones begin; beyond any horizon if unused
    scan_start: Array  # () cycle from which scans are regular
    scan_every: Array  # () cycles between regular scans, not necessarily whole
    unscheduled: Array  # () probability per cycle that growth past RECIST's limit is noticed between scans
    scan_error: Array  # () relative sd
    new_lesion: Array  # () hazard per log growth between scans
    ctdna_error: Array  # () log sd
    ctdna_spread: Array  # () log10 sd
    laboratory_error: Array  # () relative sd
    marker_detection: Array  # () share of the tumour
    travel: Array  # (C,) km to the clinic and back, by case
    visits: Array  # (R,) per cycle
    drug_kg: Array  # (R,) kg CO2e of the drugs of a cycle
    clinic_kg: Array  # (R,) kg CO2e of a cycle's infusions, and of its visits with blood panels, without travel
    tests_kg: Array  # (T,) kg CO2e per test
    items_kg: Array  # (6,) kg CO2e of a CT, an MRI, a bed day, a km, a prompt, an inference


ITEMS = ("ct", "mri", "bed_day", "km", "prompt", "inference")
"""Rows of ``Params.items_kg``."""

TABLETS = {"oral": 1.0, "oral+iv": 0.5}
"""Share of a regimen's kill that depends on tablets, by its route."""

MONITORING = ("unscheduled", "scan_error", "new_lesion", "ctdna_error", "ctdna_spread", "laboratory_error", "marker_detection")
"""Fields of the card's table ``observation`` that :class:`Params` has under the same name."""

EARLY_SCANS = 4
"""Most scans that a schedule may have before regular ones begin."""

EFFECTS = ("growth", "initial", "frailty", "hazard", "ctdna")
"""Random effects of every patient, followed by one per mechanism and one per clone."""


def effect_names(card: Card) -> tuple[str, ...]:
    """Names of a patient's random effects, in the order in which a cohort stores them."""
    return (
        *EFFECTS,
        *(f"mechanism:{mechanism.name}" for mechanism in card.mechanisms),
        *(f"clone:{clone.name}" for clone in card.clones),
    )


def columns_of(variable: Variable) -> tuple[str, ...]:
    """The observation columns of a variable: itself, or one per level."""
    if isinstance(variable, Categorical):
        return tuple(level if level in variable.flags else f"{variable.name}={level}" for level in variable.levels)
    return (variable.name,)


def column_range(variable: Variable) -> tuple[float, float]:
    """The raw values shown as 0 and 1."""
    match variable:
        case Normal():
            return variable.low, variable.high
        case Lognormal():
            return 0.0, variable.high
        case Ordinal():
            return variable.values[0], variable.values[-1]
    return 0.0, 1.0


def group_names(variable: Variable) -> tuple[str, ...]:
    """The groups of a protected attribute."""
    return variable.outcomes if isinstance(variable, Discrete) else ("no", "yes")


@functools.lru_cache(maxsize=32)
def scenario(card: Card) -> Scenario:
    """The static side of ``card``."""
    tests = tuple(test.name for test in card.tests)
    shown = [variable for variable in card.variables if variable.observed and variable.name != card.performance.variable]
    traits = [(column, variable) for variable in shown if variable.test is None for column in columns_of(variable)]
    markers = [(column, variable) for variable in shown if variable.test is not None for column in columns_of(variable)]
    return Scenario(
        id=card.id,
        digest=digest(card),
        cycle_weeks=card.cycle_weeks,
        horizon=card.horizon_cycles,
        mechanisms=tuple(mechanism.name for mechanism in card.mechanisms),
        immune=tuple(mechanism.kind == "immune" for mechanism in card.mechanisms),
        static=tuple(mechanism.kind == "static" for mechanism in card.mechanisms),
        regimens=tuple(regimen.name for regimen in card.regimens),
        clones=tuple(clone.name for clone in card.clones),
        organs=tuple(organ.name for organ in card.organs),
        tests=tests,
        repeated=tuple(test.repeated_at_progression for test in card.tests),
        traits=tuple(column for column, _ in traits),
        biomarkers=tuple(column for column, _ in markers),
        biomarker_test=tuple(tests.index(str(variable.test)) for _, variable in markers),
        fields=_fields(card, traits, markers),
        levels=tuple((variable.name, columns_of(variable)) for variable in shown if isinstance(variable, Categorical)),
        groups=tuple((variable.name, group_names(variable)) for variable in card.variables if variable.protected),
    )


def _fields(card: Card, traits: Columns, markers: Columns) -> tuple[Field, ...]:
    horizon = float(card.horizon_cycles)

    def shown(columns: Columns) -> list[tuple[str, str, float, float]]:
        counted = (Ordinal, Normal, Lognormal)
        return [
            (column, variable.unit or ("points" if isinstance(variable, counted) else "0 or 1"), *column_range(variable))
            for column, variable in columns
        ]

    blocks: dict[str, list[tuple[str, str, float, float]]] = {
        "trait": shown(traits),
        "biomarker": shown(markers),
        "test": [(f"known_{test.name}", "0 or 1", 0.0, 1.0) for test in card.tests],
        "course": [
            ("cycle", "cycles", 0.0, horizon),
            ("line", "lines of therapy started", 0.0, 8.0),
            ("ecog", "ECOG points", 0.0, 4.0),
            ("progressed", "0 or 1", 0.0, 1.0),
            ("diameter", "mm, sum at the last scan", 0.0, 600.0),
            ("change_from_baseline", "share of the sum at the start of the line", -1.0, 2.0),
            ("change_from_nadir", "share of the smallest sum of the line", 0.0, 2.0),
            ("cycles_since_scan", "cycles", 0.0, 12.0),
            ("ctdna", "log10 molecules per ml", 0.0, 6.0),
            ("ldh", "upper limits of normal", 0.0, 6.0),
            ("albumin", "g/l", 15.0, 55.0),
            ("neutrophils", "10^9/l", 0.0, 10.0),
            ("held", "share of the next dose withheld", 0.0, 1.0),
            ("hospital_days", "days in the last cycle", 0.0, 21.0),
        ],
        "toxicity": [(f"toxicity_{organ.name}", "CTCAE grade", 0.0, 5.0) for organ in card.organs],
        "marker": [(f"marker_{clone.name}", "0 or 1", 0.0, 1.0) for clone in card.clones[1:]],
        "regimen": [(f"regimen_{regimen.name}", "0 or 1, last cycle", 0.0, 1.0) for regimen in card.regimens],
        "exposure": [(f"prior_{regimen.name}", "cycles received", 0.0, horizon) for regimen in card.regimens],
    }
    rows = [(*row, block) for block, some in blocks.items() for row in some]
    return tuple(Field(name, unit, index, low, high, block) for index, (name, unit, low, high, block) in enumerate(rows))


def params(card: Card) -> Params:
    """The arrays of ``card``."""
    regimens, organs, survival = card.regimens, card.organs, card.survival
    mechanisms = [mechanism.name for mechanism in card.mechanisms]
    immune = np.array([mechanism.kind == "immune" for mechanism in card.mechanisms], float)
    first = immune * (np.cumsum(immune) == 1)

    def each(rows: Iterable[Any], *names: str) -> dict[str, Any]:
        return {name: [getattr(row, name) for row in rows] for name in names}

    values = {
        "regimens": _regimens(card),
        "induction": [regimen.induction.cycles if regimen.induction else 1e6 for regimen in regimens],
        "max_cycles": [regimen.max_cycles or 1e6 for regimen in regimens],
        **each(regimens, "max_ecog", "active", "carryover"),
        "sensitivity": _cases(mechanism.sensitivity for mechanism in card.mechanisms),
        "sensitivity_spread": [mechanism.spread for mechanism in card.mechanisms],
        "fading": [mechanism.fading_per_cycle for mechanism in card.mechanisms],
        "resistance": [[clone.resistance.get(name, 0.0) for name in mechanisms] for clone in card.clones],
        "fraction": _cases(clone.log10_fraction for clone in card.clones),
        "fraction_spread": [clone.spread for clone in card.clones],
        "fitness": [1 - clone.fitness_cost for clone in card.clones],
        "flux": _flux(card),
        "growth": _cases([card.growth.per_cycle])[0],
        "growth_spread": card.growth.spread,
        "log_capacity": np.log(card.growth.capacity_cm3),
        "log_reference": np.log(card.growth.reference_cm3),
        "initial": _cases([card.growth.initial_cm3])[0],
        "initial_spread": card.growth.initial_spread,
        "lesions": _cases([card.growth.lesions])[0],
        "beyond": card.growth.beyond_progression,
        "changeover": min(card.growth.changeover_weeks / card.cycle_weeks, 1.0),
        "immune_onset": card.immune.onset,
        "immune_waning": card.immune.waning,
        "immune_memory": card.immune.memory_half,
        "first_immune": first,
        "immune_shared": card.immune.shared * (immune - first),
        **each(organs, "recovery", "hospital_days", "disutility"),
        "fatal": [-np.log1p(-min(organ.fatal, 0.999)) for organ in organs],
        "onset_cycles": card.toxicity.onset_cycles,
        "toxicity_spread": card.toxicity.spread,
        "background": survival.background_per_cycle,
        "tumour_hazard": survival.tumour_per_cycle,
        "burden_exponent": survival.burden_exponent,
        "ecog_log_hazard": np.log(survival.per_ecog),
        "failed_log_hazard": np.log(survival.per_failed_line),
        "hazard_spread": survival.spread,
        "burden_weight": card.performance.burden_weight,
        "toxicity_weight": card.performance.toxicity_weight,
        "performance_rate": card.performance.rate,
        "utility": [card.utility.base, card.utility.per_ecog, card.utility.progressed, card.utility.per_infusion],
        **schedule(card, ()),
        **{name: getattr(card.observation, name) for name in MONITORING},
        **_footprints(card),
    }
    return Params(**{name: np.asarray(value, np.float32) for name, value in values.items()})


def _regimens(card: Card) -> NDArray[np.float64]:
    """(2R, M + O + 4) the table of regimens; see :class:`Params`."""
    early, late = (np.array([_kill(card, regimen, late) for regimen in card.regimens]) for late in (False, True))
    severe = np.array([_severe(card, regimen) for regimen in card.regimens])
    rest = np.array([[r.burden, _discontinue(r), TABLETS.get(r.route, 0.0), r.infusions_per_cycle] for r in card.regimens])
    after = np.array([[regimen.induction.toxicity_after if regimen.induction else 1.0] for regimen in card.regimens])
    lasting = rest * np.concatenate([after, np.ones((len(rest), 3))], 1)
    return np.block([[early, severe, rest], [late, severe * after, lasting]])


def _flux(card: Card) -> NDArray[np.float64]:
    """(K, K) what clones become in a cycle; see :class:`Params`."""
    clones = [clone.name for clone in card.clones]
    flux = np.zeros((len(clones), len(clones)))
    for row, clone in enumerate(card.clones):
        if clone.acquired:
            origin = clones.index(clone.acquired.origin)
            flux[row, origin] = clone.acquired.per_cycle
            flux[origin, origin] -= clone.acquired.per_cycle
    return flux


def _footprints(card: Card) -> dict[str, Any]:
    kg = {item: footprint(card, item) for item in ("visit", "infusion", "blood_panel", *ITEMS)}
    visit = kg["visit"] + kg["blood_panel"]
    return {
        "travel": _cases([card.access.travel_km])[0],
        "visits": [regimen.visits_per_cycle for regimen in card.regimens],
        "drug_kg": [regimen.drug_kgco2e_per_cycle for regimen in card.regimens],
        "clinic_kg": [r.infusions_per_cycle * kg["infusion"] + r.visits_per_cycle * visit for r in card.regimens],
        "tests_kg": [test.kgco2e for test in card.tests],
        "items_kg": [kg[item] for item in ITEMS],
    }


def footprint(card: Card, item: str) -> float:
    """Kg CO2e of an item at the card's clinic, with electricity at the grid intensity of the card's zone and hour."""
    for row in card.footprints:
        if row.item == item:
            here = intensity(card.grid_zone)[card.clinic_hour] / intensity(row.measured_in).mean() if row.grid_share else 1.0
            return row.kgco2e * (1 - row.grid_share + row.grid_share * float(here))
    return 0.0


def schedule(card: Card, weeks: Sequence[float]) -> dict[str, NDArray[np.float32]]:
    """The scan schedule, as fields of :class:`Params`.

    Args:
        card: a validated card.
        weeks: weeks between scans, with the last one repeated; if empty, the card's own schedule.
    """
    intervals = [week / card.cycle_weeks for week in weeks] or [float(card.observation.scan_every_cycles)]
    early = np.cumsum(intervals[:-1])
    if len(early) > EARLY_SCANS:
        raise ValueError(f"{len(early)} intervals before the regular one, expected at most {EARLY_SCANS}")
    values = {
        "scan_early": [*early, *[1e6] * (EARLY_SCANS - len(early))],
        "scan_start": early[-1] if len(early) else 0.0,
        "scan_every": intervals[-1],
    }
    return {name: np.asarray(value, np.float32) for name, value in values.items()}


def _cases(rows: Iterable[tuple[Case, ...]]) -> NDArray[np.float64]:
    """(rows, C) the value of each case; the default fills rows up to the widest."""
    lists = [[case.value for case in row] for row in rows]
    width = max(map(len, lists))
    return np.array([values + [values[-1]] * (width - len(values)) for values in lists])


def _kill(card: Card, regimen: Regimen, late: bool) -> list[float]:
    dropped = regimen.induction.drops if late and regimen.induction else ()
    return [0.0 if m.name in dropped else regimen.kill.get(m.name, 0.0) for m in card.mechanisms]


def _severe(card: Card, regimen: Regimen) -> list[float]:
    """First-cycle hazards that, fading by exp(-1/onset) per cycle, give the published share over a full course."""
    onset = card.toxicity.onset_cycles
    fade = (1 - np.exp(-1 / onset)) / (1 - np.exp(-(regimen.max_cycles or 1e6) / onset))
    return [float(-np.log1p(-min(regimen.toxicity.get(organ.name, 0.0), 0.99)) * fade) for organ in card.organs]


def _discontinue(regimen: Regimen) -> float:
    severe = 1 - float(np.prod([1 - share for share in regimen.toxicity.values()]))
    return min(1.0, regimen.discontinuation / severe) if severe > 0 else 0.0
