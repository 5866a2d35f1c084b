"""Work that threads share. Compiled code and copies of arrays run outside Python's lock, so threads gain from all cores."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


class Threads:
    """The calling thread and others beside it, as many as there are cores.

    Args:
        most: no more threads than this.
    """

    def __init__(self, most: int) -> None:
        self._others = min(most, os.cpu_count() or 1) - 1
        self._pool = ThreadPoolExecutor(max(1, self._others))  # it starts threads when they are first needed

    def share(self, work: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
        """``work`` on every item, in order. The calling thread works, too: to wake another takes a while."""
        made: list[Any] = [None] * len(items)
        left = iter(enumerate(items))  # its next() is atomic

        def take() -> None:
            for place, item in left:
                made[place] = work(item)

        others = [self._pool.submit(take) for _ in range(min(self._others, len(items) - 1))]
        try:
            take()
        finally:
            wait(others)
        for other in others:
            other.result()  # raises what its work raised
        return made


def beside(work: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
    """``work`` on every item, in order, on all cores. For work in every step, keep :class:`Threads`."""
    return Threads(len(items)).share(work, items)
