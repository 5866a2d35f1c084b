"""The pages as a folder of files, which any web server can show, or a browser without one."""

import json
import os
import shutil
from pathlib import Path

from onco_gym.foundation.files import replacing
from onco_gym.foundation.progress import Progress, silent
from onco_gym.leaderboard.pages.site import FILES, HERE, Query, Site
from onco_gym.leaderboard.pages.sources import BoardSource


def build_site(path: str | os.PathLike[str], source: BoardSource, progress: Progress = silent) -> int:
    """Write every page into a folder, each file whole or not at all. Files that are there already are replaced.

    Args:
        path: the folder; it is made if it does not exist.
        source: of boards and entries.
        progress: told about every entry.

    Returns:
        How many pages were written.
    """
    site, folder, pages = Site(source, static=True), Path(path), 2
    for name in FILES:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / name) as temporary:
            shutil.copyfile(HERE / name, temporary)
    _write(folder / "index.html", site.index())
    _write(folder / "about.html", site.about())
    for board in source.boards():
        inside, listed = folder / board.name, site.listed(board.name)
        for page in range(1, site.pages(board.name) + 1):
            query = Query(page=page)
            _write(inside / query.link(page=page), site.board(board.name, query))
            pages += 1
        _write(inside / "board.json", json.dumps(site.board_json(board.name), allow_nan=False))
        for place, entry in enumerate(listed):
            progress(f"pages of {board.name}", place, len(listed))
            _write(inside / "entries" / f"{entry.id}.html", site.entry(board.name, entry.id))
            _write(inside / "entries" / f"{entry.id}.json", json.dumps(site.entry_json(board.name, entry.id), allow_nan=False))
            pages += 1
            for environment, patient in site.journeys(entry):
                at = inside / "entries" / entry.id / "journeys" / environment
                plain = site.journey_json(board.name, entry.id, environment, patient)
                _write(at / f"{patient}.html", site.journey(board.name, entry.id, environment, patient))
                _write(at / f"{patient}.json", json.dumps(plain, allow_nan=False))
                pages += 1
    return pages


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
