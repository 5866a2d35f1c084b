"""The conditions of a card, evaluated over the columns of patients."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.checks import patient_vocabulary
from onco_gym.cards.expressions import parse
from onco_gym.cards.schema import Case, Categorical, Effect, Variable, WeightCase

Columns = Mapping[str, NDArray[Any]]
"""Variable or flag name to (n,) values; categorical variables are level codes in the card's order, as in a cohort."""


class Conditions:
    """Reads the expressions of a card over n patients.

    Args:
        card: a validated card.
        columns: name to (n,) values of the variables and flags that expressions use. Columns may be added later.
        n: number of patients.
    """

    def __init__(self, card: Card, columns: Columns, n: int) -> None:
        self._vocabulary, self._columns, self._n = patient_vocabulary(card), columns, n

    def holds(self, text: str) -> NDArray[np.bool_]:
        """(n,) where the condition holds."""
        return np.broadcast_to(parse(text, self._vocabulary).holds(self._columns), self._n)

    def case(self, cases: Sequence[Case | WeightCase]) -> NDArray[np.intp]:
        """(n,) which case applies: the first whose ``when`` holds, else the last."""
        index = np.full(self._n, len(cases) - 1)
        for position in range(len(cases) - 2, -1, -1):
            index[self.holds(cases[position].when)] = position
        return index

    def value(self, cases: Sequence[Case]) -> NDArray[np.float64]:
        """(n,) the value of the case that applies."""
        return np.array([case.value for case in cases])[self.case(cases)]

    def log_effects(self, effects: Iterable[Effect]) -> NDArray[np.float64]:
        """(n,) log of the product of ``times ** of``."""
        total = np.zeros(self._n)
        for effect in effects:
            total = total + np.log(effect.times) * np.asarray(parse(effect.of, self._vocabulary)(self._columns), float)
        return total


def flags_of(variable: Variable, values: NDArray[Any]) -> dict[str, NDArray[np.bool_]]:
    """A true/false column per flag of a variable, named as in expressions."""
    if not isinstance(variable, Categorical):
        return {}
    return {flag: values == variable.levels.index(flag) for flag in variable.flags}


def with_flags(card: Card, columns: Columns) -> dict[str, NDArray[Any]]:
    """``columns`` with a true/false column for every flag of their categorical variables."""
    result = dict(columns)
    for variable in card.variables:
        if variable.name in columns:
            result.update(flags_of(variable, columns[variable.name]))
    return result
