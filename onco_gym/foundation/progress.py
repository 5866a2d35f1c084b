"""Progress of long work: one signature, so that any function can report to any bar."""

from typing import Protocol


class Progress(Protocol):
    """Called whenever a part of the work is done."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take note of progress.

        Args:
            stage: what is being done, in a few words. Details that change within a stage follow a comma.
            done: parts of this stage that are done.
            total: parts that it has, or 0 where nobody knows.
        """


def silent(stage: str, done: int, total: int) -> None:
    """A progress that tells nobody."""
