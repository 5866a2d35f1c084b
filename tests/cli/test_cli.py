"""The command line, as a user calls it."""

import io
import json
import re
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from conftest import CARDS, IDS

import onco_gym
from onco_gym.agents import load_agent, rollout
from onco_gym.cards import card_files, load_card
from onco_gym.cli import SECTIONS, main
from onco_gym.interfaces.engine import make_engine
from onco_gym.patients import Cohort

COMMANDS = ("list", "show", "play", "rollout", "evaluate", "cohort", "trial", "calibrate", "design", "train", "export", "dataset")


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def type_in(monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_gives_an_example_and_the_warning(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert f"example: onco-gym {' '.join(command)}" in out
    assert "Research software, not for treating patients." in out


def test_help_imports_nothing_heavy():
    code = "import sys, onco_gym.cli as cli; cli._parser().format_help(); print({'jax', 'pydantic', 'pyarrow'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"onco-gym {onco_gym.__version__}\n"


def test_list_names_every_environment(capsys):
    code, out, _ = run(capsys, "list")
    assert code == 0
    for name in (*IDS, "onco_gym/Card-v0"):
        assert name in out
    card = load_card("nsclc")
    row = next(line for line in out.splitlines() if "/NSCLC-v0" in line)
    assert row.split()[-3] == str(card.horizon_cycles)
    assert row.split()[-1] == str(len(card.arms))


@pytest.mark.parametrize("name", CARDS)
def test_show_prints_every_table(capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "2000")
    card = load_card(name)
    code, out, _ = run(capsys, "show", name)
    assert code == 0
    assert card.title in out
    for row in (*card.variables, *card.regimens, *card.clones):
        assert re.search(rf"^ *{row.name} ", out, re.MULTILINE)
    for rule in card.guideline:
        assert (rule.when or "always") in out
    fit = sum(arm.use == "fit" for arm in card.arms)
    assert re.search(rf"^ *fit +{fit} ", out, re.MULTILINE)


def test_show_compounds_grade_3_over_organs(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    _, out, _ = run(capsys, "show", "nsclc", "--section", "regimens")
    shares = next(r for r in load_card("nsclc").regimens if r.name == "osimertinib").toxicity.values()
    row = next(line for line in out.splitlines() if line.split()[:1] == ["osimertinib"])
    assert f" {1 - np.prod([1 - share for share in shares]):.0%} " in row


def test_show_one_section_or_the_citation(capsys):
    whole = run(capsys, "show", "nsclc")[1]
    parts = [run(capsys, "show", "onco_gym/NSCLC-v0", "--section", name)[1] for name in SECTIONS]
    assert all(part.strip() in whole for part in parts)
    assert run(capsys, "show", card_files()["nsclc"], "--citation")[1].strip() == onco_gym.citation("nsclc").strip()


def test_play_by_hand(capsys, monkeypatch):
    type_in(monkeypatch, "2\n99\nhello\n\nq\n")
    code, out, _ = run(capsys, "play", "NSCLC", "--seed", 7)
    assert code == 0
    assert [int(week) for week in re.findall(r"cancer, week (\d+)", out)] == [0, 3, 6]
    assert "'99' is none of the numbers above" in out
    assert "'hello' is none of the numbers above" in out
    assert "Osimertinib 80 mg daily" in out


def test_play_ends_with_the_input(capsys, monkeypatch):
    type_in(monkeypatch, "\n")
    code, out, _ = run(capsys, "play", "NSCLC", "--seed", 7)
    assert code == 0
    assert out.count("q to quit") == 2


def test_enter_follows_the_guideline_to_the_end(capsys, monkeypatch, tmp_path):
    type_in(monkeypatch, "\n" * 200)
    _, by_hand, _ = run(capsys, "play", "nsclc", "--seed", 3)
    picture = tmp_path / "journey.png"
    code, quiet, _ = run(capsys, "play", "NSCLC", "--seed", 3, "--agent", "guideline", "--quiet", "--picture", picture)
    charts = re.split(r"(?=^Advanced)", by_hand, flags=re.MULTILINE)
    assert code == 0
    assert quiet.count("Advanced") == 1
    assert charts[-1].strip() in quiet
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["journey.png"]
    _, loud, _ = run(capsys, "play", "NSCLC-v0", "--seed", 3, "--agent", "guideline")
    assert loud.count("Advanced") == len(charts) - 1


def test_a_picture_needs_a_journey(tmp_path):
    env = gym.make("onco_gym/NSCLC-v0", render_mode="ansi").unwrapped
    with pytest.raises(gym.error.ResetNeeded):
        env.save_picture(tmp_path / "journey.png")


def test_rollout_figures_are_those_of_the_episodes(capsys, tmp_path):
    path = tmp_path / "figures.json"
    code, out, err = run(capsys, "rollout", "NSCLC", "--agent", "guideline", "-n", 300, "--seed", 5, "--json", path)
    assert (code, err) == (0, "")
    figures = json.loads(path.read_text())
    engine = make_engine("nsclc")
    episodes = rollout(engine, load_agent(engine, "guideline"), 300, 5)
    assert figures["patients"] == 300
    assert figures["mean_return"] == pytest.approx(episodes.returns.mean(), rel=1e-5)
    low, high = figures["mean_return_interval"]
    assert (low + high) / 2 == pytest.approx(figures["mean_return"])
    assert (episodes.weeks <= figures["median_weeks"]).mean() >= 0.5 > (episodes.weeks < figures["median_weeks"]).mean()
    assert figures["survival"]["1"] == pytest.approx((episodes.weeks >= 52.1775).mean())
    assert figures["survival"]["5"] == pytest.approx(1 - figures["died"], abs=0.01)
    assert sum(figures["first_cycle"].values()) == pytest.approx(1)
    assert f"{figures['mean_return']:.3f} QALY" in out
    assert out.count("first cycle: ") == 5
    for died in (True, False):
        patient = int(np.flatnonzero(episodes.died == died)[0])
        code, out, _ = run(capsys, "rollout", "NSCLC", "-n", 1, "--seed", 5 + patient, "--json", path)
        figures = json.loads(path.read_text())
        assert figures["mean_return_interval"] is None
        assert figures["median_weeks"] == (pytest.approx(episodes.weeks[patient], rel=1e-5) if died else None)
        assert bool(re.search("median survival +not reached", out)) != died


def test_cohort_is_written_and_used(capsys, tmp_path):
    path = tmp_path / "cohort.parquet"
    where = ("--where", "EGFR_L858R and age > 70", "--do", "insurance=medicaid", "rural=true", "adherence=.9")
    code, out, _ = run(capsys, "cohort", "nsclc", "-n", 60, *where, "--seed", 4, "--out", path)
    card = load_card("nsclc")
    patients = [Cohort.read(path, card).row(card, index) for index in range(60)]
    assert code == 0
    assert int(re.search(r"(\d+) were drawn", out)[1]) > 60
    for patient in patients:
        assert patient["driver"] == "EGFR_L858R"
        assert patient["age"] > 70
        assert (patient["insurance"], patient["rural"], patient["adherence"]) == ("medicaid", True, 0.9)
    assert run(capsys, "rollout", "NSCLC", "-n", 20, "--cohort", path)[0] == 0
    code, _, err = run(capsys, "rollout", "Breast", "-n", 20, "--cohort", path)
    assert (code, "holds patients of 'NSCLC'" in err) == (2, True)


def test_a_card_of_ones_own(capsys, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(card_files()["melanoma"].read_text().replace('id = "Melanoma"', 'id = "Mine"', 1))
    code, out, _ = run(capsys, "play", path, "--agent", "best_supportive_care", "--seed", 0, "--quiet")
    assert code == 0
    assert out.startswith("Mine, seed 0")


WRONG = [
    ((), "COMMAND"),
    (("dance",), "'dance'"),
    (("show", "lung"), "'lung'"),
    (("show", "nowhere.toml"), "nowhere.toml"),
    (("show", "nsclc", "--section", "poems"), "'poems'"),
    (("play", "CartPole-v1"), "'CartPole-v1'"),
    (("play", "onco_gym/NSCLC-v9"), "'onco_gym/NSCLC-v9'"),
    (("play", "onco_gym/Card-v0"), "'onco_gym/Card-v0'"),
    (("play", "NSCLC", "--quiet"), "--agent"),
    (("play", "NSCLC", "--agent", "oracle"), "'oracle'"),
    (("play", "NSCLC", "--picture", "no/such/folder.png"), "no/such/folder.png"),
    (("rollout", "NSCLC", "-n", "0"), "-n"),
    (("rollout", "NSCLC", "-n", "-3"), "-n"),
    (("rollout", "NSCLC", "-n", "many"), "'many'"),
    (("rollout", "NSCLC", "-n", "9" * 30), "-n"),
    (("rollout", "NSCLC", "--seed", "-1"), "--seed"),
    (("rollout", "NSCLC", "--json", "."), "--json"),
    (("rollout", "NSCLC", "--cohort", "nowhere.parquet"), "nowhere.parquet"),
    (("rollout", "NSCLC", "--cohort", __file__), "Parquet"),
    (("calibrate", "nsclc", "--output", "out.txt"), ".toml"),
    (("cohort", "nsclc"), "--out"),
    (("cohort", "nsclc", "--where", "age >", "--out", "x.parquet"), "age >"),
    (("cohort", "nsclc", "--where", "height > 2", "--out", "x.parquet"), "'height'"),
    (("cohort", "nsclc", "--where", "age > " + "9" * 5000, "--out", "x.parquet"), "5006 characters"),
    (("cohort", "nsclc", "--where", "age > 1e999", "--out", "x.parquet"), "1e999"),
    (("cohort", "nsclc", "--where", "not " * 300 + "EGFR_L858R", "--out", "x.parquet"), "too deeply nested"),
    (("cohort", "nsclc", "--where", "1 / 0 > age", "--out", "x.parquet"), "1 / 0"),
    (("cohort", "nsclc", "--where", "-EGFR_L858R > 0", "--out", "x.parquet"), "EGFR_L858R"),
    (("cohort", "nsclc", "--do", "age", "--out", "x.parquet"), "NAME=VALUE"),
    (("cohort", "nsclc", "--do", "age=old", "--out", "x.parquet"), "'old'"),
    (("cohort", "nsclc", "--do", "insurance=gold", "--out", "x.parquet"), "'gold'"),
    (("cohort", "nsclc", "--do", "EGFR_L858R=false", "--out", "x.parquet"), "'driver'"),
]


@pytest.mark.parametrize(("arguments", "named"), WRONG)
def test_errors_are_one_line(capsys, monkeypatch, tmp_path, arguments, named):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert err.startswith("onco-gym: ")
    assert err.count("\n") == 1
    assert named in err
    assert not list(tmp_path.iterdir())


def test_a_broken_card_is_one_line(capsys, tmp_path):
    text = card_files()["nsclc"].read_text()
    for weeks in ("[", "-3", "true", "9" * 400, "9" * 5000, "[" * 1500):
        path = tmp_path / "broken.toml"
        path.write_text(text.replace("cycle_weeks = 3", f"cycle_weeks = {weeks}", 1))
        code, _, err = run(capsys, "show", path)
        assert (code, err.count("\n")) == (2, 1)
        assert "broken.toml" in err


def test_a_closed_pipe_is_quiet():
    command = [sys.executable, "-c", "import sys; from onco_gym.cli import main; sys.exit(main(['show', 'nsclc', '--citation']))"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1


def test_interrupted_is_quiet(capsys, monkeypatch):
    class Interrupted(io.StringIO):
        def readline(self, size=-1):
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    code, _, err = run(capsys, "play", "NSCLC", "--seed", 7)
    assert (code, err) == (130, "")
