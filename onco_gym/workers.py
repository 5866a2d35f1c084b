"""Independent tasks, spread over workers."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class WorkerError(ValueError):
    """Workers that cannot be had; the message says what was expected."""


def spread(
    function: Callable[[T], R],
    tasks: Sequence[T],
    engine: str = "local",
    address: str | None = None,
    on_done: Callable[[int, int], None] | None = None,
) -> list[R]:
    """``function`` of every task, in the order of tasks.

    Args:
        function: a function of the top level of a module.
        tasks: its arguments.
        engine: ``"local"``: in this process, one after the other.
        address: of a cluster; there is none to connect to locally.
        on_done: called with (tasks done, tasks in all).
    """
    if engine != "local" or address is not None:
        raise WorkerError(f"engine is {engine!r}, expected 'local', which has no address")
    results = []
    for number, task in enumerate(tasks, 1):
        results.append(function(task))
        if on_done is not None:
            on_done(number, len(tasks))
    return results
