"""A cohort: a typed table of patients, with the exogenous noise and random effects that made them."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import column_range
from onco_gym.cards.schema import Bernoulli, Categorical, Derived, Ordinal, Variable


class CohortError(ValueError):
    """A cohort that cannot be made or read; the message says why."""


@dataclass(repr=False)
class Cohort:
    """Patients of one card.

    Attributes:
        card_id: the card's id.
        card_digest: digest of the card.
        columns: variable name to (n,) values; categorical variables are level codes in the card's order.
        noise: variable name to (n,) uniform numbers in 0..1.
        effects: random-effect name to (n,) standard normal numbers.
        drawn: how many patients were drawn to find these (more than n if there was a condition).
    """

    card_id: str
    card_digest: str
    columns: dict[str, NDArray[Any]]
    noise: dict[str, NDArray[np.float64]]
    effects: dict[str, NDArray[np.float64]]
    drawn: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __repr__(self) -> str:
        return f"Cohort({self.card_id}, {len(self):,} patients, {len(self.columns)} variables)"

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the card's digest and every number of every patient. Equal cohorts have equal digests."""
        sum_of = hashlib.sha256(self.card_digest.encode())
        for kind, values in (("column", self.columns), ("noise", self.noise), ("effect", self.effects)):
            for name, array in values.items():
                sum_of.update(f"\0{kind}:{name}:{array.dtype}\0".encode())
                sum_of.update(np.ascontiguousarray(array).tobytes())
        return sum_of.hexdigest()

    def take(self, rows: NDArray[np.intp]) -> "Cohort":
        """The patients at ``rows``, in that order."""

        def taken(part: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            return {name: values[rows] for name, values in part.items()}

        return Cohort(self.card_id, self.card_digest, taken(self.columns), taken(self.noise), taken(self.effects))

    def row(self, card: Card, index: int) -> dict[str, Any]:
        """One patient as plain values: level names, numbers, true or false."""
        return {variable.name: readable(variable, self.columns[variable.name][index]) for variable in card.variables}

    @staticmethod
    def concatenate(parts: Sequence["Cohort"]) -> "Cohort":
        """Join cohorts of the same card, in order."""
        first = parts[0]

        def joined(kind: str) -> dict[str, NDArray[Any]]:
            return {name: np.concatenate([getattr(part, kind)[name] for part in parts]) for name in getattr(first, kind)}

        return Cohort(first.card_id, first.card_digest, joined("columns"), joined("noise"), joined("effects"))


def readable(variable: Variable, value: Any) -> Any:
    """A column's value as a person would write it."""
    if isinstance(variable, Categorical):
        return variable.levels[int(value)]
    return bool(value) if isinstance(variable, Bernoulli | Derived) else float(value)


def coded(variable: Variable, values: NDArray[Any], what: str) -> NDArray[Any]:
    """Readable ``values`` (n,) as a column: level codes, true or false, or numbers.

    Raises:
        CohortError: if the variable cannot have one of them; the message calls them ``what``.
    """
    low, high = column_range(variable)
    allowed, expected = np.full(len(values), values.dtype.kind in "fiu"), f"a number in {low:g}..{high:g}"
    match variable:
        case Categorical():
            allowed, expected = np.isin(values.astype(object), variable.levels), f"one of {list(variable.levels)}"
        case Bernoulli() | Derived():
            allowed, expected = np.full(len(values), values.dtype == bool), "True or False"
        case Ordinal():
            allowed, expected = allowed & np.isin(values.astype(object), variable.values), f"one of {list(variable.values)}"
        case _ if allowed.all():
            allowed = (values >= low) & (values <= high)
    if not allowed.all():
        raise CohortError(f"{what} holds {values[~allowed].tolist()[0]!r}, expected {expected}")
    if isinstance(variable, Categorical):
        return np.array([variable.levels.index(value) for value in values], np.int8)
    return values if isinstance(variable, Bernoulli | Derived) else values.astype(float)
