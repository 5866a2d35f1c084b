"""The figures of a rollout: what one agent's patients gain, without other agents to compare with."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, PlainSerializer

from onco_gym.agents import Episodes
from onco_gym.evaluation.figures import Runs, Summary, judged, known, outcomes, share_of_decisions
from onco_gym.foundation.intervals import UNKNOWN, rate
from onco_gym.foundation.results import Figure
from onco_gym.foundation.units import WEEKS_PER_MONTH
from onco_gym.interfaces.engine import Engine
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.rewards import GroupDivergence
from onco_gym.trials.statistics import RESPONSE, Times


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RolloutSummary(Summary):
    """The result of a rollout; see :class:`onco_gym.evaluation.figures.Summary` for the figures that it shares with evaluations.

    Attributes:
        died: share of patients who died within follow-up.
        response: share of patients who responded to the first line.
        median_progression: months to progression or death; infinite if not reached.
        contraindicated: share of decisions that the panel calls contraindicated.
        divergence: how far the groups of each protected attribute are apart, from the tally of decisions.
        first_cycle: share of patients by the regimen of the first cycle, the most frequent first.
    """

    died: Figure
    response: Annotated[Figure, Field(alias="first_line_response")]
    median_progression: Annotated[Figure, Field(alias="median_progression_months")]
    contraindicated: Figure
    divergence: dict[str, Annotated[GroupDivergence, PlainSerializer(GroupDivergence._asdict)]]
    first_cycle: dict[str, float]


def summarise_rollout(engine: Engine, episodes: Episodes) -> RolloutSummary:
    """The figures of ``episodes``, which were rolled out on ``engine``."""
    runs, n = Runs.of(episodes), len(episodes)
    progression = Times(episodes.progression_weeks.astype(np.float64) / WEEKS_PER_MONTH, episodes.progressed)
    refused = (episodes.verdicts == VERDICTS.index("contraindicated")).sum(0)
    names = engine.scenario.regimens
    first = np.bincount(episodes.given[0], minlength=len(names)) / n
    return RolloutSummary(
        stamp=episodes.stamp,
        episodes=n,
        died=known(rate(runs.died), n),
        response=known(rate(episodes.best_change <= RESPONSE), n),
        median_progression=known(progression.median(), n),
        contraindicated=share_of_decisions(refused, runs.decisions) if judged(engine) else UNKNOWN,
        divergence=episodes.fairness,
        first_cycle={names[index]: float(first[index]) for index in np.argsort(-first, kind="stable") if first[index]},
        **outcomes(engine, runs),
    )
