"""list, show and play."""

import io
import re

import gymnasium as gym
import numpy as np
import pytest
from conftest import CARDS, IDS

import onco_gym
from onco_gym.cards import card_files, load_card
from onco_gym.cli.environments import SECTIONS


@pytest.fixture
def type_in(monkeypatch):
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_list_names_every_environment(command):
    ran = command("list")
    assert ran.code == 0
    for name in (*IDS, "onco_gym/Card-v0"):
        assert name in ran.out
    card = load_card("nsclc")
    row = next(line for line in ran.out.splitlines() if "/NSCLC-v0" in line)
    assert row.split()[-3] == str(card.horizon_cycles)
    assert row.split()[-1] == str(len(card.arms))
    assert f"one of {len(card.regimens)} regimens" in row
    assert "vector" in next(line for line in ran.out.splitlines() if "/mo-NSCLC-v0" in line)


@pytest.mark.parametrize("name", CARDS)
def test_show_prints_every_table(command, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "2000")
    card = load_card(name)
    ran = command("show", name)
    assert ran.code == 0
    assert card.title in ran.out
    for row in (*card.variables, *card.regimens, *card.clones):
        assert re.search(rf"^ *{row.name} ", ran.out, re.MULTILINE)
    for rule in card.guideline:
        assert (rule.when or "always") in ran.out
    fit = sum(arm.use == "fit" for arm in card.arms)
    assert re.search(rf"^ *fit +{fit} ", ran.out, re.MULTILINE)


def test_show_compounds_grade_3_over_organs(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    out = command("show", "nsclc", "--section", "regimens").out
    shares = next(r for r in load_card("nsclc").regimens if r.name == "osimertinib").toxicity.values()
    row = next(line for line in out.splitlines() if line.split()[:1] == ["osimertinib"])
    assert f" {1 - np.prod([1 - share for share in shares]):.0%} " in row


def test_show_one_section_or_the_citation(command):
    whole = command("show", "nsclc").out
    parts = [command("show", "onco_gym/NSCLC-v0", "--section", name).out for name in SECTIONS]
    assert all(part.strip() in whole for part in parts)
    assert command("show", card_files()["nsclc"], "--citation").out.strip() == onco_gym.citation("nsclc").strip()


def test_play_by_hand(command, monkeypatch, type_in):
    type_in("2\n99\nhello\n\nq\n")
    ran = command("play", "NSCLC", "--seed", 7)
    assert (ran.code, ran.err) == (0, "")
    assert [int(week) for week in re.findall(r"cancer, week (\d+)", ran.out)] == [0, 3, 6]
    assert "'99' is not one of the numbers above" in ran.out
    assert "'hello' is not one of the numbers above" in ran.out
    assert "Osimertinib 80 mg daily" in ran.out


def test_play_ends_with_the_input(command, type_in):
    type_in("\n")
    ran = command("play", "NSCLC", "--seed", 7)
    assert ran.code == 0
    assert ran.out.count("q to quit") == 2


def test_enter_follows_the_guideline_to_the_end(command, type_in, tmp_path):
    type_in("\n" * 200)
    by_hand = command("play", "nsclc", "--seed", 3).out
    plot = tmp_path / "journey.png"
    code, quiet, _ = command("play", "NSCLC", "--seed", 3, "--agent", "guideline", "--quiet", "--plot", plot)
    charts = re.split(r"(?=^Advanced)", by_hand, flags=re.MULTILINE)
    assert code == 0
    assert quiet.count("Advanced") == 1
    assert charts[-1].strip() in quiet
    assert f"wrote {plot}" in quiet
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["journey.png"]
    loud = command("play", "NSCLC-v0", "--seed", 3, "--agent", "guideline").out
    assert loud.count("Advanced") == len(charts) - 1


@pytest.mark.parametrize("id", [pytest.param("NSCLC-Dose", marks=pytest.mark.slow), "NSCLC-Workflow"])
def test_an_agent_can_be_watched_where_nobody_can_play_by_hand(command, id):
    ran = command("play", id, "--seed", 3, "--agent", "guideline", "--quiet")
    assert ran.code == 0
    assert ran.out.count("Advanced") == 1


def test_a_picture_needs_a_journey(tmp_path):
    env = gym.make("onco_gym/NSCLC-v0", render_mode="ansi").unwrapped
    with pytest.raises(gym.error.ResetNeeded):
        env.save_picture(tmp_path / "journey.png")


def test_a_card_of_ones_own(command, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(card_files()["melanoma"].read_text().replace('id = "Melanoma"', 'id = "Mine"', 1))
    ran = command("play", path, "--agent", "best_supportive_care", "--seed", 0, "--quiet")
    assert ran.code == 0
    assert ran.out.startswith("Mine, seed 0")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("show", "lung"), "'lung'"),
        (("show", "nslc"), "(did you mean 'NSCLC'?)"),
        (("show", "nowhere.toml"), "nowhere.toml"),
        (("play", "CartPole-v1"), "'CartPole-v1'"),
        (("play", "onco_gym/NSCLC-v9"), "'onco_gym/NSCLC-v9'"),
        (("play", "onco_gym/Card-v0"), "needs a card of your own"),
        (("play", "NSCLC", "--quiet"), "--agent"),
        (("play", "NSCLC", "--agent", "oracle"), "'oracle'"),
        (("play", "NSCLC", "--agent", "osimertinb"), "(did you mean 'osimertinib'?)"),
        (("play", "NSCLC", "--agent", "never"), "'never' is for workflow environments"),
        (("play", "NSCLC", "--plot", "no/such/folder.png"), "no/such/folder.png"),
        (("play", "NSCLC", "--plot", "journey.pdf"), "does not end in .png"),
        (("play", "NSCLC-Dose"), "cannot be played by hand"),
    ],
)
def test_errors_are_one_line(refused, arguments, named):
    refused(named, *arguments)


def test_a_broken_card_is_one_line(command, tmp_path):
    text = card_files()["nsclc"].read_text()
    for weeks in ("[", "-3", "true", "9" * 400, "9" * 5000, "[" * 1500):
        path = tmp_path / "broken.toml"
        path.write_text(text.replace("cycle_weeks = 3", f"cycle_weeks = {weeks}", 1))
        code, _, err = command("show", path)
        assert (code, err.count("\n")) == (2, 1)
        assert "broken.toml" in err
