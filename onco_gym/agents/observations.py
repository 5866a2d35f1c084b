"""Reading observations: from numbers in 0..1 back to names and units."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Field, Scenario, scenario

Observations = NDArray[np.float32]
Masks = NDArray[np.bool_]


class ObservationReader:
    """Reads observations back into the names and units that guideline rules use.

    Args:
        card: a validated card.
        fields: the fields of the environment; by default those of the plain one, with which all others begin.
    """

    def __init__(self, card: Card, fields: Sequence[Field] | None = None) -> None:
        self._layout = scenario(card)
        self._fields = {field.name: field for field in fields or self._layout.fields}

    def __call__(self, observation: Observations) -> "ObservedFacts":
        """The facts in ``observation`` (n, F)."""
        return ObservedFacts(observation, self._layout, self._fields)


class ObservedFacts(Mapping[str, NDArray[Any]]):
    """What a batch of observations says, by name; see :class:`onco_gym.knowledge.Guideline`."""

    def __init__(self, observation: Observations, layout: Scenario, fields: Mapping[str, Field]) -> None:
        self._observation, self._layout, self._fields = observation, layout, fields
        self._levels = dict(layout.levels)
        self._read: dict[str, NDArray[Any]] = {}  # what several rules use is read once

    def raw(self, name: str) -> NDArray[np.float32]:
        """(n,) a field in its unit."""
        field = self._fields[name]
        values: NDArray[np.float32] = field.raw(self._observation[:, field.index])
        return values

    @functools.cached_property
    def cycles(self) -> NDArray[np.float32]:
        """(n, R) cycles received of each regimen."""
        return self._observation[:, self._layout.block("exposure")] * np.float32(self._layout.horizon)

    @functools.cached_property
    def current(self) -> NDArray[np.intp]:
        """(n,) the regimen of the last cycle, -1 before the first."""
        last = self._observation[:, self._layout.block("regimen")]
        return np.where(last.max(1) > 0.5, last.argmax(1), -1)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._read:
            self._read[name] = self._value(name)
        return self._read[name]

    def _value(self, name: str) -> NDArray[Any]:
        if name in self._levels:
            shown = np.stack([self.raw(column) for column in self._levels[name]], 1)
            return np.where(shown.max(1) > 0.5, shown.argmax(1), -1)
        values = self.raw(name)
        return np.rint(values) if name in ("line", "ecog") else values

    def __iter__(self) -> Iterator[str]:
        return iter([*self._fields, *self._levels])

    def __len__(self) -> int:
        return len(self._fields) + len(self._levels)
