"""Ranks, the Ladder, and standings: what may be said of entries, and what is published."""

import tracemalloc

import numpy as np
import pytest
from made import BOARD, PATIENTS, drawn, entry, judgement

from onco_gym.foundation.intervals import mean
from onco_gym.leaderboard import ranks
from onco_gym.leaderboard.boards import read_board
from onco_gym.leaderboard.judgements import overall
from onco_gym.leaderboard.ladder import decide_publication, difference
from onco_gym.leaderboard.ranks import MANY, rank_intervals
from onco_gym.leaderboard.standings import make_standings


def test_what_differs_clearly_has_ranks_of_its_own_and_what_does_not_shares_them():
    scores = np.stack([drawn(80, 1), drawn(80, 2), drawn(60, 3), drawn(40, 4)])
    low, high = rank_intervals([scores])
    assert (low.tolist(), high.tolist()) == ([1, 1, 3, 4], [2, 2, 3, 4])


def test_ranks_of_a_single_entry_and_of_equal_ones():
    assert [one.tolist() for one in rank_intervals([drawn(50, 1)[None]])] == [[1], [1]]
    same = np.stack([drawn(50, 1)] * 3)
    assert [one.tolist() for one in rank_intervals([same])] == [[1, 1, 1], [3, 3, 3]]


def test_all_true_ranks_are_covered_at_once():
    """In 95% of repetitions; 20 entries whose true scores are a tenth of a point apart."""
    truth, covered = np.arange(20) * 0.1, 0
    for repetition in range(60):
        noise = np.random.default_rng(repetition).normal(0, 2, (20, PATIENTS))
        low, high = rank_intervals([truth[:, None] + noise], seed=repetition)
        true_rank = 20 - np.arange(20)
        covered += bool(((low <= true_rank) & (true_rank <= high)).all())
    assert covered >= 53  # 57 expected; fewer than 53 have a probability below 2%


def test_many_entries_get_wider_intervals_than_few():
    few = np.stack([drawn(50 + 0.1 * number, number) for number in range(20)])
    many = np.concatenate([few, np.stack([drawn(0, 100 + number) for number in range(MANY)])])
    narrow, wide = rank_intervals([few]), rank_intervals([many])
    assert ((wide[1] - wide[0])[:20] >= narrow[1] - narrow[0]).all()


def test_entries_are_compared_in_blocks(monkeypatch):
    """The size of a block changes nothing."""
    for count in (20, MANY + 7):
        scores = [np.stack([drawn(50 + 0.2 * number, count + number) for number in range(count)]) for _ in range(2)]
        whole = rank_intervals(scores)
        assert len(np.unique(whole[0])) > 3
        with monkeypatch.context() as patch:
            patch.setattr(ranks, "ROWS", 3)
            blocks = rank_intervals(scores)
        np.testing.assert_array_equal(whole, blocks)


def test_many_entries_take_little_memory():
    """Far less than a matrix of all pairs takes, which is 200 MB here."""
    scores = np.random.default_rng(0).normal(size=(5000, 20))
    tracemalloc.start()
    rank_intervals([scores])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 0.15 * 8 * 5000**2


def test_environments_count_alike():
    one, other = np.stack([drawn(80, 1), drawn(60, 2)]), np.stack([drawn(60, 3), drawn(80, 4)])
    assert [some.tolist() for some in rank_intervals([one, other])] == [[1, 1], [2, 2]]


def test_the_first_score_is_published_and_later_ones_if_they_are_better_by_more_than_noise():
    first = [judgement(drawn(50, 1))]
    assert decide_publication(first, None) == (True, "")
    assert decide_publication([judgement(drawn(52, 2))], first)[0]
    for score in (49.95, 40):
        published, why = decide_publication([judgement(drawn(score, 3))], first)
        assert not published
        assert "not better" in why
    assert difference([judgement(drawn(52, 2))], first).value == pytest.approx(2, abs=0.3)


def test_submitting_noise_again_and_again_publishes_hardly_anything():
    rng, last, published = np.random.default_rng(5), [judgement(drawn(50, 1))], 0
    for _ in range(200):
        new = [judgement(drawn(50, 1) + rng.normal(0, 5, PATIENTS))]
        if decide_publication(new, last)[0]:
            published, last = published + 1, new
    assert published <= 8  # without the ladder every one would be


def test_the_table_shows_one_row_an_account_and_counts_all_submissions():
    entries = [
        entry(1, drawn(50, 1), "a"),
        entry(2, drawn(60, 2), "a"),
        entry(3, drawn(90, 3), "a", published=False),
        entry(4, drawn(70, 4), "b"),
        entry(5, drawn(10, 5), "onco_gym", kind="reference"),
        entry(6, drawn(20, 6), "onco_gym", kind="reference"),
        entry(7, drawn(30, 7), "c", state="refused", published=False, judgements=()),
        entry(8, drawn(99, 8), "d", season="another"),
    ]
    found = make_standings(BOARD, entries)
    assert [(row.entry.manifest.name, row.submissions, row.place) for row in found.rows] == [
        ("policy 4", 1, "1"),
        ("policy 2", 3, "2"),
        ("policy 6", 0, "3"),
        ("policy 5", 0, "4"),
    ]
    assert (found.submissions, found.accounts) == (5, 3)


def test_what_its_authors_ran_themselves_has_no_rank():
    found = make_standings(BOARD, [entry(1, drawn(50, 1)), entry(2, drawn(80, 2), "b", kind="self-reported")])
    assert [row.place for row in found.rows] == ["-", "1"]


def test_a_board_of_several_environments_has_means_and_the_worst_of_fairness():
    board = read_board("oncology-2026")
    parts = []
    for place, name in enumerate(board.environments):
        made = judgement(drawn(10 * place, place), name)
        made.figures.update(fairness=mean(np.full(4, float(place))), robustness=mean(np.full(4, float(place))))
        parts.append(made)
    score = overall(board, parts, "score")
    each = [part.figures["score"] for part in parts]
    assert score.value == pytest.approx(np.mean([one.value for one in each]))
    assert score.value - score.low == pytest.approx(np.sqrt(sum((one.value - one.low) ** 2 for one in each)) / 4)
    assert (overall(board, parts, "fairness").value, overall(board, parts, "robustness").value) == (3, 0)
    assert overall(board, parts[:3], "score") is None
    assert overall(board, parts, "regret") is None


def test_on_the_multi_objective_track_entries_that_nothing_beats_are_marked():
    board = BOARD.model_copy(update={"track": "multi-objective", "metrics": ["qalys", "carbon_kg"]})

    def with_figures(number, qalys, carbon):
        made = entry(number, drawn(50, number), f"account {number}")
        made.judgements[0].figures.update(qalys=mean(np.full(4, qalys)), carbon_kg=mean(np.full(4, carbon)))
        return made

    rows = make_standings(board, [with_figures(1, 2.0, 900.0), with_figures(2, 1.5, 500.0), with_figures(3, 1.4, 950.0)]).rows
    assert [(row.entry.manifest.name, row.efficient) for row in rows] == [
        ("policy 1", True),
        ("policy 2", True),
        ("policy 3", False),
    ]
    assert {row.efficient for row in make_standings(BOARD, [with_figures(1, 2.0, 900.0)]).rows} == {None}
