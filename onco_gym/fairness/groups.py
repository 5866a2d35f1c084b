"""How groups of patients were treated and fared, among patients of equal need."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Episodes
from onco_gym.foundation.intervals import Interval, standardised
from onco_gym.interfaces.engine import Engine

WITHIN = 4
"""Treatment that begins within this many cycles counts as in time."""


@dataclass(frozen=True)
class GroupMetrics:
    """How one group of patients was treated and fared.

    Every figure is standardised: the mean over strata of need, each weighted by its share of all patients. Need is
    the guideline's first choice at the first visit, had every test been done. Strata with fewer than two patients of the
    group are left out.

    Attributes:
        group: its name.
        patients: number of patients.
        treated: share whose first anti-cancer treatment began within the cycles asked for.
        delay_weeks: weeks until it began, among patients who were ever treated; includes the patient's own delay.
        qalys: quality-adjusted life years within follow-up; NaN if the engine does not compute them.
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
        episodes: the episodes of n patients.
        names: the attribute's groups.
        group: (n,) each patient's group.
        need: (n,) stratum of need.
        start: (n,) cycle in which the first dose was taken; infinite where none was.
        within: treatment that begins within this many cycles counts as in time.
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
