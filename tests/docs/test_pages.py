"""Every block of code and every command on the pages runs, with small sizes, so that the pages cannot rot.

Running all of them takes minutes, so that is a slow test. The code of the README always runs, and every command is parsed.

A page is run from top to bottom in a folder of its own. Each ``python`` block runs in a fresh namespace, as if it were pasted
into a new session. In a ``bash`` block each ``onco-gym`` command runs; what else is in it must exist. Commands inside the text
must parse. Blocks of another language are not run.
"""

import re
import shlex

import pytest
from conftest import ROOT

from onco_gym.cli import main, make_parser

PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")]
    if path.name != "CHANGELOG.md" and re.search(r"^ *```(python|bash)|`onco-gym ", path.read_text(), re.M)
)
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.M | re.S)
SMALL = [  # what takes long in a block of Python, and what is run instead
    (r"\b(n|episodes|patients)=[\d_]+", r"\1=24"),
    (r"\b(n_envs|num_envs)=[\d_]+", r"\1=256"),  # compiled by the conformance checks, too
    (r"learn\([\d_]+\)", "learn(384)"),
    (r"n_steps=\d+, batch_size=\d+", "n_steps=8, batch_size=512"),
    (r"\bsteps=[\d_]+", "steps=2048, envs=128, length=8, batches=2"),
    (r"\bsample\([\d_]+", "sample(40"),
    (r"(rollout|record_episodes)\((engine, .*), [\d_]+(?=[,)])", r"\1(\2, 24"),
]
SIZES = {  # further arguments of commands, which come last and so count
    **dict.fromkeys(("rollout", "evaluate", "compare", "record", "dataset"), "-n 24"),
    "cohort": "-n 40",
    "trial": "-n 60",
    "design": "-n 100 --repeats 50",
    "calibrate": "-n 50",
    "train": "--steps 2048",
}
PARSED_ONLY = {
    "--workers ray": "tests/foundation runs Ray",
    "submit": "takes minutes on a whole board; tests/leaderboard submits to a small one",
    "yardstick": "takes minutes and writes beside the card; tests/evaluation measures a small one",
    "my.toml": "there is no such card",
    "envs/mine.toml": "there is no such card",
    "planner": "is slow; tests/agents asks it",
    "--sensitivity": "takes minutes; tests/trials runs it",
}
"""Commands with these words are parsed and not run, for the reason given."""


def blocks(page):
    for indent, language, text in BLOCK.findall(page.read_text()):
        yield language, re.sub(f"^{indent}", "", text, flags=re.M)


def commands(text):
    """The commands of a block, comments left out, lines that go on joined."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    monkeypatch.setattr("builtins.input", lambda prompt="": "q")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_runs(page, empty, capsys):
    for language, text in blocks(page):
        if language == "python":
            run_code(page, text)
        if language == "bash":
            for words in commands(text):
                run(words, capsys)


def test_the_code_of_the_readme_runs(empty):
    for language, text in blocks(ROOT / "README.md"):
        if language == "python":
            run_code(ROOT / "README.md", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_parse_and_name_what_is_there(page, empty):
    for language, text in blocks(page):
        if language == "python":
            compile(text, page.name, "exec")
        for words in commands(text) if language == "bash" else ():
            make_parser().parse_args(words[1:]) if words[0] == "onco-gym" else check_exists(words)


def run_code(page, text):
    for pattern, small in SMALL:
        text = re.sub(pattern, small, text)
    exec(compile(text, page.name, "exec"), {"__name__": "page"})


def run(words, capsys):
    if words[0] != "onco-gym":
        check_exists(words)
        return
    line = " ".join(words)
    make_parser().parse_args(words[1:])
    if any(marked in line for marked in PARSED_ONLY):
        return
    more = shlex.split(SIZES.get(words[1], "")) if "--citation" not in words else []
    code = main([*words[1:], *more])
    assert code == 0, f"{line}: {capsys.readouterr().err}"


def check_exists(words):
    """A command of another program: the script, the target or the extra that it names must be there."""
    program, *arguments = words
    if program == "make":
        assert re.search(rf"^{re.escape(arguments[0])}[ :]|^\.venv-\w+/\.installed:", (ROOT / "Makefile").read_text(), re.M)
    elif program == "pip":
        for extra in re.findall(r"\[([\w,]+)\]", " ".join(arguments)):
            for name in extra.split(","):
                assert re.search(rf"^{name} = \[", (ROOT / "pyproject.toml").read_text(), re.M) or "rllib" in name
    else:
        assert program.endswith("python"), f"nothing checks {program}"
        script = (ROOT / arguments[0]).read_text()
        for option in (word for word in arguments if word.startswith("--")):
            assert option in script or option[2:].replace("-", "_") in script, f"{arguments[0]} has no {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_text_parse(page):
    text = BLOCK.sub("", page.read_text())
    for command in re.findall(r"`(onco-gym [^`]+)`", text):
        words = shlex.split(re.sub(r"\bN\b", "7", command))
        if len(words) > 2:  # else only the name of a command
            make_parser().parse_args(words[1:])
        else:
            assert words[1] in make_parser().format_help()


def test_commands_of_the_makefile_parse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for command in re.findall(r"\$\(BIN\)/onco-gym ([^\n\"]+)", (ROOT / "Makefile").read_text()):
        make_parser().parse_args(shlex.split(command))


def test_pages_link_to_what_is_there():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
