"""The conditions of a card, evaluated over the columns of a cohort."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.checks import patient_vocabulary
from onco_gym.cards.expressions import parse
from onco_gym.cards.schema import Case, Effect, WeightCase


class Conditions:
    """Reads the expressions of a card over n patients.

    Args:
        card: a validated card.
        columns: name to (n,) values of the variables and flags that expressions use. Columns may be added later.
        n: number of patients.
    """

    def __init__(self, card: Card, columns: Mapping[str, NDArray[Any]], n: int) -> None:
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
