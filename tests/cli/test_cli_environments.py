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


def test_list_names_every_environment(printed):
    said = printed("list")
    for name in (*IDS, "onco_gym/Card-v0"):
        assert name in said
    card = load_card("nsclc")
    row = next(line for line in said.splitlines() if "/NSCLC-v0" in line)
    assert row.split()[-3] == str(card.horizon_cycles)
    assert row.split()[-1] == str(len(card.arms))
    assert f"one of {len(card.regimens)} regimens" in row
    assert "vector" in next(line for line in said.splitlines() if "/mo-NSCLC-v0" in line)


@pytest.mark.parametrize("name", CARDS)
def test_show_prints_every_table(printed, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "2000")
    card = load_card(name)
    said = printed("show", name)
    assert card.title in said
    for row in (*card.variables, *card.regimens, *card.clones):
        assert re.search(rf"^ *{row.name} ", said, re.MULTILINE)
    for rule in card.guideline:
        assert (rule.when or "always") in said
    fit = sum(arm.use == "fit" for arm in card.arms)
    assert re.search(rf"^ *fit +{fit} ", said, re.MULTILINE)


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


def test_play_by_hand(printed, monkeypatch, type_in):
    type_in("2\n99\nhello\n\nq\n")
    said = printed("play", "NSCLC", "--seed", 7)
    assert [int(week) for week in re.findall(r"cancer, week (\d+)", said)] == [0, 3, 12]
    assert "'99' is not one of the numbers above" in said
    assert "'hello' is not one of the numbers above" in said
    assert "Osimertinib 80 mg daily" in said


def test_play_ends_with_the_input(printed, type_in):
    type_in("\n")
    said = printed("play", "NSCLC", "--seed", 7)
    assert said.count("q to quit") == 2


def test_enter_follows_the_guideline_to_the_end(command, printed, type_in, tmp_path):
    type_in("\n" * 200)
    by_hand = command("play", "nsclc", "--seed", 3).out
    plot = tmp_path / "journey.png"
    quiet = printed("play", "NSCLC", "--seed", 3, "--agent", "guideline", "--quiet", "--plot", plot)
    charts = re.split(r"(?=^Advanced)", by_hand, flags=re.MULTILINE)
    assert quiet.count("Advanced") == 1
    assert charts[-1].strip() in quiet
    assert f"wrote {plot}" in quiet
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["journey.png"]
    loud = command("play", "NSCLC-v0", "--seed", 3, "--agent", "guideline").out
    assert loud.count("Advanced") == len(charts) - 1


@pytest.mark.parametrize("id", [pytest.param("NSCLC-Dose", marks=pytest.mark.slow), "NSCLC-Workflow"])
def test_an_agent_can_be_watched_where_nobody_can_play_by_hand(printed, id):
    said = printed("play", id, "--seed", 3, "--agent", "guideline", "--quiet")
    assert said.count("Advanced") == 1


def test_a_picture_needs_a_journey(tmp_path):
    env = gym.make("onco_gym/NSCLC-v0", render_mode="ansi").unwrapped
    with pytest.raises(gym.error.ResetNeeded):
        env.save_picture(tmp_path / "journey.png")


def test_a_card_of_ones_own(printed, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(card_files()["melanoma"].read_text().replace('id = "Melanoma"', 'id = "Mine"', 1))
    said = printed("play", path, "--agent", "best_supportive_care", "--seed", 0, "--quiet")
    assert said.startswith("Mine, seed 0")


def test_a_broken_card_is_one_line(refused, tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text(card_files()["nsclc"].read_text().replace("cycle_weeks = 3", "cycle_weeks = -3", 1))
    refused("broken.toml", "show", path)
