"""Help and errors of the parser."""

import re
import shlex
import subprocess
import sys

import pytest

from onco_gym.agents.names import NAMED
from onco_gym.cli import MODULES, Commands, make_parser
from onco_gym.cli.parser import Parser

ABOUT_AGENTS = ("rollout", "evaluate", "record", "dataset")
ABOUT_ENVIRONMENTS = ("show", "play", "train", "cohort", "trial", "calibrate", "design", "yardstick")
ORDER = ("--env", "-n", "--seed", "-o", "--json", "--html", "--plot", "--workers", "--address", "-q")
"""Of options that several commands share."""


def command_names():
    commands = Commands(Parser("x"))
    for module in MODULES:
        module.register(commands)
    return commands.names


NAMES = command_names()


def shown(capsys, *command):
    with pytest.raises(SystemExit) as stop:
        make_parser().parse_args([*command, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", [(), *((name,) for name in NAMES)])
def test_help_gives_an_example_and_the_warning(capsys, command):
    out = shown(capsys, *command)
    assert f"example: onco-gym {' '.join(command)}" in out
    assert "Research software, not for treating patients." in out


@pytest.mark.parametrize("name", NAMES)
def test_the_example_is_a_command_that_can_be_parsed(capsys, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = re.search(r"^example: onco-gym (.*)$", shown(capsys, name), re.MULTILINE)[1]
    assert callable(make_parser().parse_args(shlex.split(line)).run)


@pytest.mark.parametrize("name", NAMES)
def test_one_order_of_what_a_command_is_about(capsys, name):
    usage = shown(capsys, name).splitlines()[0]
    if name in ABOUT_AGENTS:
        assert usage.startswith(f"usage: onco-gym {name} AGENT --env ID")
    elif name in ABOUT_ENVIRONMENTS:
        assert usage.startswith(f"usage: onco-gym {name} ID")
    else:
        assert name in ("list", "export", "verify", "compare", "leaderboard", "submit", "serve", "worker", "account", "site")


@pytest.mark.parametrize("name", NAMES)
def test_one_order_and_one_name_of_shared_options(capsys, name):
    found = re.findall(r"^  (--?[a-z]+)\b", shown(capsys, name), re.MULTILINE)
    shared = [option for option in found if option in ORDER]
    assert shared == sorted(shared, key=ORDER.index)
    assert not {"--engine", "--output", "--picture", "--card"} & set(found)
    out = shown(capsys, name)
    if "-n N" in out:
        wanted = "--patients" if name in ("cohort", "trial", "calibrate", "design") else "--episodes"
        assert f"-n N, {wanted} N" in out


@pytest.mark.parametrize("name", [*ABOUT_AGENTS, "play", "train", "verify"])
def test_help_lists_what_an_agent_can_be(capsys, name):
    out = shown(capsys, name)
    for one in NAMED:
        assert re.search(rf"^  {one.name} +{re.escape(one.about)}", out, re.MULTILINE)
    assert "MODULE:OBJECT" in out


def test_help_imports_nothing_heavy():
    code = """
import sys, onco_gym.cli as cli
for name in ["", *sys.argv[1:]]:
    try:
        cli.make_parser().parse_args([*name.split(), "--help"])
    except SystemExit:
        pass
print({"jax", "pydantic", "pyarrow", "rich", "scipy", "matplotlib"} & {*sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", code, *NAMES], capture_output=True, text=True)
    assert done.stdout.endswith("\nset()\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "COMMAND"),
        (("dance",), "'dance'"),
        (("evalute",), "(did you mean 'evaluate'?)"),
        (("--vresion",), "(did you mean '--version'?)"),
        (("evaluate", "clinician", "--evn", "NSCLC"), "there is no option --evn (did you mean '--env'?)"),
        (("evaluate", "clinician", "--env", "NSCLC", "--sede=3"), "there is no option --sede (did you mean '--seed'?)"),
        (("evaluate", "clinician", "--env", "NSCLC", "--ep", "3"), "there is no option --ep"),
        (("evaluate", "clinician", "guideline", "--env", "NSCLC"), "unrecognized arguments: guideline"),
        (("evaluate", "clinician"), "--env"),
        (("show", "nsclc", "--section", "poems"), "'poems' is unknown"),
        (("show", "nsclc", "--section", "guidelines"), "(did you mean 'guideline'?)"),
        (("rollout", "guideline", "--env", "NSCLC", "-n"), "-n"),
    ],
)
def test_errors_suggest_what_was_meant(refused, arguments, named):
    refused(named, *arguments)
    refused("--help)", *arguments)


def test_what_follows_two_dashes_is_no_option(refused):
    refused("there is no environment or card '--seed'", "show", "--", "--seed")
