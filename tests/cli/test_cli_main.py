"""The command line as a whole: exit codes, errors, pipes."""

import io
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import onco_gym
from onco_gym import cli
from onco_gym.cli import main
from onco_gym.cli.parser import Parser

START = "import sys; from onco_gym.cli import main; sys.exit(main(sys.argv[1:]))"


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"onco-gym {onco_gym.__version__}\n"


def test_a_closed_pipe_is_quiet():
    command = [sys.executable, "-c", START, "show", "nsclc", "--citation"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1


def test_interrupted_is_quiet(command, monkeypatch):
    class Interrupted(io.StringIO):
        def readline(self, size=-1):
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    ran = command("play", "NSCLC", "--seed", 7)
    assert (ran.code, ran.err) == (130, "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (onco_gym.CardError("the card\nis broken"), "onco-gym: the card is broken\n"),
        (PermissionError(13, "Permission denied", "/x"), "onco-gym: /x: Permission denied\n"),
        (OSError("no space"), "onco-gym: no space\n"),
    ],
)
def test_errors_of_the_user_are_one_line(command, monkeypatch, error, said):
    monkeypatch.setattr(cli.environments, "list_command", Mock(side_effect=error))
    assert command("list") == (2, "", said)


def test_our_own_faults_are_not_hidden(command, monkeypatch):
    monkeypatch.setattr(cli.environments, "list_command", Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        command("list")


def test_every_module_registers_its_commands():
    """Every module beside the shared ones has commands, and every command is listed in the docstring of its module."""
    shared = {"__init__", "arguments", "parser", "screen"}
    files = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    assert {module.__name__.rpartition(".")[2] for module in cli.MODULES} == files - shared
    for module in cli.MODULES:
        parser = Parser("x")
        module.register(made := cli.Commands(parser))
        for name in made.names:
            assert name in module.__doc__
