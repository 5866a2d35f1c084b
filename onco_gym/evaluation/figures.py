"""The figures of an evaluation: what an agent's patients gain, with intervals, and how it compares with other agents."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, computed_field

from onco_gym.agents import Episodes
from onco_gym.evaluation.statistics import bootstrap_interval, interquartile_mean, probability_of_improvement, ratio_interval
from onco_gym.evaluation.yardsticks import PLANNER, yardstick
from onco_gym.fairness import DivergenceReport
from onco_gym.foundation.files import write_json
from onco_gym.foundation.intervals import UNKNOWN, Interval, mean, mean_by_patient, rate
from onco_gym.foundation.results import Figure, from_plain, read_plain, to_plain
from onco_gym.foundation.units import WEEKS_PER_MONTH
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.stamp import Stamp
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.rewards import TERMS
from onco_gym.trials.statistics import Times

RANDOM, GUIDELINE = "random", "guideline"
"""The agents evaluated beside every other. Random play has the score 0, the guideline a known share of 100."""
YEARS = (1, 3, 5)


class EvaluationError(ValueError):
    """An evaluation that cannot be made or read. The message says what was expected."""


def _listed(values: NDArray[Any]) -> list[Any]:
    if values.dtype.kind != "f":
        return values.tolist()
    return [float(str(value)) for value in values.astype(np.float32)]  # 0.1, not the 17 digits of the nearest float64


Numbers = Annotated[
    NDArray[np.float64],
    PlainValidator(lambda values: np.asarray(values, np.float32).astype(np.float64)),
    PlainSerializer(_listed),
]
"""Float32 numbers. Files hold them with as few digits as identify them."""
Counts = Annotated[NDArray[np.int64], PlainValidator(lambda values: np.asarray(values, np.int64)), PlainSerializer(_listed)]
Truths = Annotated[NDArray[np.bool_], PlainValidator(lambda values: np.asarray(values, bool)), PlainSerializer(_listed)]


@dataclass(frozen=True, eq=False)
class Runs:
    """Episodes of one agent, patient by patient; n patients.

    Attributes:
        returns: (n,) total reward.
        terms: name to (n,) total of each reward term.
        weeks: (n,) weeks lived within follow-up.
        died: (n,) whether the patient died within follow-up.
        decisions, concordant: (n,) number of decisions, and of those inside the acceptability region.
        carbon_kg: (n,) kg CO2e.
        cost_usd: (n,) cost of the tests that were ordered.
        severe: (n,) whether a grade 3+ event happened.
    """

    returns: Numbers
    terms: dict[str, Numbers]
    weeks: Numbers
    died: Truths
    decisions: Counts
    concordant: Counts
    carbon_kg: Numbers
    cost_usd: Numbers
    severe: Truths

    def __post_init__(self) -> None:
        every = [*self.terms.values(), *(getattr(self, one.name) for one in fields(self) if one.name != "terms")]
        shapes = {values.shape for values in every}
        if set(self.terms) != set(TERMS) or shapes != {(self.returns.size,)} or not np.isfinite(every).all():
            raise EvaluationError("the figures of its patients are not finite, or differ in length")

    def __len__(self) -> int:
        return len(self.returns)

    @classmethod
    def of(cls, episodes: Episodes) -> "Runs":
        """The runs of episodes."""
        return cls(
            returns=episodes.returns.astype(np.float64),
            terms={name: values.astype(np.float64) for name, values in episodes.terms.items()},
            weeks=episodes.weeks.astype(np.float64),
            died=episodes.died,
            decisions=(episodes.verdicts >= 0).sum(0),
            concordant=(episodes.verdicts >= VERDICTS.index("later")).sum(0),
            carbon_kg=episodes.carbon_kg.astype(np.float64),
            cost_usd=episodes.cost_usd.astype(np.float64),
            severe=episodes.severe,
        )

    @classmethod
    def joined(cls, parts: Sequence["Runs"]) -> "Runs":
        """The runs of several parts, in order."""
        arrays = {one.name: [getattr(part, one.name) for part in parts] for one in fields(cls) if one.name != "terms"}
        terms = {name: np.concatenate([part.terms[name] for part in parts]) for name in TERMS}
        return cls(terms=terms, **{name: np.concatenate(some) for name, some in arrays.items()})

    @property
    def overall(self) -> Times:
        """Overall survival."""
        return Times(self.weeks / WEEKS_PER_MONTH, self.died)


@dataclass(frozen=True)
class Reference:
    """The scale of the score: 0 is the random agent, 100 the agent ``name``.

    Attributes:
        name: the agent at 100: the planner, or the guideline if there is no yardstick
            (:mod:`onco_gym.evaluation.yardsticks`).
        value: its mean return on these patients; the planner's follows from random, guideline and yardstick.
        random: the random agent's mean return.
        guideline: the guideline's score.
    """

    name: str
    value: float
    random: float
    guideline: float

    @computed_field  # type: ignore[prop-decorator] # it is in files, too
    @property
    def says(self) -> str:
        """The reference in words."""
        shown = f"; the {GUIDELINE} has {self.guideline:.1f}" if self.name != GUIDELINE else ""
        return f"100 is the {self.name} agent, 0 the {RANDOM} agent{shown}"


@dataclass(frozen=True)
class Timing:
    """Median microseconds that the agent itself takes for a decision.

    Attributes:
        one_us: for one patient at a time.
        batch_us: per patient, for ``batch`` patients at once.
        batch: patients in a batch.
    """

    one_us: float
    batch_us: float
    batch: int


def _unbounded(found: Interval) -> Interval:
    """An interval that was read, whose missing bounds were infinite; one without a value cannot be told at all."""
    low, high = (-math.inf if math.isnan(found.low) else found.low), (math.inf if math.isnan(found.high) else found.high)
    return found if math.isnan(found.value) else Interval(found.value, low, high)


Bounded = Annotated[Figure, AfterValidator(_unbounded)]
"""A figure whose value is known wherever its bounds are; bounds may be infinite."""


@dataclass(frozen=True)
class Dependence:
    """How far decisions depend on one protected attribute, for one effect; see :mod:`onco_gym.fairness`."""

    nats: Bounded  # Jensen-Shannon divergence over visits, less chance
    changed: Bounded  # share of decisions that change
    cases_changed: Bounded  # share of decisions at the start of a line that change
    chance: float  # nats that chance alone would show


@dataclass(frozen=True)
class Fairness:
    """How the policy decides about patients' twins.

    Attributes:
        patients: number of patients whose twins were asked about.
        exact: whether the policy gave probabilities.
        attributes: by protected attribute and effect.
    """

    patients: int
    exact: bool
    attributes: dict[str, dict[str, Dependence]]

    @classmethod
    def of(cls, report: DivergenceReport) -> "Fairness":
        """The figures of a report."""
        attributes: dict[str, dict[str, Dependence]] = {
            name: {str(effect): Dependence(c.nats, c.changed, c.cases_changed, c.chance) for effect, c in found.contrasts.items()}
            for name, found in report.attributes.items()
        }
        return cls(report.patients, report.exact, attributes)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Summary:
    """What became of an agent's patients, with 95% intervals. Rollouts and evaluations share these figures.

    Attributes:
        stamp: what it was made with.
        episodes: number of patients.
        follow_up_months: how long patients are followed.
        returns: mean return.
        terms: mean of each reward term, in its unit.
        median_survival: months; infinite if not reached.
        survival: share alive after so many years; None beyond follow-up.
        qalys: quality-adjusted life years.
        concordance: share of decisions inside the acceptability region of the panel.
        grade3: share of patients with a grade 3+ event.
        carbon_kg: kg CO2e per patient.
        cost_usd: cost of tests per patient.
    """

    stamp: Stamp
    episodes: int
    follow_up_months: float
    returns: Annotated[Figure, Field(alias="return")]
    terms: dict[str, Figure]
    median_survival: Annotated[Figure, Field(alias="median_survival_months")]
    survival: dict[str, Figure | None]
    qalys: Figure
    concordance: Figure
    grade3: Figure
    carbon_kg: Figure
    cost_usd: Figure

    def to_json(self) -> dict[str, Any]:
        """Everything as a dictionary that ``json.dumps`` can write; None for what was not reached or is unknown."""
        plain: dict[str, Any] = to_plain(self)
        return plain


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Evaluation(Summary):
    """The result of an evaluation; see :class:`Summary` for the figures that it shares with rollouts.

    Attributes:
        agent: its name.
        seed: the seed of the first patient.
        iqm: interquartile mean of the return.
        score: score of the mean return, 0 for random and 100 for the reference.
        reference: the scale of the score.
        fairness: the exact divergence, by attribute and effect, if asked for.
        timing: time per decision; not reproducible.
        runs: the episodes behind it.
    """

    agent: str
    seed: int
    iqm: Annotated[Figure, Field(alias="return_iqm")]
    score: Figure
    reference: Reference
    fairness: Fairness | None
    timing: Timing
    runs: Runs

    def __repr__(self) -> str:
        return (
            f"Evaluation({self.agent!r} in {self.stamp.environment}, {self.episodes:,} patients, seed {self.seed}: "
            f"score {self.score:.1f}, return {self.returns:.3f})"
        )

    @classmethod
    def from_json(cls, content: Any) -> "Evaluation":
        """Read what :meth:`to_json` wrote.

        Raises:
            EvaluationError: if something is missing or has the wrong type.
        """
        try:
            found = from_plain(cls, content)
        except ValueError as error:
            raise EvaluationError(f"this is not an evaluation: {error}") from None
        n = found.episodes
        if len(found.runs) != n:
            raise EvaluationError(f"it is of {n} episodes and has the figures of {len(found.runs)} patients")
        median = Interval(*(math.inf if math.isnan(number) else number for number in found.median_survival))
        return replace(found, median_survival=known(median, n), score=known(_unbounded(found.score), n))


def write_evaluation(path: str | os.PathLike[str], evaluation: Evaluation) -> None:
    """Write an evaluation as JSON, atomically."""
    write_json(path, evaluation.to_json())


def read_evaluation(path: str | os.PathLike[str]) -> Evaluation:
    """Read what :func:`write_evaluation` wrote.

    Raises:
        EvaluationError: if the file is damaged or is not an evaluation.
    """
    try:
        return Evaluation.from_json(read_plain(path))
    except ValueError as error:  # OSError is clear by itself
        raise EvaluationError(f"{path}: {error}") from None


def improvement(first: Evaluation, second: Evaluation, seed: int = 0) -> Interval:
    """Probability that a patient of ``first`` has a higher return than another of ``second``. Ties count half."""
    return probability_of_improvement(first.runs.returns[:, None], second.runs.returns[:, None], seed=seed)


def summarise(
    engine: Engine,
    name: str,
    seed: int,
    runs: Runs,
    random: Runs,
    reference: Runs,
    report: DivergenceReport | None,
    timing: Timing,
) -> Evaluation:
    """The figures of ``runs``, beside those of the random and the guideline agent on the same patients."""
    n = len(runs)
    share = ratio_interval(runs.returns - random.returns, reference.returns - random.returns, seed=seed)
    measured = yardstick(engine)
    zero, hundred = float(random.returns.mean()), float(reference.returns.mean())
    name_of_best, reach = (PLANNER, measured.reach(zero, hundred)) if measured and hundred > zero else (GUIDELINE, 1.0)
    score = Interval(*(100 / reach * part for part in (share.value, share.low, share.high)))
    return Evaluation(
        agent=name,
        stamp=engine.stamp,
        episodes=n,
        seed=seed,
        iqm=known(bootstrap_interval(runs.returns[:, None], interquartile_mean, seed=seed), n),
        score=known(score, n),
        reference=Reference(name_of_best, zero + reach * (hundred - zero), zero, 100 / reach),
        fairness=None if report is None else Fairness.of(report),
        timing=timing,
        runs=runs,
        **outcomes(engine, runs),
    )


def outcomes(engine: Engine, runs: Runs) -> dict[str, Any]:
    """The figures of ``runs`` that need no other agent for comparison, by their names in :class:`Evaluation`."""
    n, overall = len(runs), runs.overall
    follow_up = engine.horizon * engine.scenario.cycle_weeks / WEEKS_PER_MONTH
    return {
        "follow_up_months": follow_up,
        "returns": known(mean(runs.returns), n),
        "terms": {term: known(mean(values), n) for term, values in runs.terms.items()},
        "median_survival": known(overall.median(), n),
        "survival": {str(y): known(rate(overall.months >= 12 * y), n) if 12 * y <= follow_up else None for y in YEARS},
        "qalys": known(mean(runs.terms["outcome"]), n),
        "concordance": share_of_decisions(runs.concordant, runs.decisions) if judged(engine) else UNKNOWN,
        "grade3": known(rate(runs.severe), n),
        "carbon_kg": known(mean(runs.carbon_kg), n),
        "cost_usd": known(mean(runs.cost_usd), n),
    }


def judged(engine: Engine) -> bool:
    """Whether the panel judges decisions in this environment."""
    return bool(engine.terms & {"guideline", "fairness"})


def share_of_decisions(some: NDArray[np.int64], decisions: NDArray[np.int64]) -> Interval:
    """The share of ``some`` (n,) among ``decisions`` (n,). Patients are independent; decisions on one patient are not."""
    n = len(decisions)
    counts = np.stack([some, decisions - some], 1).ravel()
    found = mean_by_patient(np.repeat(np.arange(n), decisions), np.repeat(np.tile([1.0, 0.0], n), counts))
    return known(Interval(found.value, max(found.low, 0.0), min(found.high, 1.0)), n)


def known(found: Interval, n: int) -> Interval:
    """``found``, without bounds if there is only one patient."""
    return found if n > 1 else Interval(found.value, math.nan, math.nan)
