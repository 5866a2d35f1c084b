"""The schema of a card: one pydantic model per table of the TOML file.

Field names carry their unit (``_per_cycle``, ``_cm3``, ``_days``), or the docstring gives it. Every table with a figure
names its ``source``. Unknown keys are refused. Cross-references are checked in :mod:`onco_gym.cards.checks`.
"""

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from onco_gym.cards.expressions import LARGEST

SMALLEST = 1 / LARGEST
"""Smallest number where 0 has no meaning, because the simulator divides by it or takes its logarithm in single precision."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=48)]
Number = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST)]
"""A number, whole or not, but not ``true`` or text. Every figure on a card is one of these, or a :data:`Whole`."""
Whole = Annotated[int, Field(strict=True, ge=-int(LARGEST), le=int(LARGEST))]
Truth = Annotated[bool, Field(strict=True)]
Probability = Annotated[Number, Field(ge=0, le=1)]
Positive = Annotated[Number, Field(ge=SMALLEST)]
NonNegative = Annotated[Number, Field(ge=0)]
Landmark = Annotated[str, Field(pattern=r"^(PFS|OS)\d{1,3}$")]
"""PFS or OS followed by a number of months, as in OS60."""
Tier = Literal["demographic", "biology", "social", "access"]
Sources = Annotated[
    tuple[str, ...], Field(min_length=1), BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]


class Table(BaseModel):
    """A TOML table that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Sourced(Table):
    """A table whose figures have sources: ``source`` names entries of ``[sources]``."""

    source: Sources


class Source(Table):
    """A citation. ``checked`` says how far its figures were verified."""

    cite: str = Field(min_length=3)
    doi: str = ""
    checked: Literal["seen", "partly", "recalled", "estimate"]


class Case(Table):
    """One branch of a rule. The first case whose ``when`` holds gives ``value``; the last case has no ``when``."""

    when: str = ""
    value: Number


class WeightCase(Table):
    """One branch of a categorical distribution: relative weights in the order of the levels."""

    when: str = ""
    weights: tuple[NonNegative, ...]


class Effect(Table):
    """``times`` raised to the value of the expression ``of`` (a condition counts as 1 where it holds)."""

    of: str
    times: Positive
    level: str = ""


AnyCase = TypeVar("AnyCase", Case, WeightCase)


def _last_is_default(cases: tuple[AnyCase, ...]) -> tuple[AnyCase, ...]:
    if any(not case.when for case in cases[:-1]):
        raise ValueError("a 'when' in every case but the last, because the cases after one without it never apply")
    if cases[-1].when:
        raise ValueError("no 'when' in the last case, because patients outside every case would have no value")
    return cases


def _as_cases(value: object) -> object:
    return [{"value": value}] if isinstance(value, int | float) else value


Cases = Annotated[tuple[Case, ...], Field(min_length=1), BeforeValidator(_as_cases), AfterValidator(_last_is_default)]
"""A number, or a list of cases with a default at the end."""


def _within(low: float, high: float = LARGEST) -> AfterValidator:
    def check(cases: tuple[Case, ...]) -> tuple[Case, ...]:
        for case in cases:
            if not low <= case.value <= high:
                raise ValueError(f"numbers from {low:g} to {high:g}, got {case.value:g}")
        return cases

    return AfterValidator(check)


ProbabilityCases = Annotated[Cases, _within(0, 1)]
PositiveCases = Annotated[Cases, _within(SMALLEST)]
NonNegativeCases = Annotated[Cases, _within(0)]


class Variable(Sourced):
    """A node of the patient graph.

    ``tier`` says what kind of thing it is. Social and access variables are never parents of biology.
    A variable with a ``test`` is hidden from agents until its result is known. With ``observed = false`` it is always hidden.
    """

    name: Name
    tier: Tier
    unit: str = ""
    parents: tuple[Name, ...] = ()
    protected: Truth = False
    observed: Truth = True
    test: Name | None = None


class Bernoulli(Variable):
    """True with probability ``probability``; ``odds`` multiply the odds."""

    kind: Literal["bernoulli"]
    probability: ProbabilityCases
    odds: tuple[Effect, ...] = ()


def _as_weight_cases(value: object) -> object:
    return [{"weights": value}] if isinstance(value, list) and value and not isinstance(value[0], dict) else value


class Discrete(Variable):
    """A variable with finitely many outcomes, drawn by relative ``weights``; ``odds`` multiply the weight of one level."""

    weights: Annotated[
        tuple[WeightCase, ...], Field(min_length=1), BeforeValidator(_as_weight_cases), AfterValidator(_last_is_default)
    ]
    odds: tuple[Effect, ...] = ()

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The names of the outcomes, in the order of the weights."""
        raise AssertionError("Discrete is abstract")

    @model_validator(mode="after")
    def _shape(self) -> "Discrete":
        if len(set(self.outcomes)) != len(self.outcomes):
            raise ValueError(f"distinct outcomes, got {list(self.outcomes)}")
        for case in self.weights:
            if len(case.weights) != len(self.outcomes):
                raise ValueError(f"{len(self.outcomes)} weights, one per outcome, got {len(case.weights)}")
            if sum(case.weights) <= 0:
                raise ValueError("weights that add up to more than 0")
        for effect in self.odds:
            if effect.level not in self.outcomes:
                raise ValueError(f"a level among {list(self.outcomes)}, got {effect.level!r}")
        return self


class Categorical(Discrete):
    """One of ``levels``. ``flags`` adds a true/false column of that name for each level listed."""

    kind: Literal["categorical"]
    levels: tuple[str, ...] = Field(min_length=2)
    flags: tuple[Name, ...] = ()

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The levels."""
        return self.levels

    @model_validator(mode="after")
    def _flags(self) -> "Categorical":
        for name in self.flags:
            if name not in self.levels:
                raise ValueError(f"flags among the levels {list(self.levels)}, got {name!r}")
        return self


class Ordinal(Discrete):
    """One of the numbers ``values``, in rising order."""

    kind: Literal["ordinal"]
    values: tuple[Number, ...] = Field(min_length=2)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The values as text."""
        return tuple(f"{value:g}" for value in self.values)

    @model_validator(mode="after")
    def _rising(self) -> "Ordinal":
        if list(self.values) != sorted(self.values):
            raise ValueError(f"values in rising order, got {list(self.values)}")
        return self


class Normal(Variable):
    """Normal with ``mean`` and ``sd``, truncated to ``low``..``high``."""

    kind: Literal["normal"]
    mean: Cases
    sd: Positive
    low: Number
    high: Number

    @model_validator(mode="after")
    def _order(self) -> "Normal":
        if not self.low < self.high:
            raise ValueError(f"low below high, got {self.low} and {self.high}")
        return self


class Lognormal(Variable):
    """Lognormal with ``median`` and log-scale ``sd``, cut at ``high``; ``effects`` multiply the median."""

    kind: Literal["lognormal"]
    median: PositiveCases
    sd: Positive
    high: Positive
    effects: tuple[Effect, ...] = ()


class Derived(Variable):
    """True where the condition ``holds``; it has no chance of its own."""

    kind: Literal["derived"]
    holds: str


AnyVariable = Annotated[Bernoulli | Categorical | Ordinal | Normal | Lognormal | Derived, Field(discriminator="kind")]


class Mechanism(Sourced):
    """What a drug does to a tumour. ``direct`` kills now, ``static`` slows growth, ``immune`` raises a lasting immune response.

    ``sensitivity`` is a patient's median sensitivity (1 = the regimen's full kill), ``spread`` its sd on the log scale.
    The effect fades as the tumour adapts, by exp(-``fading_per_cycle``) with each cycle received under any regimen. An immune
    response does not fade.
    """

    name: Name
    kind: Literal["direct", "static", "immune"] = "direct"
    title: str
    sensitivity: NonNegativeCases
    spread: NonNegative
    fading_per_cycle: Annotated[Number, Field(ge=0, le=0.5)] = 0
    modifiers: tuple[Effect, ...] = ()


class Induction(Table):
    """After ``cycles`` cycles of a regimen, the mechanisms ``drops`` stop and toxicity is scaled by ``toxicity_after``."""

    cycles: Whole = Field(ge=1)
    drops: tuple[Name, ...] = ()
    toxicity_after: NonNegative = 1.0


class Regimen(Sourced):
    """A treatment that can be given. ``kill`` is log cell kill per cycle at sensitivity 1, by mechanism.

    ``toxicity`` is the share of patients with a grade 3+ event over a course, by organ class; ``burden`` is the standing
    low-grade toxicity in grades; ``discontinuation`` is the share who stop for toxicity over a course.
    ``carryover`` is the share of a cycle's drug level that remains a cycle later; it matters where doses vary.
    ``label_cycle_weeks`` is the label's cycle, for documentation only; the environment steps in the card's cycles.
    """

    name: Name
    title: str
    route: Literal["none", "oral", "iv", "oral+iv"]
    label_cycle_weeks: Positive | None = None
    infusions_per_cycle: NonNegative = 0
    visits_per_cycle: NonNegative
    drug_kgco2e_per_cycle: NonNegative = 0
    carryover: Annotated[Number, Field(ge=0, lt=1)] = 0
    max_cycles: Whole | None = Field(default=None, ge=1)
    max_ecog: Whole = Field(default=4, ge=0, le=4)
    kill: dict[Name, NonNegative] = {}
    toxicity: dict[Name, Probability] = {}
    burden: NonNegative = 0
    discontinuation: Probability = 0
    induction: Induction | None = None

    @property
    def active(self) -> bool:
        """Whether it is an anti-cancer treatment, unlike a holiday or supportive care."""
        return bool(self.kill)


class Acquired(Table):
    """In each cycle, a share ``per_cycle`` of the cells of clone ``origin`` turns into this clone."""

    origin: Name
    per_cycle: Annotated[Number, Field(ge=0, le=0.1)]


class Clone(Sourced):
    """A subpopulation. ``resistance`` is the share of a mechanism's kill that it escapes.

    ``log10_fraction`` is its share of the tumour at diagnosis, ``spread`` the sd between patients, both in log10 units.
    """

    name: Name
    title: str
    resistance: dict[Name, Probability] = {}
    log10_fraction: Cases = (Case(value=0.0),)
    spread: NonNegative = 0
    fitness_cost: Annotated[Number, Field(ge=0, lt=1)] = 0
    acquired: Acquired | None = None


class Growth(Sourced):
    """Gompertz growth. ``per_cycle`` is the relative growth per cycle at ``reference_cm3``.

    ``beyond_progression`` is the share of its kill that a regimen keeps after the tumour has progressed under it.
    ``changeover_weeks`` is the time between the last dose of one anti-cancer regimen and the first of another.
    """

    capacity_cm3: Positive
    reference_cm3: Positive
    per_cycle: PositiveCases
    spread: NonNegative
    initial_cm3: PositiveCases
    initial_spread: NonNegative
    lesions: PositiveCases
    beyond_progression: Probability
    changeover_weeks: NonNegative


class Immune(Sourced):
    """The immune response. ``onset`` and ``waning`` are per cycle; at the response ``memory_half``, waning is halved.

    ``shared`` is the correlation, between patients, of the sensitivity to each other immune mechanism with that to the
    first. A tumour that immune cells do not enter responds to none of them.
    """

    onset: Probability
    waning: Probability
    memory_half: Positive
    shared: Annotated[Number, Field(ge=0, lt=1)] = 0


class Organ(Sourced):
    """An organ class of toxicity.

    ``recovery`` is per cycle, ``hospital_days`` and ``fatal`` (a share) are per grade 3+ event, and ``disutility`` is per grade.
    """

    name: Name
    title: str
    recovery: Probability
    hospital_days: NonNegative
    fatal: Probability
    disutility: NonNegative


class Toxicity(Sourced):
    """Toxicity. ``onset_cycles`` is the e-folding time of the risk after a regimen starts; ``effects`` multiply every rate."""

    onset_cycles: Positive
    spread: NonNegative
    effects: tuple[Effect, ...] = ()


class Survival(Sourced):
    """Hazard of death per cycle: ``background`` plus ``tumour`` x (V/reference)^``burden_exponent`` x performance.

    ``per_ecog`` multiplies the tumour's part for each ECOG point above 1, ``per_failed_line`` for each progression so far.
    """

    background_per_cycle: NonNegative
    tumour_per_cycle: NonNegative
    burden_exponent: Positive
    per_ecog: Positive
    per_failed_line: Annotated[Number, Field(ge=1)]
    spread: NonNegative
    effects: tuple[Effect, ...] = ()


class Performance(Sourced):
    """ECOG as a continuous state. It starts at ``variable``; burden and toxicity pull it at ``rate`` per cycle."""

    variable: Name
    burden_weight: NonNegative
    toxicity_weight: NonNegative
    rate: Probability


class Utility(Sourced):
    """Health utility (0 dead, 1 full health) and what lowers it.

    ``progressed`` is lost from progression until a scan in a later line shows that the tumour no longer grows.
    """

    base: Probability
    per_ecog: NonNegative
    progressed: NonNegative
    per_infusion: NonNegative


class Test(Sourced):
    """A diagnostic test. The variable ``access`` says whether it is done. The result comes after the turnaround."""

    name: Name
    title: str
    turnaround_days: NonNegative
    access: Name
    delay: Name | None = None
    kgco2e: NonNegative
    cost_usd: NonNegative
    repeated_at_progression: Truth = False


class Workup(Sourced):
    """What can be ordered besides the card's tests.

    ``ctdna_detection`` is the level, in log10 molecules per ml, from which sequencing detects the tumour.
    ``longest_interval_cycles`` is the longest time between two visits.
    """

    ctdna_cost_usd: NonNegative
    ctdna_kgco2e: NonNegative
    ctdna_detection: NonNegative
    ct_cost_usd: NonNegative
    mri_cost_usd: NonNegative
    longest_interval_cycles: Whole = Field(ge=1, le=12)


class Observation(Sourced):
    """How the patient is monitored. Errors are relative sd, except that ctDNA's is a log sd and its spread a log10 sd.

    ``unscheduled`` is the probability per cycle that a tumour past RECIST's limit is noticed, and scanned, between scans.
    Where ``not_measurable`` holds, trials count no response, whatever the tumour does.
    """

    scan_every_cycles: Whole = Field(ge=1)
    unscheduled: Probability
    not_measurable: str = ""
    scan_error: Annotated[Number, Field(ge=0, le=0.25)]
    new_lesion: NonNegative
    ctdna_error: NonNegative
    ctdna_spread: NonNegative
    laboratory_error: Annotated[Number, Field(ge=0, le=0.15)]
    marker_detection: Probability


class Access(Sourced):
    """The variables through which social position acts: days from diagnosis to treatment, and the share of tablets taken.

    A journey starts ``usual_delay_days`` after diagnosis. If a patient waits longer, the tumour stays untreated until then.
    ``travel_km`` is the distance to the clinic and back.
    """

    treatment_delay: Name
    usual_delay_days: NonNegative
    adherence: Name
    travel_km: NonNegativeCases


class Footprint(Sourced):
    """kg CO2e of one item. A share ``grid_share`` is electricity, at the grid intensity of the zone ``measured_in``.

    Visits and infusions are the clinic's part, without the patient's travel. A prompt is a query to a language model, an
    inference one to a small model.
    """

    item: Literal["visit", "infusion", "ct", "mri", "blood_panel", "bed_day", "km", "prompt", "inference"]
    kgco2e: NonNegative
    grid_share: Probability = 0
    measured_in: str = ""


Status = Literal["preferred", "option", "later", "not_recommended", "contraindicated"]
Level = Literal["A", "B", "C", "D", "E"]


class Rule(Sourced):
    """A guideline statement: for patients for whom ``when`` is known to hold, at these lines, ``regimen`` has this status."""

    regimen: Name
    lines: tuple[Annotated[Whole, Field(ge=1)], ...] = ()
    when: str = ""
    status: Status
    level: Level
    escat: str = ""


class Expert(Sourced):
    """One voice of the panel: which recommendations a physician of this kind accepts.

    The expert accepts rules with a status in ``accepts`` and evidence of at least ``level``; with ``early``, also at lines
    other than the rule's. Patients for whom ``frail`` holds get no regimen with a grade 3+ share above ``max_toxicity``.
    """

    name: Name
    title: str
    accepts: tuple[Status, ...] = Field(min_length=1)
    level: Level
    early: Truth = False
    max_toxicity: Probability = 1
    frail: str = ""


class Reward(Sourced):
    """Weights that turn each term into quality-adjusted life years.

    They are per quality-adjusted life year, per guideline point, per nat of divergence, and per tonne CO2e.
    """

    outcome: NonNegative
    guideline: NonNegative
    fairness: NonNegative
    carbon: NonNegative


class Inverse(Sourced):
    """Weights for inferring decisions from an observed course (:mod:`onco_gym.verification`).

    ``mismatch`` multiplies the misfit of scans, ctDNA and toxicity, in nats. ``guideline`` is the cost of a cycle that no
    expert would accept, ``consistency`` that of a change of regimen, both in nats.
    """

    mismatch: NonNegative
    guideline: NonNegative
    consistency: NonNegative


class Arm(Sourced):
    """One arm of a published trial. Percentages are shares (0..1), times are in months, and missing keys were not reported.

    ``protocol`` and ``prior`` are regimens in order, separated by ``>``; see :mod:`onco_gym.cards.protocols`. Regimens after
    the trial's own stand for later treatment; a share such as ``osimertinib(31%)`` is the crossover.
    ``scan_weeks`` are the weeks between scans, with the last one repeated: ``[6, 6, 9]`` scans at weeks 6, 12, 21, 30, ...
    """

    trial: str
    year: Whole = Field(ge=1980, le=2100)
    population: str
    published_population: str
    line: Whole = Field(ge=1, le=4)
    prior: str = ""
    protocol: str
    control: Truth
    use: Literal["fit", "check"]
    n: Whole | None = Field(default=None, ge=1)
    response: Probability | None = None
    pfs_months: Positive | None = None
    pfs_interval: tuple[Number, Number] | None = None
    os_months: Positive | None = None
    os_interval: tuple[Number, Number] | None = None
    pfs_hazard_ratio: Positive | None = None
    pfs_hazard_ratio_interval: tuple[Number, Number] | None = None
    os_hazard_ratio: Positive | None = None
    os_hazard_ratio_interval: tuple[Number, Number] | None = None
    grade3: Probability | None = None
    discontinuation: Probability | None = None
    adverse_events: Literal["", "all_cause", "treatment_related"] = ""
    landmarks: dict[Landmark, Probability] = {}
    scan_weeks: Annotated[
        tuple[Positive, ...],
        Field(min_length=1, max_length=5),
        BeforeValidator(lambda v: v if isinstance(v, list | tuple) else [v]),
    ] = (6.0,)
    note: str = ""


class Calibration(Table):
    """What a card's figures were last fitted on. ``onco-gym calibrate`` writes this table; do not edit it by hand."""

    trials: tuple[str, ...]
    patients: Whole = Field(ge=1)
    seed: Whole = Field(ge=0)
    rounds: Whole = Field(ge=0)
    loss: NonNegative


class Card(Table):
    """A disease. CONTRIBUTING.md says how to write a card. Cards are hashable, so that results can be cached."""

    def __hash__(self) -> int:
        return hash(self.id)

    id: Name
    title: str
    summary: str
    cycle_weeks: Positive
    horizon_cycles: Whole = Field(ge=2, le=2000)
    grid_zone: str = Field(pattern=r"^[A-Z]{3}$")
    clinic_hour: Whole = Field(ge=0, le=23)
    sources: dict[Name, Source]
    variables: tuple[AnyVariable, ...] = Field(min_length=1)
    mechanisms: tuple[Mechanism, ...] = Field(min_length=1)
    regimens: tuple[Regimen, ...] = Field(min_length=2)
    clones: tuple[Clone, ...] = Field(min_length=1)
    growth: Growth
    immune: Immune
    organs: tuple[Organ, ...] = Field(min_length=1)
    toxicity: Toxicity
    survival: Survival
    performance: Performance
    utility: Utility
    tests: tuple[Test, ...] = Field(min_length=1)
    workup: Workup
    observation: Observation
    access: Access
    footprints: tuple[Footprint, ...] = ()
    experts: tuple[Expert, ...] = Field(min_length=1)
    guideline: tuple[Rule, ...] = Field(min_length=1)
    reward: Reward
    inverse: Inverse
    arms: tuple[Arm, ...] = ()
    calibration: Calibration | None = None
