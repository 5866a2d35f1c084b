"""Ranks with simultaneous intervals: entries that cannot be told apart share a rank.

After Mogstad, Romano, Shaikh and Wilhelm, "Inference for ranks with applications to mobility across neighbourhoods and academic
achievement across countries", Review of Economic Studies 2024. All pairs of entries are compared on the same patients, and
with 95% confidence all intervals hold at once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

LEVEL = 0.95
DRAWS = 4000
"""Draws of the largest difference among all pairs."""
MANY = 150
"""With more entries, the bound for all pairs is Bonferroni's, which is a little wider and costs nothing."""

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
    covariance = np.sum([_covariance(some) for some in scores], axis=0) / len(scores) ** 2
    spread = np.diag(covariance)
    errors = np.sqrt(np.maximum(spread[:, None] + spread[None, :] - 2 * covariance, 0))
    bound = _bound(covariance, errors, seed) * errors
    gaps = means[:, None] - means[None, :]
    above, below = gaps < -bound, gaps > bound
    np.fill_diagonal(above, False)
    np.fill_diagonal(below, False)
    return 1 + above.sum(1), entries - below.sum(1)


def _covariance(scores: Floats) -> Floats:
    """(K, K) of the entries' means."""
    centred = scores - scores.mean(1, keepdims=True)
    patients = scores.shape[1]
    found: Floats = centred @ centred.T / (patients - 1) / patients
    return found


def _bound(covariance: Floats, errors: Floats, seed: int) -> float:
    """How many standard errors the largest of all differences exceeds by chance, with probability 1 - :data:`LEVEL`."""
    entries, pairs = len(covariance), len(covariance) * (len(covariance) - 1) // 2
    if pairs == 0:
        return 0.0
    if entries > MANY:
        return float(-ndtri((1 - LEVEL) / (2 * pairs)))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    first, second = np.triu_indices(entries, 1)
    inverse = np.divide(1, errors[first, second], out=np.zeros(pairs), where=errors[first, second] > 0)
    rng, largest = np.random.default_rng(seed), np.zeros(DRAWS)
    for start in range(0, DRAWS, 200):
        drawn = rng.standard_normal((200, entries)) @ root.T
        largest[start : start + 200] = (np.abs(drawn[:, first] - drawn[:, second]) * inverse).max(1)
    return float(np.quantile(largest, LEVEL))
