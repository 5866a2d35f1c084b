"""What is shown: progress on a terminal and elsewhere, notes, tables."""

import io
import re
import sys
import threading
import time
import warnings

import pytest

from onco_gym.cli import screen
from onco_gym.cli.screen import make_table, progress_bar, warnings_as_notes
from onco_gym.foundation.progress import silent


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(screen, "FIRST_LINE", 0.02)
    monkeypatch.setattr(screen, "BETWEEN_LINES", 0.03)


def test_short_work_is_silent(capsys):
    with progress_bar() as progress:
        progress("cycles", 1, 2)
        progress("patients", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_long_work_is_reported_while_nothing_happens(capsys, hasty):
    with progress_bar("thinking"):
        time.sleep(0.3)
    out, err = capsys.readouterr()
    assert out == ""
    assert 3 <= len(err.splitlines()) <= 11
    assert set(err.splitlines()) == {"onco-gym: thinking, 0 s"}


def test_every_stage_is_reported_once(capsys, monkeypatch):
    monkeypatch.setattr(screen, "FIRST_LINE", 0.0)
    with progress_bar() as progress:
        for done in range(1, 6):
            progress("cycles", done, 5)
        for done in range(1, 4):
            progress(f"training, return {done / 8}", 1000 * done, 3000)
        progress("drawing", 0, 0)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "compiling" not in line] == [
        "onco-gym: cycles 1 of 5, 0 s",
        "onco-gym: training 1,000 of 3,000, return 0.125, 0 s",
        "onco-gym: drawing, 0 s",
    ]


def test_the_last_report_is_repeated(capsys, hasty):
    with progress_bar() as progress:
        progress("cycles", 40, 87)
        progress("cycles", 41, 87)
        time.sleep(0.2)
    assert "onco-gym: cycles 41 of 87, 0 s\n" in capsys.readouterr().err


def test_quiet_work_is_silent(capsys, hasty):
    before = threading.active_count()
    with progress_bar(quiet=True) as progress:
        assert progress is silent
        assert threading.active_count() == before
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "")


def test_the_clock_stops_with_the_work(capsys, hasty):
    before = threading.active_count()
    with pytest.raises(KeyError), progress_bar():
        raise KeyError
    assert threading.active_count() == before
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar() as progress:
        progress("cycles [1]", 40, 87)
        time.sleep(0.25)
        progress("drawing", 0, 0)
        time.sleep(0.25)
    text = terminal.getvalue()
    assert re.search(r"cycles \[1\] .*40/87", text)
    assert "drawing" in text
    assert "onco-gym:" not in text


def test_a_dumb_terminal_gets_lines(monkeypatch, hasty):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    with progress_bar():
        time.sleep(0.1)
    assert terminal.getvalue().startswith("onco-gym: compiling, 0 s\n")


def test_without_standard_error_there_is_nothing_to_report_to(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with progress_bar() as progress:
        progress("cycles", 1, 2)


def test_warnings_become_notes(capsys):
    with warnings_as_notes():
        for _ in range(3):
            warnings.warn("this model\nis unpickled", stacklevel=1)
    assert capsys.readouterr().err == "onco-gym: this model is unpickled\n"
    with pytest.warns(RuntimeWarning, match="other"), warnings_as_notes():
        warnings.warn("other", RuntimeWarning, stacklevel=1)


def test_tables_hold_plain_text(capsys):
    screen.console().print(make_table("Title", ("name", "number"), [("[red]x", 3)], ("number",)))
    out = capsys.readouterr().out
    assert "[red]x" in out
    assert "Title" in out
