"""Figures with their 95% intervals."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Z = 1.96
"""Standard errors on either side of a 95% interval."""


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95% interval; not a number where there was nothing to estimate it from."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        if not np.isfinite(self.value):
            return "none"
        return f"{self.value:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


NOTHING = Estimate(float("nan"), float("nan"), float("nan"))


def around(value: float, error: float) -> Estimate:
    """``value`` with the normal interval of its standard ``error``."""
    return Estimate(float(value), float(value - Z * error), float(value + Z * error))


def mean_by_patient(patient: NDArray[Any], values: NDArray[Any]) -> Estimate:
    """The mean of ``values`` (m,), where several belong to one ``patient`` (m,).

    Patients are independent, visits of one are not: the error is that of a ratio of two sums over patients.
    """
    if not len(values):
        return NOTHING
    total = np.bincount(patient, values.astype(float))
    count = np.bincount(patient)
    total, count = total[count > 0], count[count > 0]
    mean = total.sum() / count.sum()
    patients = len(count)
    if patients < 2:
        return around(mean, float("inf") if total.any() else 0.0)
    spread = np.sqrt(((total - mean * count) ** 2).sum() * patients / (patients - 1))
    return around(mean, spread / count.sum())


def both_halves(one: Estimate, other: Estimate) -> Estimate:
    """The mean of two estimates of the same, with an interval that holds however much they depend on each other."""
    return Estimate((one.value + other.value) / 2, (one.low + other.low) / 2, (one.high + other.high) / 2)


def standardised(values: NDArray[Any], strata: NDArray[Any], weights: NDArray[np.float64]) -> Estimate:
    """The mean of ``values`` (m,) if ``strata`` (m,) had the given ``weights`` (S,) instead of their own.

    Strata without two values say nothing of their spread and are left out; the others take over their weight.
    """
    size = len(weights)
    count = np.bincount(strata, minlength=size)
    total = np.bincount(strata, values.astype(float), minlength=size)
    square = np.bincount(strata, values.astype(float) ** 2, minlength=size)
    usable = (count > 1) & (weights > 0)
    if not usable.any():
        return NOTHING
    count, total, square, weight = count[usable], total[usable], square[usable], weights[usable] / weights[usable].sum()
    mean = total / count
    variance = np.maximum(square / count - mean**2, 0) / (count - 1)
    return around((weight * mean).sum(), float(np.sqrt((weight**2 * variance).sum())))
