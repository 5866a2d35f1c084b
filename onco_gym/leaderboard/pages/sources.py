"""Where pages come from: anything that knows boards and their entries. Here it is a folder of boards."""

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from onco_gym.leaderboard.boards import FILE, Board, BoardError, board_folders, read_board
from onco_gym.leaderboard.entries import Entry, read_entries
from onco_gym.leaderboard.explorations import Exploration, read_explorations
from onco_gym.leaderboard.standings import Standings, make_standings

if TYPE_CHECKING:
    from onco_gym.leaderboard.store import Step


class BoardSource(Protocol):
    """What pages are made from. Boards are asked for by name, entries by id."""

    def boards(self) -> Sequence[Board]:
        """The boards, in the order of the pages."""

    def standings(self, board: str) -> Standings:
        """The standings of a board."""

    def entries(self, board: str, account: str) -> Sequence[Entry]:
        """All submissions of an account to a board in its season, newest first. Their judgements are not needed."""

    def entry(self, entry: str) -> Entry | None:
        """A submission with its judgements; None if there is no such submission."""

    def explorations(self, entry: str) -> Sequence[Exploration]:
        """The journeys of an entry."""

    def journal(self, entry: str) -> "Sequence[Step]":
        """Every step of a submission, in order."""


class FolderSource:
    """The boards of a folder, with the entries that are kept in it.

    Args:
        folder: a folder of boards, or of one board; by default that of the shipped boards.

    Raises:
        BoardError: if there is no board in it.
        EntryError: if an entry is damaged.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._standings: dict[str, Standings] = {}
        self._entries: dict[str, tuple[Path, Entry]] = {}
        for path in _found(folder):
            board = read_board(path)
            entries = read_entries(path, board.name)
            self._standings[board.name] = make_standings(board, entries)
            self._entries.update({one.id: (path, one) for one in entries})

    def boards(self) -> list[Board]:
        """The boards, by name."""
        return [one.board for one in self._standings.values()]

    def standings(self, board: str) -> Standings:
        """The standings of a board."""
        return self._standings[board]

    def entries(self, board: str, account: str) -> list[Entry]:
        """All submissions of an account to a board in its season, newest first."""
        wanted = board, self._standings[board].board.season.name, account
        found = [one for _, one in self._entries.values() if (one.board, one.season, one.account) == wanted]
        return sorted(found, key=lambda one: (one.submitted, one.id), reverse=True)

    def entry(self, entry: str) -> Entry | None:
        """A submission with its judgements; None if there is no such submission."""
        return self._entries[entry][1] if entry in self._entries else None

    def explorations(self, entry: str) -> tuple[Exploration, ...]:
        """The journeys of an entry.

        Raises:
            ExplorationError: if their file is damaged.
        """
        folder, found = self._entries[entry]
        return _journeys(folder, found.id)

    def journal(self, entry: str) -> "tuple[Step, ...]":
        """Nothing: a folder keeps what became of an entry, not how."""
        return ()


_journeys = functools.lru_cache(maxsize=2)(read_explorations)
"""Many pages in a row are made from the same journeys."""


def _found(folder: str | os.PathLike[str] | None) -> list[Path]:
    """The folders of boards in a folder."""
    if folder is None:
        return list(board_folders().values())
    found = sorted(Path(folder).glob(f"*/{FILE}")) or sorted(Path(folder).glob(FILE))
    if not found:
        raise BoardError(f"{folder} is not a folder of boards: expected NAME/{FILE} in it")
    return [path.parent for path in found]
