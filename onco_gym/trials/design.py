"""Design trials on simulated patients: which protocol, how many patients, and what the answer depends on."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import params
from onco_gym.cards.schema import Categorical, Normal, Variable
from onco_gym.foundation.progress import Progress, silent
from onco_gym.patients import Cohort, default_generator
from onco_gym.trials.arms import BATCHES, Setting, TrialError, holds, patients_of, recruit, run_arm
from onco_gym.trials.ensemble import Ensemble
from onco_gym.trials.parameters import differs, figures_at, reads, with_figures
from onco_gym.trials.statistics import Interval, Times, hazard_ratio, log_rank_z, mean, rate, simulated_arm, summarise

Outcome = Literal["pfs_months", "os_months", "response", "grade3", "qalys"]
OUTCOMES: tuple[Outcome, ...] = ("pfs_months", "os_months", "response", "grade3", "qalys")
WEIGHTS = (1.0, 0.25, 0.25)
"""Weights of efficacy (per quality-adjusted year), safety and diversity (per unit) in the total score."""
SMALLEST_GROUP = 0.03
"""A protected group with a smaller share of the patients is too small to judge."""


@dataclass(frozen=True)
class Candidate:
    """A trial that could be run: an experimental protocol in a setting."""

    setting: Setting
    protocol: str


@dataclass(frozen=True)
class Score:
    """How a candidate does against the control protocol in the same patients.

    Attributes:
        candidate: the trial.
        n: simulated patients behind the score.
        efficacy: quality-adjusted life years gained per patient within follow-up.
        safety: share of patients without a grade 3+ event.
        diversity: 0..1, the gain of the least served group relative to the best served one. For each protected attribute,
            this is the lowest gain per patient of a group over the highest, among all patients with the disease. Patients
            outside the population gain nothing. The smallest ratio counts.
        least_served: the attribute and group with the lowest ratio.
        total: the weighted sum that candidates are ranked by.
        dominated: whether another candidate is as good in all three and better in one.
    """

    candidate: Candidate
    n: int
    efficacy: Interval
    safety: Interval
    diversity: float
    least_served: str
    total: float
    dominated: bool = False


def score(card: Card, candidate: Candidate, control: str, n: int = 500, seed: int = 0, months: float = 60.0) -> Score:
    """Score a candidate against the protocol ``control``. Both arms have the same patients and chance.

    Args:
        card: a validated card.
        candidate: the trial.
        control: protocol to compare with.
        n: patients enrolled per arm.
        seed: same seed, same score.
        months: follow-up.
    """
    figures, setting = params(card), candidate.setting
    course = run_arm(card, figures, setting, candidate.protocol, n, seed, months)
    treated = summarise(card, setting, candidate.protocol, course, months)
    gain = treated.quality - simulated_arm(card, figures, setting, control, n, seed, months).quality
    diversity, least = _diversity(card, setting.population, patients_of(card, setting, n, seed, course), gain, seed)
    efficacy, safety = mean(gain), rate(~treated.severe)
    total = float(np.dot(WEIGHTS, (efficacy.value, safety.value, diversity)))
    return Score(candidate, n, efficacy, safety, diversity, least, total)


def _diversity(card: Card, population: str, cohort: Cohort, gain: NDArray[np.float64], seed: int) -> tuple[float, str]:
    everyone = default_generator(card).sample(8192, seed)
    admitted = holds(card, population, everyone) if population.strip() else np.ones(len(everyone), bool)
    worst, name = 1.0, ""
    for variable in card.variables:
        if not variable.protected:
            continue
        gains = {}
        for label, of_all, of_trial in _groups(variable, everyone.columns[variable.name], cohort.columns[variable.name]):
            if of_all.mean() >= SMALLEST_GROUP:
                served = float(gain[of_trial].mean()) if of_trial.sum() >= 5 else 0.0
                gains[label] = max(served, 0.0) * float(admitted[of_all].mean())
        best = max(gains.values(), default=0.0)
        if best <= 0:
            return 0.0, variable.name
        label = min(gains, key=lambda key: gains[key])
        if gains[label] / best < worst:
            worst, name = gains[label] / best, f"{variable.name} = {label}"
    return worst, name


def _groups(variable: Variable, everyone: NDArray[Any], cohort: NDArray[Any]) -> list[tuple[str, Any, Any]]:
    if isinstance(variable, Categorical):
        return [(level, everyone == code, cohort == code) for code, level in enumerate(variable.levels)]
    if isinstance(variable, Normal):
        middle = float(np.median(everyone))
        below = f"below {middle:.0f}", everyone < middle, cohort < middle
        return [below, (f"from {middle:.0f}", everyone >= middle, cohort >= middle)]
    return [(f"{value:g}", everyone == value, cohort == value) for value in np.unique(everyone.astype(float))]


def optimise(
    card: Card,
    candidates: Sequence[Candidate],
    control: str,
    n: int = 1600,
    seed: int = 0,
    months: float = 60.0,
    progress: Progress = silent,
) -> list[Score]:
    """Rank candidates by successive halving: all get few patients, the better half twice as many, and so on up to ``n``.

    Returns:
        The last score of every candidate, the best first. Candidates that stayed longer come before those dropped earlier.
    """
    if not candidates:
        raise TrialError("there are no candidates to choose from")
    standing = list(dict.fromkeys(candidates))
    rounds = max(1, math.ceil(math.log2(len(standing))))
    ranked: list[Score] = []
    for turn in range(rounds):
        patients = max(100, n // 2 ** (rounds - 1 - turn))
        scores = []
        for number, candidate in enumerate(standing):
            scores.append(score(card, candidate, control, patients, seed, months))
            progress(f"candidates, round {turn + 1} of {rounds}", number + 1, len(standing))
        scores.sort(key=lambda one: -one.total)
        keep = 0 if turn == rounds - 1 else math.ceil(len(scores) / 2)  # after the last round all are ranked
        ranked = scores[keep:] + ranked
        standing = [one.candidate for one in scores[:keep]]
    every = np.array([(one.efficacy.value, one.safety.value, one.diversity) for one in ranked])
    dominated = [bool(((every >= mine).all(1) & (every > mine).any(1)).any()) for mine in every]
    return [replace(one, dominated=worse) for one, worse in zip(ranked, dominated, strict=True)]


# ------------------------------------------------------------------------------------------------ power


@dataclass(frozen=True)
class Power:
    """Share of repeated trials whose log-rank test favours the treated arm significantly (two-sided), with its 95% interval.

    ``events`` is the mean number of events in a trial.
    """

    n: int
    endpoint: str
    power: Interval
    events: float


def schoenfeld_events(ratio: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Events that a two-sided log-rank test of two equal arms needs if hazards are proportional.

    Schoenfeld, Biometrika 1981;68:316. ``inf`` if the hazard ratio is 1, ``nan`` if it is unknown.
    """
    if ratio == 1 or not 0 < ratio < math.inf:
        return math.inf if ratio == 1 else math.nan
    normal = NormalDist()
    return 4 * ((normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)) / math.log(ratio)) ** 2


class PowerStudy:
    """Two arms of equal size, simulated once with many patients. Trials are drawn from them.

    Args:
        card: a validated card.
        setting: population and conduct of the trial.
        treated, control: protocols.
        endpoint: ``pfs`` or ``os``.
        accrual: months over which patients enter at an even rate.
        follow_up: months from the last entry to the analysis.
        seed: same seed, same answer.
        pool: patients simulated per arm. A trial may have up to a fifth of them per arm. In larger trials, a chance
            difference between the pools would count as an effect.
    """

    def __init__(
        self,
        card: Card,
        setting: Setting,
        treated: str,
        control: str,
        endpoint: Literal["pfs", "os"] = "pfs",
        accrual: float = 18.0,
        follow_up: float = 12.0,
        seed: int = 0,
        pool: int = 6000,
    ) -> None:
        if endpoint not in ("pfs", "os"):
            raise TrialError(f"there is no endpoint {endpoint!r}: expected pfs or os")
        if min(accrual, follow_up) < 0:
            raise TrialError(f"accrual is {accrual:g} and follow_up {follow_up:g} months, expected at least 0")
        if pool < 10:
            raise TrialError(f"pool is {pool} patients per arm, expected at least 10")
        self.endpoint, self.accrual, self.follow_up, self.seed = endpoint, accrual, follow_up, seed
        self.most = pool // 5
        self._times: list[Times] = []
        for number, protocol in enumerate((treated, control)):
            arm = simulated_arm(card, params(card), setting, protocol, pool, seed + 500_009 * number, accrual + follow_up)
            self._times.append(arm.progression_free if endpoint == "pfs" else arm.overall)

    @functools.cached_property
    def hazard_ratio(self) -> Interval:
        """Hazard ratio of the treated arm within such a trial, by Cox regression on all simulated patients.

        If hazards are not proportional, it depends on the follow-up. The interval covers chance among the simulated
        patients.
        """
        rng = np.random.default_rng([self.seed, 0])
        return hazard_ratio(*(self._drawn(times, np.arange(len(times.months)), rng) for times in self._times))

    def _drawn(self, times: Times, who: NDArray[np.int64], rng: np.random.Generator) -> Times:
        """Patients ``who`` of an arm, each followed from entry to the analysis."""
        watched = self.follow_up + self.accrual * rng.random(len(who))
        return Times(times.months[who], times.event[who]).until(watched)

    def power(self, n: int, repeats: int = 300, alpha: float = 0.05, progress: Progress = silent) -> Power:
        """Power of a trial with ``n`` patients per arm, from ``repeats`` simulated trials.

        The test is two-sided at ``alpha``. A one-sided test at 0.025 is the same as a two-sided one at 0.05.
        """
        if not 2 <= n <= self.most:
            raise TrialError(f"n is {n} patients per arm, expected 2 to {self.most} (a fifth of those simulated)")
        if not 0 < alpha < 1:
            raise TrialError(f"the significance level is {alpha:g}, expected a number between 0 and 1")
        if repeats < 1:
            raise TrialError(f"repeats is {repeats}, expected at least 1")
        rng = np.random.default_rng([self.seed, n])
        critical = NormalDist().inv_cdf(alpha / 2)
        significant, events = [], []
        for number in range(repeats):
            drawn = [self._drawn(times, rng.integers(0, len(times.months), n), rng) for times in self._times]
            events.append(sum(int(one.event.sum()) for one in drawn))
            significant.append(log_rank_z(*drawn) < critical)
            progress(f"trials, {n} patients per arm", number + 1, repeats)
        return Power(n, self.endpoint, rate(np.array(significant)), float(np.mean(events)))

    def sample_size(self, power: float = 0.8, repeats: int = 300, alpha: float = 0.05, progress: Progress = silent) -> Power:
        """The smallest trial (within 3%, and up to the chance of ``repeats`` trials) that reaches ``power``.

        Raises:
            TrialError: if a fifth of the pool per arm is too few, or if ``repeats`` are too few to show such a power.
        """
        if not 0 < power < 1:
            raise TrialError(f"power is {power:g}, expected a number between 0 and 1")
        if repeats * (1 - power) < 1 - 1e-9:
            fewest = math.ceil(1 / (1 - power) - 1e-6)
            raise TrialError(f"{repeats} simulated trials cannot show a power of {power:g}: expected at least {fewest}")
        low, high = 2, min(50, self.most)
        while (found := self.power(high, repeats, alpha, progress)).power.value < power:
            if high >= self.most:
                raise TrialError(
                    f"{self.most} patients per arm reach a power of {found.power.value:.0%}, not {power:.0%}: the hazard ratio "
                    f"within such a trial is {self.hazard_ratio:.2f}"
                )
            low, high = high, min(2 * high, self.most)
        while high - low > max(1, 0.03 * high):
            middle = (low + high) // 2
            tried = self.power(middle, repeats, alpha, progress)
            if tried.power.value >= power:
                high, found = middle, tried
            else:
                low = middle
        return found


# ------------------------------------------------------------------------------------------------ sensitivity


@dataclass(frozen=True)
class ParameterEffect:
    """The effect of an uncertain parameter on an arm's result.

    Attributes:
        name: the parameter.
        low, high: the result with the parameter at the 2.5% and the 97.5% point of the ensemble, all others as on the card.
        first, total: share of the result's variance that it explains alone, and with its interactions (Sobol).
    """

    name: str
    low: float
    high: float
    first: float = math.nan
    total: float = math.nan


class Sensitivity:
    """How an arm's result depends on uncertain figures. All runs share patients and chance.

    Args:
        card: a validated card.
        setting: population and conduct of the trial.
        protocol: the arm.
        ensemble: what is uncertain, and how much.
        outcome: one of :data:`OUTCOMES`.
        n: number of patients.
        seed: same seed, same answer.
        months: follow-up.
    """

    def __init__(
        self,
        card: Card,
        setting: Setting,
        protocol: str,
        ensemble: Ensemble,
        outcome: Outcome = "pfs_months",
        n: int = 400,
        seed: int = 0,
        months: float = 60.0,
    ) -> None:
        if outcome not in OUTCOMES:
            raise TrialError(f"there is no outcome {outcome!r}: expected one of {', '.join(OUTCOMES)}")
        self._card, self._outcome, self._seed = card, outcome, seed
        self._asked = setting, protocol, n, seed, months
        read, own = reads(card, recruit(card, setting, protocol, n, seed * BATCHES)), params(card)
        spread = np.quantile(ensemble.offsets, [0.025, 0.975], axis=0)
        kept = []
        for index, one in enumerate(ensemble.parameters):
            moved = params(with_figures(card, figures_at([one], spread[1:, index] + 1e-3)))
            if differs(read, own, moved) and spread[1, index] > spread[0, index]:
                kept.append(index)
        self._parameters = [ensemble.parameters[index] for index in kept]
        self._bounds = spread[:, kept].T
        self.base = self._run({})

    @property
    def names(self) -> list[str]:
        """The uncertain parameters that the arm depends on."""
        return [one.name for one in self._parameters]

    def _run(self, moved: Mapping[int, float]) -> float:
        """The result with the parameters at these indices moved."""
        places = figures_at([self._parameters[index] for index in moved], np.array(list(moved.values())))
        arm = simulated_arm(self._card, params(with_figures(self._card, places)), *self._asked)
        if self._outcome in ("pfs_months", "os_months"):
            times = arm.progression_free if self._outcome == "pfs_months" else arm.overall
            return float(np.sort(times.months)[(len(times.months) - 1) // 2])
        estimate: Interval = getattr(arm, self._outcome)
        return estimate.value

    def one_at_a_time(self, progress: Progress = silent) -> list[ParameterEffect]:
        """Move each parameter by itself. The one that matters most comes first."""
        rows = []
        for index, one in enumerate(self._parameters):
            rows.append(ParameterEffect(one.name, *(self._run({index: bound}) for bound in self._bounds[index])))
            progress("figures moved one at a time", index + 1, len(self._parameters))
        return sorted(rows, key=lambda row: -abs(row.high - row.low))

    def everything_at_once(self, samples: int = 32, most: int = 12, progress: Progress = silent) -> list[ParameterEffect]:
        """Sobol indices (by SALib) of the ``most`` parameters that matter most one at a time.

        Args:
            samples: base samples, a power of 2; ``samples * (most + 2)`` runs.
            most: number of parameters.
            progress: told after each run, including those of :meth:`one_at_a_time`.
        """
        from SALib.analyze import sobol
        from SALib.sample import sobol as sampler

        alone = self.one_at_a_time(progress)[:most]
        chosen = [self.names.index(row.name) for row in alone]
        problem = {"num_vars": len(chosen), "names": [row.name for row in alone], "bounds": self._bounds[chosen].tolist()}
        points = sampler.sample(problem, samples, calc_second_order=False, seed=self._seed)
        results = []
        for point in points:
            results.append(self._run(dict(zip(chosen, point, strict=True))))
            progress("figures moved together", len(results), len(points))
        values = np.array(results)
        if values.std() == 0:
            return [replace(row, first=0.0, total=0.0) for row in alone]
        found = sobol.analyze(problem, values, calc_second_order=False, seed=self._seed)
        rows = zip(alone, found["S1"], found["ST"], strict=True)
        effects = [replace(row, first=float(first), total=float(total)) for row, first, total in rows]
        return sorted(effects, key=lambda row: -row.total)
