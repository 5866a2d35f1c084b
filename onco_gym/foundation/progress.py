"""Progress of long work. With one signature, any function can report to any progress bar."""

from typing import Protocol


class Progress(Protocol):
    """A callback for whenever a part of the work is done."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report progress.

        Args:
            stage: what is being done, in a few words. Details that change within a stage follow a comma.
            done: parts of this stage that are done.
            total: parts of this stage, or 0 if unknown.
        """


def silent(stage: str, done: int, total: int) -> None:
    """Ignore progress."""
