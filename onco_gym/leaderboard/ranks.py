"""Ranks with simultaneous intervals: entries that cannot be told apart share a rank.

After Mogstad, Romano, Shaikh and Wilhelm, "Inference for ranks with applications to mobility across neighbourhoods and academic
achievement across countries", Review of Economic Studies 2024. All pairs of entries are compared on the same patients, and
with 95% confidence all intervals hold at once.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

LEVEL = 0.95
DRAWS = 4000
"""Draws of the largest difference among all pairs."""
MANY = 150
"""With more entries, the bound for all pairs is Bonferroni's, which is a little wider and costs nothing."""
ROWS = 128
"""Entries that are compared with all others at once: a matrix of all pairs of 10,000 entries would take 800 MB."""

Floats = NDArray[np.float64]


def rank_intervals(scores: Sequence[Floats], seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lowest and the highest rank of each of K entries that the data allow; 1 is best.

    Args:
        scores: (K, n) for each environment. Columns are patients, the same for all entries; environments have different patients.
        seed: same seed, same intervals.

    Returns:
        (K,) lowest and (K,) highest ranks.
    """
    entries = len(scores[0])
    means = np.mean([some.mean(1) for some in scores], axis=0)
    spread = np.concatenate([np.diagonal(_covariance(scores, rows, rows)) for rows in _blocks(entries)])
    bound, everybody = _bound(scores, spread, seed), slice(0, entries)
    low, high = np.ones(entries, np.int64), np.full(entries, entries)
    for rows in _blocks(entries):
        limits = bound * _errors(spread[rows], spread, _covariance(scores, rows, everybody))
        gaps = means[rows, None] - means[None, :]
        np.fill_diagonal(gaps[:, rows], 0)
        low[rows] += (gaps < -limits).sum(1)
        high[rows] -= (gaps > limits).sum(1)
    return low, high


def _blocks(entries: int) -> Iterator[slice]:
    for start in range(0, entries, ROWS):
        yield slice(start, min(start + ROWS, entries))


def _covariance(scores: Sequence[Floats], rows: slice, others: slice) -> Floats:
    """(rows, others) of the entries' means over environments."""
    found = np.zeros((rows.stop - rows.start, others.stop - others.start))
    for some in scores:
        centred, patients = some[rows] - some[rows].mean(1, keepdims=True), some.shape[1]
        found += centred @ some[others].T / (patients - 1) / patients  # centring one side is enough
    found /= len(scores) ** 2
    return found


def _errors(spread: Floats, others: Floats, covariance: Floats) -> Floats:
    """(rows, others) standard errors of differences."""
    found: Floats = np.sqrt(np.maximum(spread[:, None] + others[None, :] - 2 * covariance, 0))
    return found


def _bound(scores: Sequence[Floats], spread: Floats, seed: int) -> float:
    """How many standard errors the largest of all differences exceeds by chance, with probability 1 - :data:`LEVEL`."""
    entries, pairs = len(spread), len(spread) * (len(spread) - 1) // 2
    if pairs == 0:
        return 0.0
    if entries > MANY:
        return float(-ndtri((1 - LEVEL) / (2 * pairs)))
    covariance = _covariance(scores, slice(0, entries), slice(0, entries))
    errors = _errors(spread, spread, covariance)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    first, second = np.triu_indices(entries, 1)
    inverse = np.divide(1, errors[first, second], out=np.zeros(pairs), where=errors[first, second] > 0)
    rng, largest = np.random.default_rng(seed), np.zeros(DRAWS)
    for start in range(0, DRAWS, 200):
        drawn = rng.standard_normal((200, entries)) @ root.T
        largest[start : start + 200] = (np.abs(drawn[:, first] - drawn[:, second]) * inverse).max(1)
    return float(np.quantile(largest, LEVEL))
