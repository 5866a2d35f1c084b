"""Runs the server, with workers beside it that are started again if they die."""

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from onco_gym.leaderboard.boards import Board
from onco_gym.leaderboard.exchange import import_folder
from onco_gym.leaderboard.following import FollowedBoards, JudgedBoards
from onco_gym.leaderboard.store import Store
from onco_gym.leaderboard.worker import Worker

CONNECTIONS = 200
"""Requests that are answered at the same time; more are told to come back."""
AGAIN = 2.0
"""Seconds between two looks at whether the workers live."""
PATIENCE = 30.0
"""Seconds that workers have to give back what they work on."""
LOG = logging.getLogger("onco_gym.leaderboard")
FORMAT = "%(asctime)s %(levelname)s %(message)s"
"""Of lines in the log."""


def serve(
    url: str,
    folder: str | os.PathLike[str] | None = None,
    secrets: str | os.PathLike[str] | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
) -> None:
    """Serve boards until the process is interrupted or terminated.

    Args:
        url: of the store.
        folder: of the boards; by default the shipped ones. Their published entries are brought into the store. A board whose
            file changes is read again.
        secrets: the folder with the secrets of open seasons.
        host, port: where to listen.
        workers: how many processes judge submissions beside the server. Others can run elsewhere on the same store.

    Raises:
        BoardError: if a board or a secret is not as it should be.
        DatabaseError: if the store cannot be opened.
    """
    import uvicorn

    from onco_gym.leaderboard.server import make_app

    store, boards = Store(url), FollowedBoards(folder)
    for path, board in zip(boards.folders, boards, strict=True):
        import_folder(store, path, board)
    judged = JudgedBoards(boards, secrets)
    list(judged)  # a secret that is not the season's is told now
    app = make_app(store, boards)
    with working(url, judged, workers):
        uvicorn.run(app, host=host, port=port, log_config=None, limit_concurrency=CONNECTIONS, server_header=False)


@contextmanager
def working(url: str, judged: Iterable[tuple[Board, bytes | None]], workers: int) -> Iterator[None]:
    """Keep so many workers alive on the store at ``url``. At the end they give back what they work on."""
    context = multiprocessing.get_context("spawn")  # threads and compiled code do not survive a fork
    ended = threading.Event()

    def start() -> Any:
        process = context.Process(target=_work, args=(url, judged), daemon=True)
        process.start()
        return process

    processes = [start() for _ in range(workers)]

    def watch() -> None:
        while not ended.wait(AGAIN):
            for place, process in enumerate(processes):
                if not process.is_alive():
                    LOG.error("a worker ended with code %s and is started again", process.exitcode)
                    processes[place] = start()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(PATIENCE)
            process.kill()


def _work(url: str, judged: Iterable[tuple[Board, bytes | None]]) -> None:
    """A worker beside the server. It ends with the server, whatever the server died of."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server is interrupted, too, and ends its workers
    logging.basicConfig(format=FORMAT)
    server = multiprocessing.parent_process()
    Worker(Store(url), judged).run(stop=lambda: server is None or not server.is_alive())
