"""What a paper reports about a trial: survival curves and medians, hazard ratios and rates, each with a 95% interval."""

import functools
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Params
from onco_gym.foundation.intervals import Interval, mean, rate
from onco_gym.foundation.units import WEEKS_PER_MONTH, WEEKS_PER_YEAR
from onco_gym.trials.arms import ArmCourse, Setting, run_arm

RESPONSE = -0.30
"""RECIST 1.1: change of the sum of diameters, confirmed by the next scan, that counts as a response (Eisenhauer, Eur J Cancer
2009;45:228)."""
FIGURES = ("pfs_months", "os_months", "response", "disease_control", "grade3", "discontinuation", "qalys")
LIMIT = 4.0
"""Log hazard ratio, up or down, at which :func:`fast_log_hazard_ratio` stops."""


@dataclass(frozen=True, eq=False)
class Times:
    """Times to an event.

    Attributes:
        months: (n,) time of the event or of censoring.
        event: (n,) whether the event happened.
    """

    months: NDArray[np.float64]
    event: NDArray[np.bool_]

    @functools.cached_property
    def kaplan_meier(self) -> Any:
        """The fitted ``lifelines.KaplanMeierFitter``."""
        from lifelines import KaplanMeierFitter

        return KaplanMeierFitter().fit(self.months, self.event)

    def median(self) -> Interval:
        """Kaplan-Meier median in months, with the interval of Brookmeyer and Crowley (log-log)."""
        from lifelines.utils import median_survival_times, qth_survival_time

        table: Any = median_survival_times(self.kaplan_meier.confidence_interval_survival_function_)
        bounds = table.to_numpy().ravel()
        # A curve that falls to one half has reached the median, even if rounding leaves it a little above.
        value = qth_survival_time(0.5 + 1e-9, self.kaplan_meier.survival_function_)
        return Interval(float(value), float(bounds.min()), float(bounds.max()))

    def curve(self, months: NDArray[np.float64]) -> NDArray[np.float64]:
        """(len(months),) share without the event, by Kaplan-Meier."""
        return np.asarray(self.kaplan_meier.predict(months), float).reshape(-1)

    def until(self, months: Any) -> "Times":
        """The same times with follow-up cut at ``months`` (a number, or (n,) one per patient)."""
        late = self.months > months
        return Times(np.minimum(self.months, months), self.event & ~late)


@dataclass(frozen=True, eq=False)
class ArmResult:
    """An arm's results.

    Attributes:
        name: its protocol.
        n: patients enrolled.
        progression_free, overall: survival times.
        response, disease_control: share with a confirmed response, and with that or no progression at the first scan.
        grade3, discontinuation: share with a grade 3+ event, and share who stopped a regimen for toxicity, before progression.
        qalys: quality-adjusted life years within follow-up, mean per patient.
        responded, controlled, severe, stopped: (n,) bool, patient by patient.
        quality: (n,) quality-adjusted life years.
    """

    name: str
    n: int
    progression_free: Times
    overall: Times
    response: Interval
    disease_control: Interval
    grade3: Interval
    discontinuation: Interval
    qalys: Interval
    responded: NDArray[np.bool_]
    controlled: NDArray[np.bool_]
    severe: NDArray[np.bool_]
    stopped: NDArray[np.bool_]
    quality: NDArray[np.float64]

    def estimates(self) -> dict[str, Interval]:
        """The :data:`FIGURES` of the arm, with intervals for chance."""
        medians = self.progression_free.median(), self.overall.median()
        return dict(zip(FIGURES, (*medians, *(getattr(self, name) for name in FIGURES[2:])), strict=True))


def summarise(card: Card, setting: Setting, protocol: str, course: ArmCourse, months: float) -> ArmResult:
    """The results of an arm whose patients (all enrolled) were followed for ``months``."""
    unit = card.cycle_weeks / WEEKS_PER_MONTH
    responded = course.best <= RESPONSE
    weeks = setting.scan_weeks[0] if setting.scan_weeks else card.observation.scan_every_cycles * card.cycle_weeks
    first_scan = weeks / card.cycle_weeks * 1.001
    controlled = responded | (course.progression > first_scan)
    quality = np.asarray(course.utility, float) * card.cycle_weeks / WEEKS_PER_YEAR
    return ArmResult(
        name=protocol,
        n=len(course.best),
        progression_free=Times(course.progression.astype(float) * unit, course.progressed).until(months),
        overall=Times(course.survival.astype(float) * unit, course.died).until(months),
        response=rate(responded),
        disease_control=rate(controlled),
        grade3=rate(course.severe),
        discontinuation=rate(course.stopped),
        qalys=mean(quality),
        responded=responded,
        controlled=controlled,
        severe=course.severe,
        stopped=course.stopped,
        quality=quality,
    )


def simulated_arm(
    card: Card, figures: Params, setting: Setting, protocol: str, n: int, seed: int = 0, months: float = 60.0
) -> ArmResult:
    """Simulate an arm and summarise it. The arguments are those of :func:`onco_gym.trials.arms.run_arm`."""
    course = run_arm(card, figures, setting, protocol, n, seed, months)
    return summarise(card, setting, protocol, course, months)


def hazard_ratio(treated: Times, control: Times) -> Interval:
    """Hazard ratio of ``treated`` against ``control`` by Cox regression (Efron's method for ties).

    The interval assumes independent arms. It is wider than necessary if the arms share patients and chance.
    """
    events = int(treated.event.sum()), int(control.event.sum())
    if not all(events):
        return Interval(math.nan if not any(events) else (0.0 if events[1] else math.inf), 0.0, math.inf)
    import pandas as pd
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceError

    frame = pd.DataFrame(
        {
            "months": np.concatenate([treated.months, control.months]),
            "event": np.concatenate([treated.event, control.event]),
            "treated": np.repeat([1.0, 0.0], [len(treated.months), len(control.months)]),
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fitted = CoxPHFitter().fit(frame, "months", "event")
        except ConvergenceError:  # the curves do not overlap
            return Interval(math.nan, 0.0, math.inf)
    with np.errstate(over="ignore"):  # curves that hardly overlap
        low, high = np.exp(fitted.confidence_intervals_.to_numpy()[0])
    return Interval(float(np.exp(fitted.params_["treated"])), float(low), float(high))


def log_rank_z(one: Times, other: Times) -> float:
    """Standardised log-rank statistic, below 0 if ``one`` has fewer events than expected without a difference.

    Ties have the hypergeometric variance. Without events the statistic is 0.
    """
    months, event = np.concatenate([one.months, other.months]), np.concatenate([one.event, other.event])
    at, events = np.unique(months[event], return_counts=True)
    risk = len(months) - np.searchsorted(np.sort(months), at)
    share = (len(one.months) - np.searchsorted(np.sort(one.months), at)) / risk
    variance = float(np.sum(events * share * (1 - share) * (risk - events) / np.maximum(risk - 1, 1)))
    return (float(one.event.sum()) - float(np.sum(events * share))) / math.sqrt(variance) if variance > 0 else 0.0


def fast_log_hazard_ratio(treated: Times, control: Times, turns: int = 8) -> float:
    """Log hazard ratio by Cox regression with Breslow's ties: within a few percent of Efron's, a hundred times faster."""
    months = np.concatenate([treated.months, control.months])
    event = np.concatenate([treated.event, control.event])
    group = np.repeat([1.0, 0.0], [len(treated.months), len(control.months)])
    order = np.argsort(-months, kind="stable")
    months, event, group = months[order], event[order], group[order]
    ends = np.searchsorted(-months, -months, side="right") - 1  # the last of each set of ties: everybody up to it is at risk
    ones = np.cumsum(group)[ends][event]
    zeros = np.cumsum(1 - group)[ends][event]
    wanted = float(group[event].sum())
    beta = 0.0
    for _ in range(turns):
        share = ones * math.exp(beta) / (ones * math.exp(beta) + zeros)
        information = float((share * (1 - share)).sum())
        if information < 1e-9:
            break
        beta = min(max(beta + min(max((wanted - float(share.sum())) / information, -1.0), 1.0), -LIMIT), LIMIT)
    return beta
