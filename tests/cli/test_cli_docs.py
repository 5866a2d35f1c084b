"""Every command that the documentation shows can be parsed."""

import re
import shlex

import pytest
from conftest import ROOT

from onco_gym.cli import make_parser

PAGES = [
    path
    for pattern in ("*.md", "docs/**/*.md", "envs/*.md", "baselines/*.md", "benchmarks/*.md", "Makefile")
    for path in sorted(ROOT.glob(pattern))
    if path.name != "CHANGELOG.md"
]


def shown(text):
    """The commands of a page, in blocks of code and within lines; without comments."""
    joined = text.replace("\\\n", " ")
    yield from re.findall(r"^\s*(?:\$\(BIN\)/)?onco-gym ([^#\n]*)", joined, re.MULTILINE)
    yield from re.findall(r"`onco-gym ([^`]*)`", joined)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_of_the_documentation_can_be_parsed(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for line in shown(path.read_text(encoding="utf-8")):
        arguments = [word for word in shlex.split(line) if word != "..."]
        if len(arguments) > 1:  # in prose, a command is also named without its arguments
            assert callable(make_parser().parse_args(arguments).run), line


def test_there_are_commands_to_parse():
    assert sum(len(list(shown(path.read_text(encoding="utf-8")))) for path in PAGES) > 30
