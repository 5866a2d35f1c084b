"""What groups of patients got and what became of them, among equal need."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Episodes
from onco_gym.foundation.intervals import Interval, standardised
from onco_gym.interfaces.engine import Engine

WITHIN = 4
"""Cycles in which treatment has to begin to count as begun in time."""


@dataclass(frozen=True)
class GroupMetrics:
    """One group of patients, as they were treated.

    Every figure is standardised: the mean over strata of need, each weighted by its share of all patients. Need is
    the guideline's first choice at the first visit, had every test been done. Strata in which the group has
    fewer than two patients are left out.

    Attributes:
        group: its name.
        patients: how many.
        treated: share whose first anti-cancer treatment began within the cycles asked for.
        delay_weeks: weeks until it began, among those who ever had any; the patient's own delay counts.
        qalys: quality-adjusted life years within follow-up; not a number if the engine does not compute them.
        weeks: weeks lived within follow-up.
    """

    group: str
    patients: int
    treated: Interval
    delay_weeks: Interval
    qalys: Interval
    weeks: Interval


def group_metrics(
    engine: Engine,
    episodes: Episodes,
    names: tuple[str, ...],
    group: NDArray[np.int64],
    need: NDArray[np.int64],
    start: NDArray[np.float64],
    within: int = WITHIN,
) -> tuple[GroupMetrics, ...]:
    """The metrics of every group of one attribute.

    Args:
        engine: the compiled environment.
        episodes: of n patients.
        names: the attribute's groups.
        group: (n,) each patient's.
        need: (n,) stratum of need.
        start: (n,) cycle in which the first dose was taken; infinite where none was.
        within: cycles that count as in time.
    """
    weights = np.bincount(need, minlength=len(engine.scenario.regimens)) / len(need)
    weeks_to_start = start * engine.scenario.cycle_weeks
    begun = weeks_to_start < episodes.weeks
    in_time = begun & (start <= within)
    qalys = episodes.terms["outcome"] if "outcome" in engine.terms else np.full(len(need), np.nan)
    result = []
    for number, name in enumerate(names):
        ours = group == number
        treated = ours & begun
        result.append(
            GroupMetrics(
                name,
                int(ours.sum()),
                standardised(in_time[ours], need[ours], weights),
                standardised(weeks_to_start[treated], need[treated], weights),
                standardised(qalys[ours], need[ours], weights),
                standardised(episodes.weeks[ours], need[ours], weights),
            )
        )
    return tuple(result)
