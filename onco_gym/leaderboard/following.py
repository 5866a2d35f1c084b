"""Boards whose files change while a server or a worker runs: a season ends, or the next one begins."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from onco_gym.leaderboard.boards import FILE, Board, BoardError, board_folders, read_board
from onco_gym.leaderboard.seasons import find_secret

LOG = logging.getLogger("onco_gym.leaderboard")


class FollowedBoards:
    """The boards of a folder. Whoever iterates gets each as its file is now; while a file is damaged, as it was before.

    Args:
        folder: of the boards, by default the shipped ones. Boards that are added to it later are not seen.

    Attributes:
        folders: the folder of each board.

    Raises:
        BoardError: if there is no board, or one is not as it should be.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.folders = tuple(board_folders(folder).values())
        if not self.folders:
            raise BoardError(f"{folder} is not a folder of boards: expected NAME/{FILE} in it")
        self._known = {path: (_version(path), read_board(path)) for path in self.folders}

    def __iter__(self) -> Iterator[Board]:
        for path in self.folders:
            version, (known, board) = _version(path), self._known[path]
            if version != known:
                try:
                    board = read_board(path)
                    LOG.warning("%s has changed and was read again", path / FILE)
                except BoardError as error:
                    LOG.error("the board stays as it was: %s", error)
                self._known[path] = version, board
            yield board


class JudgedBoards:
    """The boards whose secret is known here, each with it. Submissions to the others wait for a worker that knows it.

    Args:
        boards: all boards.
        secrets: the folder with the secrets of open seasons.
    """

    def __init__(self, boards: FollowedBoards, secrets: str | os.PathLike[str] | None) -> None:
        self._boards, self._secrets = boards, secrets

    def __iter__(self) -> Iterator[tuple[Board, bytes]]:
        """May raise BoardError, if what is found is not the secret of a season."""
        for board in self._boards:
            secret = find_secret(board, self._secrets)
            if secret is not None:
                yield board, secret


def _version(folder: Path) -> tuple[int, int, int] | None:
    """What changes whenever the file of a board does; None if there is no file."""
    try:
        found = (folder / FILE).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
