"""Reading observations: from numbers in 0..1 back to names and units."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Field, scenario

Observations = NDArray[np.float32]
Masks = NDArray[np.bool_]


class ObservationReader:
    """Reads the plain environment's fields back into the names and units that guideline rules use.

    Args:
        card: a validated card.
    """

    def __init__(self, card: Card) -> None:
        layout = scenario(card)
        self._fields = {field.name: field for field in layout.fields}
        self._levels = dict(layout.levels)

    def __call__(self, observation: Observations) -> "Facts":
        """The facts in ``observation`` (n, F)."""
        return Facts(observation, self._fields, self._levels)


class Facts(Mapping[str, NDArray[Any]]):
    """What a batch of observations says, by name; see :class:`onco_gym.knowledge.Guideline`."""

    def __init__(self, observation: Observations, fields: Mapping[str, Field], levels: Mapping[str, tuple[str, ...]]) -> None:
        self._observation, self._fields, self._levels = observation, fields, levels

    def raw(self, name: str) -> NDArray[np.float32]:
        """(n,) a field in its unit."""
        field = self._fields[name]
        values: NDArray[np.float32] = field.raw(self._observation[:, field.index])
        return values

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name in self._levels:
            shown = np.stack([self.raw(column) for column in self._levels[name]], 1)
            return np.where(shown.max(1) > 0.5, shown.argmax(1), -1)
        values = self.raw(name)
        return np.rint(values) if name in ("line", "ecog") else values

    def __iter__(self) -> Iterator[str]:
        return iter([*self._fields, *self._levels])

    def __len__(self) -> int:
        return len(self._fields) + len(self._levels)
