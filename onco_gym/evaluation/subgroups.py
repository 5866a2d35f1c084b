"""Subgroups: for whom an agent does better or worse than another."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards.schema import Bernoulli, Categorical, Ordinal, Variable
from onco_gym.evaluation.figures import Runs
from onco_gym.foundation.intervals import mean
from onco_gym.foundation.results import Figure
from onco_gym.interfaces.engine import Engine

SMALLEST = 30
"""Patients that a subgroup must have to be shown."""
AGES = (65.0, 75.0)
"""Years at which age is divided."""


@dataclass(frozen=True)
class Subgroup:
    """Some of the patients, by what was known of them at the first visit.

    Attributes:
        name: what they have in common, in words.
        patients: how many they are.
        gain: mean difference in return to another agent on the same patients.
        qalys: quality-adjusted life years.
    """

    name: str
    patients: int
    gain: Figure
    qalys: Figure


def find_subgroups(engine: Engine, runs: Runs, other: Runs, seed: int = 0) -> list[Subgroup]:
    """The subgroups of patients, by everything about them that can be known at the first visit.

    Args:
        engine: whose patients were treated.
        runs: under the agent.
        other: the same patients under another agent.
        seed: of the first patient.
    """
    rows = engine.origins(len(runs), seed).row
    columns = {name: values[rows] for name, values in engine.cohort.columns.items()}
    gain, qalys = runs.returns - other.returns, runs.terms["outcome"]
    found = []
    for variable in engine.card.variables:
        if variable.tier == "access" or not (variable.observed or variable.name == engine.card.performance.variable):
            continue
        for name, who in _parts(variable, columns[variable.name]):
            if SMALLEST <= who.sum() < len(who):
                found.append(Subgroup(name, int(who.sum()), mean(gain[who]), mean(qalys[who])))
    return found


def _parts(variable: Variable, values: NDArray[np.float64]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """(name, (n,) who is in it) of the parts into which a variable divides patients."""
    name = variable.name.replace("_", " ")
    match variable:
        case Categorical():
            for code, level in enumerate(variable.levels):
                yield f"{name}: {level.replace('_', ' ')}", values == code
        case Ordinal():
            for value in variable.values:
                yield f"{name}: {value:g}", values == value
        case Bernoulli():
            yield name, values > 0
        case _ if variable.name == "age":
            yield f"age below {AGES[0]:g}", values < AGES[0]
            yield f"age {AGES[0]:g} to {AGES[1]:g}", (values >= AGES[0]) & (values < AGES[1])
            yield f"age {AGES[1]:g} and more", values >= AGES[1]
