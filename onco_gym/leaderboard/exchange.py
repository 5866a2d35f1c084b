"""Entries between a store and a board's folder."""

import datetime
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.results import to_plain
from onco_gym.leaderboard.boards import Board, BoardError
from onco_gym.leaderboard.entries import ENTRIES, JOURNEYS, Entry, only_counted, read_entry, read_policies, write_entry
from onco_gym.leaderboard.explorations import read_explorations, write_explorations
from onco_gym.leaderboard.store import Store, keep_policies, keep_results
from onco_gym.leaderboard.tables import RESULTS, STEPS, SUBMISSIONS


def import_folder(store: Store, folder: str | os.PathLike[str], board: Board) -> None:
    """Bring the submissions in a board's folder into a store, and take out those that are no longer in the folder.

    Submissions that were made to the store are left alone. Files that have not changed are not read again.

    Raises:
        EntryError: if a file is damaged, or is an entry of another board.
    """
    files = {path.stem: path for path in sorted((Path(folder) / ENTRIES).glob("*.json"))}
    digests = {name: _digest(path, Path(folder) / JOURNEYS / path.name) for name, path in files.items()}
    with store.reading() as connection:
        if not any(_differences(connection, board, digests)):
            return
    with store.writing() as connection:
        gone, new = _differences(connection, board, digests)
        for name in gone:
            for place in (RESULTS.c.submission, STEPS.c.submission, SUBMISSIONS.c.id):
                connection.execute(delete(place.table).where(place == name))
        for name in new:
            entry = read_entry(files[name], board.name)
            keep_policies(connection, read_policies(folder, entry).values())
            connection.execute(insert(SUBMISSIONS).values(_row(entry, digests[name])))
            keep_results(connection, entry.id, entry.judgements, read_explorations(folder, entry.id))
            connection.execute(insert(STEPS).values(submission=entry.id, at=entry.submitted, text="received"))


def export_folder(store: Store, folder: str | os.PathLike[str], board: Board, progress: Progress = silent) -> int:
    """Write the submissions to a board's season into its folder.

    Published entries are written with policies and journeys. Of the others, files say only that they were made. One that is
    not judged yet is left out.

    Returns:
        How many published entries there are.

    Raises:
        BoardError: if the season has not ended. Ranks and replays need the figures of single patients, so they cannot be left
            out of the files; and until then they are secret.
    """
    if not board.season.ended:
        why = "files of entries hold figures of single patients, which are secret until then"
        raise BoardError(f"season {board.season.name!r} of {board.name} has not ended: {why}")
    entries = [one for one in store.entries(board.name, board.season.name) if one.ended]
    for number, light in enumerate(entries):
        progress("writing entries", number, len(entries))
        entry = store.entry(light.id) if light.published else None
        if entry is None:
            write_entry(folder, only_counted(light), {})
        else:
            kept = entry if entry.kind == "reference" else replace(entry, agent="")  # files name no agent but the package's
            write_entry(folder, kept, store.policies(entry.id))
            write_explorations(folder, entry.id, store.explorations(entry.id))
    return sum(one.published for one in entries)


def _differences(connection: Connection, board: Board, digests: dict[str, str]) -> tuple[list[str], list[str]]:
    """(entries to take out, entries to bring in); one whose file has changed is both."""
    table = SUBMISSIONS.c
    rows = connection.execute(select(table.id, table.imported).where(table.board == board.name)).all()
    made_here = {row.id for row in rows if row.imported is None}
    before = {row.id: row.imported for row in rows if row.imported is not None}
    gone = [name for name, digest in before.items() if digests.get(name) != digest]
    return gone, [name for name, digest in digests.items() if name not in made_here and before.get(name) != digest]


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() if path.is_file() else b"" for path in paths)).hexdigest()


def _row(entry: Entry, digest: str) -> dict[str, Any]:
    plain = to_plain(entry)
    return {
        **{name: plain[name] for name in ("id", "board", "season", "account", "kind", "manifest", "policies", "agent")},
        **{"submitted": entry.submitted, "state": entry.state, "reason": entry.reason, "published": entry.published},
        **{"content": None, "attempt": 0, "ended": datetime.datetime.now(datetime.UTC), "imported": digest},
    }
