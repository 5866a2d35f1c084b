"""Statistics over runs and tasks, against hand-worked values, invariants and coverage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import mannwhitneyu, trim_mean

from onco_gym.evaluation import Interval, statistics

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 4))
SCORES = arrays(np.float64, SHAPES, elements=st.floats(-100, 100, width=32))


def column(*values):
    return np.array(values, float)[:, None]


def test_interquartile_mean_by_hand():
    assert statistics.interquartile_mean(column(1, 2, 3, 100)) == 2.5
    assert statistics.interquartile_mean(column(0, 1, 2, 3, 4, 5, 6, 1000)) == 3.5  # (2 + 3 + 4 + 5) / 4
    assert statistics.interquartile_mean(column(1, 2, 6)) == 3.0  # a quarter of three is no whole run
    assert statistics.interquartile_mean([[1, 2], [3, 100]]) == 2.5  # tasks together
    assert statistics.interquartile_mean(np.stack([column(1, 2, 3, 100), column(0, 0, 8, 9)])).tolist() == [2.5, 4.0]


def test_probability_of_improvement_by_hand():
    assert statistics.probability_of_improvement(column(1, 2, 3), column(1, 2, 3)).value == 0.5
    assert statistics.probability_of_improvement(column(2, 3), column(1, 2)).value == 0.875  # three wins and a tie of four pairs
    assert statistics.probability_of_improvement(column(5), column(1, 2, 9)).value == pytest.approx(2 / 3)
    two_tasks = statistics.probability_of_improvement([[1, 0], [1, 0]], [[0, 1], [0, 1]])
    assert (two_tasks.value, two_tasks.low, two_tasks.high) == (0.5, 0.5, 0.5)  # sure on each, drawn within each


def test_profile_by_hand():
    found = statistics.performance_profile(column(0.1, 0.2, 0.3, 0.4), [0.0, 0.2, 0.35, 0.4])
    assert found.share.tolist() == [1.0, 0.5, 0.25, 0.0]  # above, not at
    assert (found.low <= found.share).all()
    assert (found.share <= found.high).all()
    assert found.low[0] == found.high[0] == 1


def test_ratio_of_means():
    found = statistics.ratio_interval([1.0, 3.0], [2.0, 6.0])
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)  # paired: every sample has the same ratio
    assert math.isnan(statistics.ratio_interval([1.0, 2.0], [-1.0, 0.5]).value)


def test_scores_over_seeds_by_hand():
    returns = {"random": [[0.0, 1.0]], "guideline": [[2.0, 3.0]], "learned": [[1.0, 2.0], [3.0, 4.0]]}
    found = statistics.scores_over_seeds(returns, "random", "guideline")
    assert found["random"] == (Interval(0.0, 0.0, 0.0), [0.0])
    assert found["guideline"] == (Interval(100.0, 100.0, 100.0), [100.0])  # paired: two above random in every patient
    assert found["learned"] == (Interval(100.0, 50.0, 150.0), [50.0, 150.0])  # all of the interval is between seeds
    further = statistics.scores_over_seeds(returns, "random", "guideline", reach=1.25)
    assert further["guideline"].score == Interval(80.0, 80.0, 80.0)
    assert further["learned"].by_seed == [40.0, 120.0]
    assert found == statistics.scores_over_seeds(returns, "random", "guideline")
    shrunk = statistics.scores_over_seeds({**returns, "guideline": [[-1.0, 3.0]]}, "random", "guideline")["learned"].score
    assert math.isinf(shrunk.high)  # where only the first patient is drawn, the guideline is below random play


@pytest.fixture
def rough(monkeypatch):
    """Intervals of 90%, from fewer samples."""
    monkeypatch.setattr(statistics, "LEVEL", 0.9)
    monkeypatch.setattr(statistics, "REPLICATES", 400)


@pytest.mark.usefixtures("rough")
@pytest.mark.parametrize("seeds", [1, 8])
def test_scores_over_seeds_cover_patients_and_seeds(seeds):
    """A 90% interval holds the truth in about 90% of simulated studies, if there are seeds enough to see how they differ."""
    rng = np.random.default_rng(1)
    held = 0
    for study in range(200):
        who = rng.normal(size=80)  # how well a patient does, whoever treats
        returns = {
            "random": [who + rng.normal(0, 0.5, 80)],
            "guideline": [who + 1 + rng.normal(0, 0.5, 80)],
            "learned": who + 0.5 + rng.normal(0, 0.2, (seeds, 1)) + rng.normal(0, 0.5, (seeds, 80)),
        }
        score = statistics.scores_over_seeds(returns, "random", "guideline", seed=study)["learned"].score
        held += score.low <= 50 <= score.high
    if seeds == 1:
        assert held / 200 < 0.7  # one seed cannot tell
    else:
        assert 0.8 <= held / 200 <= 0.95


@given(SCORES)
@settings(max_examples=100, deadline=None)
def test_interquartile_mean_lies_in_the_middle_and_ignores_order(scores):
    flat = np.sort(scores.ravel())
    cut = flat.size // 4
    found = statistics.interquartile_mean(scores)
    assert flat[cut] - 1e-9 <= found <= flat[-cut - 1] + 1e-9
    assert found == statistics.interquartile_mean(np.random.default_rng(0).permutation(scores.ravel()).reshape(scores.shape))
    assert found == pytest.approx(trim_mean(scores, 0.25, axis=None), abs=1e-9)
    assert statistics.interquartile_mean(2 * scores + 1) == pytest.approx(2 * found + 1, abs=1e-6)


@given(SCORES, st.integers(1, 9), st.integers(0, 2**16))
@settings(max_examples=100, deadline=None)
def test_improvement_is_symmetric_and_mann_whitneys(first, runs, seed):
    second = np.random.default_rng(seed).choice(first.ravel(), (runs, first.shape[1]))  # many ties
    one = statistics.probability_of_improvement(first, second)
    other = statistics.probability_of_improvement(second, first)
    assert one.value + other.value == pytest.approx(1)
    by_task = [mannwhitneyu(x, y).statistic / (len(x) * len(y)) for x, y in zip(first.T, second.T, strict=True)]
    assert one.value == pytest.approx(np.mean(by_task))
    assert 0 <= one.low <= one.high <= 1


@given(SCORES)
@settings(max_examples=50, deadline=None)
def test_profiles_fall(scores):
    found = statistics.performance_profile(scores, np.linspace(-101, 101, 9))
    assert (np.diff(found.share) <= 0).all()
    assert (found.share[0], found.share[-1]) == (1, 0)


def test_strata_stay_apart():
    """Runs are drawn within a task: between tasks of no spread there is no uncertainty, however far apart."""
    found = statistics.bootstrap_interval(np.tile([0.0, 100.0], (5, 1)), lambda some: some.mean(axis=(-2, -1)))
    assert (found.value, found.low, found.high) == (50, 50, 50)


def test_same_seed_same_interval(monkeypatch):
    scores = np.random.default_rng(3).normal(size=(40, 3))
    one = statistics.bootstrap_interval(scores, seed=1)
    assert one == statistics.bootstrap_interval(scores, seed=1) != statistics.bootstrap_interval(scores, seed=2)
    monkeypatch.setattr("onco_gym.evaluation.statistics.BLOCK", 1000)  # in many small blocks
    assert one == statistics.bootstrap_interval(scores, seed=1)


@pytest.mark.usefixtures("rough")
@pytest.mark.parametrize("statistic", ["iqm", "improvement"])
def test_coverage(statistic):
    """A 90% interval holds the truth in about 90% of simulated studies."""
    rng = np.random.default_rng(0)
    studies, runs, held = 300, 60, 0
    u = (np.arange(200_000) + 0.5) / 400_000 + 0.25  # the middle half of an exponential distribution
    truth = -np.log1p(-u).mean() if statistic == "iqm" else 2 / 3  # of exponentials with means 2 and 1
    for study in range(studies):
        scores = rng.exponential(size=(runs, 1))
        if statistic == "iqm":
            found = statistics.bootstrap_interval(scores, seed=study)
        else:
            found = statistics.probability_of_improvement(2 * rng.exponential(size=(runs, 1)), scores, study)
        held += found.low <= truth <= found.high
    assert 0.85 <= held / studies <= 0.95


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: statistics.interquartile_mean([1.0, 2.0]), r"expected \(runs, tasks\)"),
        (lambda: statistics.bootstrap_interval([[np.nan]]), "finite"),
        (lambda: statistics.probability_of_improvement([[1.0]], [[1.0, 2.0]]), "same tasks"),
        (lambda: statistics.performance_profile([[1.0]], []), "thresholds"),
        (lambda: statistics.ratio_interval([1.0], [1.0, 2.0]), "same patients"),
        (lambda: statistics.scores_over_seeds({"a": [[1.0]], "b": [[2.0, 3.0]]}, "a", "b"), "same patients for all"),
        (lambda: statistics.scores_over_seeds({"a": [[1.0]]}, "a", "b"), "expected a and b and the same patients"),
        (lambda: statistics.scores_over_seeds({"a": [[1.0]], "b": [[1.0]]}, "a", "b"), "expected b above a"),
        (lambda: statistics.scores_over_seeds({"a": [[1.0]], "b": [[2.0]]}, "a", "b", reach=0), "reach above 0"),
        (lambda: statistics.scores_over_seeds({"a": [1.0], "b": [2.0]}, "a", "b"), r"expected \(runs, tasks\)"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(statistics.StatisticsError, match=message):
        call()
