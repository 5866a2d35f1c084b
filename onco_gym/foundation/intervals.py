"""Figures with intervals, and how to estimate them from patients."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Z = 1.959964
"""Half the width of a 95% interval, in standard errors."""


class Interval(NamedTuple):
    """A figure and its interval, at 95% unless stated otherwise.

    A value or bound is ``inf`` if it was not reached (a median survival, say), and ``nan`` if the data cannot determine it.
    """

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        if not math.isfinite(self.value):
            return "none"
        return f"{self.value:{spec}} ({self.low:{spec}} to {self.high:{spec}})"

    def to_json(self) -> dict[str, float | None]:
        """The three numbers by name; None if not finite."""
        return {name: float(number) if math.isfinite(number) else None for name, number in self._asdict().items()}

    @classmethod
    def from_json(cls, content: Any) -> "Interval":
        """Read the output of :meth:`to_json`; ``nan`` replaces None."""
        return cls(*(math.nan if content[name] is None else float(content[name]) for name in cls._fields))


UNKNOWN = Interval(math.nan, math.nan, math.nan)
"""The interval of a figure that the data cannot determine."""


def rate(happened: NDArray[np.bool_]) -> Interval:
    """A share with its Wilson interval."""
    n, share, z = len(happened), float(np.mean(happened)), Z
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Interval(share, min(max(centre - half, 0.0), share), max(min(centre + half, 1.0), share))


def mean(values: NDArray[np.float64]) -> Interval:
    """A mean with its normal interval."""
    half = Z * float(np.std(values)) / math.sqrt(len(values))
    centre = float(np.mean(values))
    return Interval(centre, centre - half, centre + half)


def around(value: float, error: float) -> Interval:
    """``value`` with the normal interval of its standard ``error``."""
    return Interval(float(value), float(value - Z * error), float(value + Z * error))


def mean_by_patient(patient: NDArray[Any], values: NDArray[Any]) -> Interval:
    """The mean of ``values`` (m,), several of which may belong to one ``patient`` (m,).

    Patients are independent but one patient's visits are not, so the error is that of a ratio of two sums over patients.
    """
    if not len(values):
        return UNKNOWN
    total = np.bincount(patient, values.astype(float))
    count = np.bincount(patient)
    total, count = total[count > 0], count[count > 0]
    mean = total.sum() / count.sum()
    patients = len(count)
    if patients < 2:
        return around(mean, float("inf") if total.any() else 0.0)
    spread = np.sqrt(((total - mean * count) ** 2).sum() * patients / (patients - 1))
    return around(mean, spread / count.sum())


def both_halves(one: Interval, other: Interval) -> Interval:
    """The mean of two estimates of one quantity, with an interval that is valid however much they depend on each other."""
    return Interval((one.value + other.value) / 2, (one.low + other.low) / 2, (one.high + other.high) / 2)


def standardised(values: NDArray[Any], strata: NDArray[Any], weights: NDArray[np.float64]) -> Interval:
    """The mean of ``values`` (m,) if ``strata`` (m,) had the given ``weights`` (S,) instead of their own.

    Strata with fewer than two values have no known spread. They are left out, and the others take over their weight.
    """
    size = len(weights)
    count = np.bincount(strata, minlength=size)
    total = np.bincount(strata, values.astype(float), minlength=size)
    square = np.bincount(strata, values.astype(float) ** 2, minlength=size)
    usable = (count > 1) & (weights > 0)
    if not usable.any():
        return UNKNOWN
    count, total, square, weight = count[usable], total[usable], square[usable], weights[usable] / weights[usable].sum()
    mean = total / count
    variance = np.maximum(square / count - mean**2, 0) / (count - 1)
    return around((weight * mean).sum(), float(np.sqrt((weight**2 * variance).sum())))
