"""The Ladder: the score of a submission is published only if it beats the account's last published one by more than noise.

After Blum and Hardt, "The Ladder: a reliable leaderboard for machine learning competitions", ICML 2015 (arXiv:1502.04585).
Whoever submits again and again learns from every answer a little about the secret patients. Most answers are therefore "not
better", which tells next to nothing.
"""

from collections.abc import Sequence

import numpy as np

from onco_gym.foundation.intervals import Interval
from onco_gym.leaderboard.judgements import Judgement

STEP = 1.644854
"""Standard errors by which the paired difference must exceed 0: one-sided 95% confidence."""


def difference(new: Sequence[Judgement], old: Sequence[Judgement]) -> Interval:
    """The difference in score between two entries on the same patients, mean over environments, with its 95% interval."""
    before = {one.environment: one for one in old}
    gains = [one.scores - before[one.environment].scores for one in new]
    value, error = float(np.mean([gain.mean() for gain in gains])), standard_error(gains)
    return Interval(value, value - 1.959964 * error, value + 1.959964 * error)


def standard_error(gains: Sequence[np.ndarray]) -> float:
    """The standard error of the mean over environments, whose patients are independent. Each array has (n,) patients."""
    return float(np.sqrt(sum(gain.var(ddof=1) / len(gain) for gain in gains))) / len(gains)


def decide_publication(new: Sequence[Judgement], last: Sequence[Judgement] | None) -> tuple[bool, str]:
    """Whether the score of a submission is published, and why not, in words.

    Args:
        new: its judgements.
        last: those of the account's last published entry in the season; None if there is none.
    """
    if last is None:
        return True, ""
    found = difference(new, last)
    error = (found.high - found.low) / (2 * 1.959964)
    if found.value > STEP * error:
        return True, ""
    return False, "its score is not better than that of your published entry by more than noise"
