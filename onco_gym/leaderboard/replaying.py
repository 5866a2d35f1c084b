"""Runs the entries of a season that has ended once more, and compares every figure with the published one."""

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from onco_gym.agents.protocol import AgentError
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.workers import spread
from onco_gym.leaderboard.boards import Board, BoardError, board_folder, read_board
from onco_gym.leaderboard.entries import Entry, read_entries, read_policies
from onco_gym.leaderboard.judgements import Judgement
from onco_gym.leaderboard.judging import Judge
from onco_gym.leaderboard.seasons import find_secret


@dataclass(frozen=True)
class Replayed:
    """An entry that was run again.

    Attributes:
        entry: as it was published.
        differences: what is not the same to the digit, in words; nothing if all is the same.
    """

    entry: Entry
    differences: tuple[str, ...]


class Task(NamedTuple):
    """An entry to judge: the board, the season's secret, and policies by environment or the name of an agent."""

    board: Board
    secret: bytes | None
    policies: Mapping[str, bytes] | str


def replay_season(
    board: str | os.PathLike[str],
    workers: str = "local",
    address: str | None = None,
    progress: Progress = silent,
    season: str | None = None,
) -> list[Replayed]:
    """Run every entry of a season in a board's folder again, and compare.

    Entries that their authors ran themselves cannot be run again and are left out.

    Args:
        board: the name of a shipped board, or its folder.
        workers, address: where; see :func:`onco_gym.foundation.workers.spread`. The results are the same everywhere.
        progress: told after every entry.
        season: its name; by default the present one.

    Raises:
        BoardError: if the season has not ended, or there is no such board or season.
        EntryError: if an entry or a policy is damaged.
    """
    folder, found = board_folder(board), read_board(board)
    found = found if season is None else found.during(season)
    secret = find_secret(found, None)
    if secret is None:
        raise BoardError(f"season {found.season.name!r} of {found.name} has not ended: its secret is not public")
    entries = [one for one in read_entries(folder, found.name) if one.season == found.season.name and one.published]
    entries = [one for one in entries if one.kind != "self-reported"]
    policies = [one.agent or read_policies(folder, one) for one in entries]
    return replay_entries(found, secret, entries, policies, workers, address, progress)


def replay_entries(
    board: Board,
    secret: bytes,
    entries: Sequence[Entry],
    policies: Sequence[Mapping[str, bytes] | str],
    workers: str = "local",
    address: str | None = None,
    progress: Progress = silent,
) -> list[Replayed]:
    """Run entries again, and compare; see :func:`replay_season`. ``policies`` are those of each entry."""
    tasks = [Task(board, secret, some) for some in policies]
    found = spread(judge_task, tasks, workers, address, progress, "entries run again")
    return [Replayed(entry, tuple(_differences(entry, again))) for entry, again in zip(entries, found, strict=True)]


def judge_task(task: Task) -> tuple[Judgement, ...] | str:
    """The judgements of an entry, or why it was refused."""
    try:
        return _judge(task.board.model_dump_json(), task.secret).judge(task.policies)
    except AgentError as error:
        return str(error)


@functools.lru_cache(maxsize=1)
def _judge(board: str, secret: bytes | None) -> Judge:
    """The judge of a board, kept in the process for its next entry."""
    return Judge(Board.model_validate_json(board), secret, revealed=True)


def _differences(entry: Entry, again: Sequence[Judgement] | str) -> Iterator[str]:
    if isinstance(again, str):
        yield f"it is refused now: {again}"
        return
    if [one.environment for one in again] != [one.environment for one in entry.judgements]:
        yield "it was judged in other environments"
        return
    for new, old in zip(again, entry.judgements, strict=True):
        yield from _unlike(old.to_json(), new.to_json(), new.environment)


def _unlike(old: Any, new: Any, where: str) -> Iterator[str]:
    """Where two plain values differ. The version of the package may differ."""
    if isinstance(old, dict) and isinstance(new, dict) and set(old) == set(new):
        for name in old:
            if name != "version":
                yield from _unlike(old[name], new[name], f"{where}, {name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, both in enumerate(zip(old, new, strict=True)):
            yield from _unlike(*both, f"{where} {number}")
    elif old != new:
        yield f"{where}: {str(old)[:40]} was published, {str(new)[:40]} now"
