"""Statistics of scores over runs and tasks.

After Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice", NeurIPS 2021 (arXiv:2108.13264).
Scores are arrays of shape (runs, tasks). Intervals are percentiles of a stratified bootstrap: runs are resampled with
replacement within each task; tasks are not resampled. Same seed, same interval. A single task is a column: ``scores[:, None]``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onco_gym.foundation.intervals import UNKNOWN, Interval

REPLICATES = 2000
"""Bootstrap samples behind an interval."""
LEVEL = 0.95
"""Level of intervals."""
BLOCK = 4_000_000
"""Numbers held at a time while resampling."""

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Any]
"""Takes (..., runs, tasks), returns (...)."""


class StatisticsError(ValueError):
    """Scores that cannot be summarised; the message says what was expected."""


@dataclass(frozen=True, eq=False)
class Profile:
    """A performance profile, for T thresholds.

    Attributes:
        thresholds: (T,) scores.
        share: (T,) of runs above each threshold, mean over tasks.
        low, high: (T,) pointwise interval.
    """

    thresholds: Floats
    share: Floats
    low: Floats
    high: Floats


class SeedScores(NamedTuple):
    """The score of an algorithm that was trained with several seeds."""

    score: Interval  # mean over seeds and patients
    by_seed: list[float]


def interquartile_mean(scores: ArrayLike) -> Any:
    """The mean of the middle half of all runs of all tasks: the lowest and the highest quarter are left out.

    Args:
        scores: (..., runs, tasks). A quarter is rounded down to whole runs.

    Returns:
        (...), the shape of the leading axes; a number for (runs, tasks).
    """
    flat = _runs_and_tasks(scores)
    flat = np.sort(flat.reshape(*flat.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return flat[..., cut : flat.shape[-1] - cut].mean(axis=-1)


def bootstrap_interval(scores: ArrayLike, statistic: Statistic = interquartile_mean, seed: int = 0) -> Interval:
    """A statistic with its stratified bootstrap percentile interval.

    Args:
        scores: (runs, tasks).
        statistic: takes (b, runs, tasks), returns (b,).
        seed: same seed, same interval.

    Raises:
        StatisticsError: if scores are not finite numbers of that shape.
    """
    values = _checked(scores)
    drawn = np.concatenate([np.asarray(statistic(sample)) for sample in _resampled(values, seed)])
    low, high = np.quantile(drawn, _tails())
    return Interval(float(statistic(values)), float(low), float(high))


def probability_of_improvement(first: ArrayLike, second: ArrayLike, seed: int = 0) -> Interval:
    """Probability that a run of ``first`` is above one of ``second`` on a random task. Ties count half (Mann-Whitney).

    Args:
        first: (runs, tasks).
        second: (other runs, tasks), the same tasks.
        seed: see :func:`bootstrap_interval`.
    """
    x, y = _checked(first), _checked(second)
    if x.shape[1] != y.shape[1]:
        raise StatisticsError(f"scores have {x.shape[1]} and {y.shape[1]} tasks, expected the same tasks")
    rng = np.random.default_rng(seed)
    total, drawn = 0.0, np.zeros(REPLICATES)
    for task in range(x.shape[1]):
        values, ranks = np.unique(np.concatenate([x[:, task], y[:, task]]), return_inverse=True)
        one, other = ranks[: len(x)], ranks[len(x) :]
        total += float(_above(_counts(one[None], len(values)), _counts(other[None], len(values)))[0])
        for start, size in _blocks(len(ranks) + len(values)):
            here = _counts(one[rng.integers(len(one), size=(size, len(one)))], len(values))
            there = _counts(other[rng.integers(len(other), size=(size, len(other)))], len(values))
            drawn[start : start + size] += _above(here, there)
    low, high = np.quantile(drawn / x.shape[1], _tails())
    return Interval(total / x.shape[1], float(low), float(high))


def performance_profile(scores: ArrayLike, thresholds: ArrayLike, seed: int = 0) -> Profile:
    """The share of runs whose score lies above each threshold, mean over tasks, with pointwise bands.

    Args:
        scores: (runs, tasks).
        thresholds: (T,).
        seed: see :func:`bootstrap_interval`.
    """
    values, marks = _checked(scores), np.asarray(thresholds, np.float64)
    if marks.ndim != 1 or not len(marks) or np.isnan(marks).any():
        raise StatisticsError(f"thresholds have shape {marks.shape}, expected (T,) numbers")

    def share(some: Floats) -> Floats:
        flat = np.sort(some.reshape(len(some), -1), axis=1)
        below = np.stack([np.searchsorted(row, marks, side="right") for row in flat])
        return 1 - below / flat.shape[1]

    drawn = np.concatenate([share(sample) for sample in _resampled(values, seed)])
    low, high = np.quantile(drawn, _tails(), axis=0)
    return Profile(marks, share(values[None])[0], low, high)


def ratio_interval(top: ArrayLike, bottom: ArrayLike, seed: int = 0) -> Interval:
    """The ratio of two means over the same n patients, with a bootstrap interval over patients.

    Args:
        top, bottom: (n,) paired.
        seed: see :func:`bootstrap_interval`.

    Returns:
        The ratio and its interval; NaN if the mean of ``bottom`` is not above 0.
    """
    a, b = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise StatisticsError(f"top and bottom have shapes {a.shape} and {b.shape}, expected (n,) for the same patients")
    pairs = _checked(np.stack([a, b], 1))
    if b.mean() <= 0:
        return UNKNOWN
    rng = np.random.default_rng(seed)
    sums = np.concatenate([pairs[rng.integers(len(a), size=(size, len(a)))].sum(1) for _, size in _blocks(2 * len(a))])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(sums[:, 1] > 0, sums[:, 0] / sums[:, 1], np.sign(sums[:, 0]) * np.inf)
    low, high = np.quantile(ratios, _tails(), method="nearest")
    return Interval(float(a.mean() / b.mean()), float(low), float(high))


def scores_over_seeds(
    returns: Mapping[str, ArrayLike], zero: str, hundred: str, reach: float = 1.0, seed: int = 0
) -> dict[str, SeedScores]:
    """Scores of algorithms whose policies, one for each training seed, were all evaluated on the same patients.

    The bootstrap resamples patients, the same for all algorithms, and the seeds of each algorithm.

    Args:
        returns: algorithm to (seeds, patients). The number of seeds may differ; patients are the same, in the same order.
        zero: the algorithm whose mean return has the score 0.
        hundred: the algorithm whose mean return has the score 100, or 100 / ``reach``.
        reach: distance of 100 from ``zero``, in units of the distance of ``hundred``.
        seed: see :func:`bootstrap_interval`.

    Raises:
        StatisticsError: if algorithms differ in their number of patients, or ``hundred`` is not above ``zero``.
    """
    values = {name: _checked(some) for name, some in returns.items()}
    if not {zero, hundred} <= set(values) or len({some.shape[1] for some in values.values()}) != 1:
        shapes = ", ".join(f"{name} {some.shape}" for name, some in values.items())
        raise StatisticsError(f"returns have shapes {shapes}, expected {zero} and {hundred} and the same patients for all")
    bottom, top = values[zero].mean(), values[hundred].mean()
    if not reach > 0 or top <= bottom:
        raise StatisticsError(
            f"mean returns are {top:.4g} ({hundred}) and {bottom:.4g} ({zero}), reach is {reach}: "
            f"expected {hundred} above {zero} and reach above 0"
        )
    rng = np.random.default_rng(seed)
    patients = values[zero].shape[1]
    weights = rng.multinomial(patients, np.full(patients, 1 / patients), size=REPLICATES) / patients
    low, high = weights @ values[zero].mean(0), weights @ values[hundred].mean(0)
    found = {}
    for name, some in values.items():
        means = weights @ some.T  # (replicates, seeds)
        seeds = rng.integers(0, len(some), size=means.shape)
        above = 100 / reach * (np.take_along_axis(means, seeds, axis=1).mean(1) - low)
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = np.where(high > low, above / (high - low), np.sign(above) * np.inf)  # resampling may reverse the order
        method: Any = "linear" if np.isfinite(drawn).all() else "nearest"
        ends = (float(end) for end in np.quantile(drawn, _tails(), method=method))
        by_seed = 100 / reach * (some.mean(1) - bottom) / (top - bottom)
        found[name] = SeedScores(Interval(float(by_seed.mean()), *ends), by_seed.tolist())
    return found


def _runs_and_tasks(scores: ArrayLike) -> Floats:
    values = np.asarray(scores, np.float64)
    if values.ndim < 2 or not values.shape[-2] or not values.shape[-1]:
        raise StatisticsError(f"scores have shape {values.shape}, expected (runs, tasks) with at least one of each")
    return values


def _checked(scores: ArrayLike) -> Floats:
    values = _runs_and_tasks(scores)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise StatisticsError(f"scores have shape {values.shape}, expected (runs, tasks) of finite numbers")
    return values


def _tails() -> tuple[float, float]:
    return (1 - LEVEL) / 2, (1 + LEVEL) / 2


def _blocks(size: int) -> Iterator[tuple[int, int]]:
    """(start, count) of replicates to hold at a time, if each takes ``size`` numbers."""
    some = max(1, BLOCK // size)
    for start in range(0, REPLICATES, some):
        yield start, min(some, REPLICATES - start)


def _resampled(values: Floats, seed: int) -> Iterator[Floats]:
    """Blocks of (b, runs, tasks): the runs of each task resampled."""
    rng, (runs, tasks) = np.random.default_rng(seed), values.shape
    for _, size in _blocks(values.size):
        yield values[rng.integers(runs, size=(size, runs, tasks)), np.arange(tasks)]


def _counts(ranks: NDArray[np.intp], levels: int) -> Floats:
    """(b, levels) how often each rank occurs in each row of ``ranks`` (b, n)."""
    rows = np.arange(len(ranks))[:, None] * levels
    return np.bincount((ranks + rows).ravel(), minlength=len(ranks) * levels).reshape(len(ranks), levels).astype(np.float64)


def _above(one: Floats, other: Floats) -> Floats:
    """(b,) the share of pairs in which the first is above, from counts (b, levels). Ties count half."""
    below = np.cumsum(other, axis=1) - other / 2
    shares: Floats = (one * below).sum(1) / (one.sum(1) * other.sum(1))
    return shares
