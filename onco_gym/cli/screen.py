"""Output on the screen: tables, notes and progress. Rich is imported when it is first needed."""

import contextlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onco_gym.foundation.files import write_json
from onco_gym.foundation.progress import Progress, silent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FIRST_LINE = 2.0
"""Seconds until progress is first reported if there is no terminal."""
BETWEEN_LINES = 10.0
"""Seconds between two reports of the same stage if there is no terminal."""


def console(stderr: bool = False) -> "Console":
    """Standard output, or standard error. It is 140 characters wide if its width is unknown."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    fixed = "COLUMNS" in os.environ or (stream is not None and stream.isatty())
    return Console(stderr=stderr, highlight=False, width=None if fixed else 140)


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str] = ()) -> "Table":
    """A table of plain text. Columns named in ``numbers`` are right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.show_header = any(columns)
    for column in columns:
        justify: Literal["right", "left"] = "right" if column in numbers else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=column in ("id", "trial"))
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    return table


def wrote(path: str | os.PathLike[str]) -> None:
    """Report a file that was written."""
    print(f"wrote {Path(path)}")


def write_figures(path: str | os.PathLike[str] | None, content: Any) -> None:
    """Write plain values as JSON, if a path was given, and report it."""
    if path:
        write_json(path, content)
        wrote(path)


def note(text: str) -> None:
    """Report something that the user should know, in one line on standard error."""
    print(f"onco-gym: {' '.join(text.split())}", file=sys.stderr)


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Report warnings to the user as notes, each once."""
    with warnings.catch_warnings():
        usual, seen = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category is not UserWarning:
                usual(message, category, *where, **more)
            elif str(message) not in seen:
                seen.add(str(message))
                note(str(message))

        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


# ------------------------------------------------------------------------------------------------ progress


@contextlib.contextmanager
def progress_bar(stage: str = "compiling", quiet: bool = False) -> Iterator[Progress]:
    """Report the progress of long work on standard error: as a bar on a terminal, as a few plain lines elsewhere.

    Args:
        stage: name of the stage until the first report.
        quiet: whether to report nothing.

    Yields:
        The function to report progress to.
    """
    if quiet or sys.stderr is None:
        yield silent
        return
    terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    with _bar(stage) if terminal else _lines(stage) as progress:
        yield progress


@contextlib.contextmanager
def _bar(stage: str) -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console(stderr=True), transient=True) as bars:
        task, name = bars.add_task(stage, total=None), _name(stage)

        def progress(stage: str, done: int, total: int) -> None:
            nonlocal task, name
            if _name(stage) != name:
                bars.remove_task(task)
                task, name = bars.add_task(stage, total=None), _name(stage)
            bars.update(task, description=stage, completed=done, total=total or None)

        yield progress


@contextlib.contextmanager
def _lines(stage: str) -> Iterator[Progress]:
    """Progress as lines: one for every stage, and one from time to time while a stage lasts."""
    now, begun = (stage, 0, 0), time.monotonic()
    lock, ended = threading.Lock(), threading.Event()  # reports come from the work and from a clock thread

    def show() -> None:
        stage, done, total = now
        name, comma, details = stage.partition(",")
        count = f" {done:,} of {total:,}" if total else f" {done:,}" if done else ""
        note(f"{name}{count}{comma}{details}, {time.monotonic() - begun:.0f} s")

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal now
        with lock:
            changed = _name(stage) != _name(now[0])
            now = stage, done, total
            if changed and time.monotonic() - begun >= FIRST_LINE:
                show()

    def repeat() -> None:
        pause = FIRST_LINE
        while not ended.wait(pause):
            pause = BETWEEN_LINES
            with lock:
                show()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join()


def _name(stage: str) -> str:
    """A stage without its details, which follow a comma and may change with every report."""
    return stage.partition(",")[0]
