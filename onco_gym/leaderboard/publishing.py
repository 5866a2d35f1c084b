"""What everybody may see of a store: pages and the API read it through this.

While a season is open, the figures of single patients and of few are secret, and the others are rounded: dozens of figures at
full precision would tell more of the secret patients than the Ladder allows. Of a submission whose score is not published,
everybody sees only who made it, what it is called, and its state.
"""

import re
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onco_gym.foundation.words import did_you_mean
from onco_gym.leaderboard.boards import Board, BoardError
from onco_gym.leaderboard.entries import Entry, while_secret, without_patients
from onco_gym.leaderboard.explorations import Exploration
from onco_gym.leaderboard.judgements import Judgement
from onco_gym.leaderboard.manifests import Manifest
from onco_gym.leaderboard.metrics import METRICS
from onco_gym.leaderboard.standings import Row, Standings, make_standings
from onco_gym.leaderboard.store import Step, Store

PATIENCE = 0.2
"""Seconds to wait for new standings; after that the last ones are shown once more."""
_ID = re.compile("[0-9a-f]{12}")


class Published:
    """The boards of a store as everybody may see them.

    Args:
        store: the store.
        boards: its boards. They are looked at again whenever something is asked for.
    """

    def __init__(self, store: Store, boards: Iterable[Board]) -> None:
        self._store, self._boards, self._tables = store, boards, dict[str, _Table]()

    def boards(self) -> tuple[Board, ...]:
        """All boards."""
        return tuple(self._boards)

    def board(self, name: str) -> Board:
        """A board.

        Raises:
            BoardError: if there is no such board.
        """
        boards = {board.name: board for board in self._boards}
        if name not in boards:
            raise BoardError(f"there is no board {name!r}{did_you_mean(name, boards)}: expected one of {', '.join(boards)}")
        return boards[name]

    def standings(self, board: str) -> Standings:
        """The standings of a board, without the figures of single patients, and rounded while its season is open.

        Raises:
            BoardError: if there is no such board.
        """
        now, table = self.board(board), self._tables.get(board)
        if table is None or table.board != now:
            table = self._tables[board] = _Table(self._store, now)
        return table.read()

    def entries(self, board: str, account: str | None = None, start: int = 0, most: int | None = None) -> Sequence[Entry]:
        """Submissions to a board's season, newest first, whatever became of them, without judgements."""
        return self._store.entries(board, self.board(board).season.name, account, start=start, most=most)

    def count(self, board: str, account: str | None = None) -> int:
        """How many submissions there are to a board's season."""
        return self._store.count(board, self.board(board).season.name, account)

    def entry(self, entry: str) -> Entry | None:
        """A submission as everybody may see it; None if there is no such submission."""
        found = self._store.entry(entry) if _ID.fullmatch(entry) else None
        board = next((board for board in self._boards if found and board.name == found.board), None)
        if found is None or board is None:
            return None
        if not found.published:
            named = Manifest(name=found.manifest.name, authors=found.manifest.authors)
            return replace(found, manifest=named, policies={}, agent="", judgements=())
        return found if board.ended(found.season) else while_secret(found)

    def explorations(self, entry: str) -> tuple[Exploration, ...]:
        """The journeys of a submission whose score is published."""
        found = self.entry(entry)
        return self._store.explorations(entry) if found is not None and found.published else ()

    def journal(self, entry: str) -> tuple[Step, ...]:
        """Every step of a submission."""
        return self._store.journal(entry)


@dataclass(frozen=True)
class _Made:
    """Standings, and of what version of the store they are."""

    version: Any
    standings: Standings


class _Table:
    """The standings of a board. They are made anew beside the reader, who does not wait long for them."""

    def __init__(self, store: Store, board: Board) -> None:
        self._store, self.board = store, board
        self._known: dict[str, tuple[Judgement, ...]] = {}
        self._lock = threading.Lock()
        self._last: _Made | None = None
        self._making: Future[_Made] | None = None
        self._maker = ThreadPoolExecutor(1, thread_name_prefix=f"standings of {board.name}")

    def read(self) -> Standings:
        """The standings; the first time the reader waits for them."""
        version = self._store.version(self.board.name, self.board.season.name)
        last = self._last
        if last is not None and last.version == version:
            return last.standings
        with self._lock:
            if self._making is None or self._making.done():
                self._making = self._maker.submit(self._make)
            making = self._making
        try:
            return making.result(None if last is None else PATIENCE).standings
        except TimeoutError:
            if last is None:
                raise
            return last.standings

    def _make(self) -> _Made:
        board, season = self.board.name, self.board.season.name
        version = self._store.version(board, season)
        if self._last is not None and self._last.version == version:
            return self._last
        entries = self._store.entries(board, season)
        wanted = {one.id for one in entries if one.published} - set(self._known)
        for name, judgements in self._store.judgements(wanted).items():
            self._known[name] = tuple(_lean(one) for one in judgements)
        found = make_standings(self.board, [replace(one, judgements=self._known.get(one.id, ())) for one in entries])
        rows = tuple(map(_finally if self.board.season.ended else _meanwhile, found.rows))
        self._last = _Made(version, replace(found, rows=rows))
        return self._last


def _finally(row: Row) -> Row:
    """What may be seen of a row when the season has ended."""
    return replace(row, entry=without_patients(row.entry))


def _meanwhile(row: Row) -> Row:
    """What may be seen of a row while the season is open."""
    figures = {name: METRICS[name].rounded(one) for name, one in row.figures.items()}
    return replace(row, entry=while_secret(row.entry), figures=figures)


def _lean(judgement: Judgement) -> Judgement:
    """Without the figures of single patients that ranks do not need."""
    none = np.zeros(0, np.float32)
    return replace(judgement, qalys=none, weeks=none, died=none)
