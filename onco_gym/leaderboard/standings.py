"""The standings of a board: one row for each account's published entry and for each reference agent, best first."""

import collections
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onco_gym.foundation.intervals import Interval
from onco_gym.leaderboard.boards import Board
from onco_gym.leaderboard.entries import Entry
from onco_gym.leaderboard.judgements import overall
from onco_gym.leaderboard.metrics import METRICS
from onco_gym.leaderboard.ranks import rank_intervals


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        entry: the last published entry of an account, or a reference agent.
        figures: metric to its figure over the whole board; without those that are not known.
        rank: the lowest and the highest rank that the data allow, simultaneously for all rows. None for an entry that was not
            run by us, or on other patients than the season's.
        submissions: how many submissions its account has made in the season, whatever became of them.
        efficient: whether no other entry is at least as good in every metric of the board, and better in one. None except on
            the multi-objective track.
    """

    entry: Entry
    figures: dict[str, Interval]
    rank: tuple[int, int] | None
    submissions: int
    efficient: bool | None = None

    @property
    def place(self) -> str:
        """The rank in words: ``2``, ``2 to 4`` if it cannot be told apart from others, or a dash."""
        if self.rank is None:
            return "-"
        low, high = self.rank
        return f"{low}" if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class Standings:
    """The table of a board.

    Attributes:
        board: the board.
        rows: best first.
        submissions: how many there were in the season.
        accounts: how many accounts made them.
    """

    board: Board
    rows: tuple[Row, ...]
    submissions: int
    accounts: int


def make_standings(board: Board, entries: Sequence[Entry]) -> Standings:
    """The standings of a board's season.

    Args:
        board: the board.
        entries: all its submissions, whatever became of them. Those of other seasons do not count.
    """
    ours = [one for one in entries if (one.board, one.season) == (board.name, board.season.name)]
    made = collections.Counter(one.account for one in ours if one.kind != "reference")
    shown = _shown(sorted(ours, key=lambda one: (one.submitted, one.id)))
    ranks = _ranks(board, shown)
    figures = [_figures(board, one) for one in shown]
    best: Sequence[bool | None] = _efficient(board, figures) if board.track == "multi-objective" else [None] * len(shown)
    rows = [
        Row(one, found, ranks.get(one.id), made[one.account], efficient)
        for one, found, efficient in zip(shown, figures, best, strict=True)
    ]
    first = board.metrics[0]
    sign = -1 if METRICS[first].better == "lower" else 1

    def value(row: Row) -> float:
        return -sign * row.figures[first].value if first in row.figures else np.inf

    return Standings(board, tuple(sorted(rows, key=value)), made.total(), len(made))


def _shown(entries: Sequence[Entry]) -> list[Entry]:
    """The last published entry of each account, and all reference agents."""
    last = {
        one.id if one.kind == "reference" else f"{one.account}\0{one.kind}": one
        for one in entries
        if one.state == "done" and one.published and one.judgements
    }
    return list(last.values())


def _figures(board: Board, entry: Entry) -> dict[str, Interval]:
    found = {name: overall(board, entry.judgements, name) for name in METRICS}
    return {name: one for name, one in found.items() if one is not None}


def _efficient(board: Board, figures: Sequence[dict[str, Interval]]) -> list[bool]:
    """Whether each of K entries is on the Pareto front of the board's metrics. One that lacks a figure is not."""
    signs = {name: 1 if METRICS[name].better == "higher" else -1 for name in board.metrics if METRICS[name].better}
    values = np.array(
        [[sign * (found[name].value if name in found else np.nan) for name, sign in signs.items()] for found in figures]
    )
    values = np.where(np.isnan(values), -np.inf, values).reshape(len(figures), len(signs))
    return [bool(np.isfinite(one).all() and not ((values >= one).all(1) & (values > one).any(1)).any()) for one in values]


def _ranks(board: Board, entries: Sequence[Entry]) -> dict[str, tuple[int, int]]:
    """By entry, among those that we ran on the season's patients."""
    scores = {}
    for one in entries:
        by_environment = {found.environment: found for found in one.judgements}
        if one.kind != "self-reported" and set(board.environments) <= set(by_environment):
            scores[one.id] = [by_environment[name].scores for name in board.environments]
    if not scores:
        return {}
    low, high = rank_intervals([np.stack(some) for some in zip(*scores.values(), strict=True)])
    return {name: (int(a), int(b)) for name, a, b in zip(scores, low, high, strict=True)}
