"""The baselines: runs that are kept, found again and made into a page."""

import json

import pytest

import run
import table
from onco_gym.cards import card_files

PPO = {"steps": 2048, "envs": 128, "length": 8, "batches": 2, "hidden": [16]}
WATCHED = {"episodes": 60, "epochs": 1, "batch": 256}
SMALL = {
    "jax_ppo": PPO,
    "guided_ppo": {**PPO, "imitates": {"agent": "guideline", **WATCHED}},
    "cloning": {"agent": "clinician", **WATCHED, "rate": 1e-3, "hidden": [16]},
}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Runs, policies and pages of this test."""
    monkeypatch.setattr(run, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(run, "POLICIES", tmp_path / "policies")
    monkeypatch.setattr(table, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(table, "FIGURES", tmp_path / "figures")
    return tmp_path


def made(algorithm, seed=0):
    one = run.Run("NSCLC-v0", algorithm, seed, 60, 0, SMALL.get(algorithm, {}))
    run.perform(one)
    return one


@pytest.mark.slow
def test_runs_are_kept_and_made_into_tables(kept):
    runs = [made("random"), made("guideline"), made("cloning"), made("jax_ppo"), made("jax_ppo", 1), made("guided_ppo")]
    assert all(one.is_done() for one in runs)
    changed = run.Run("NSCLC-v0", "jax_ppo", 0, 60, 0, {**SMALL["jax_ppo"], "steps": 4096})
    assert not changed.is_done(), "other settings are another run"
    content = json.loads(runs[3].file.read_text())
    assert len(content["returns"]) == 60
    assert content["curve"]
    assert runs[3].policy.exists()

    rows = {row.algorithm: row for row in table.entries(table.read()["NSCLC-v0"])}
    assert rows["random"].score.value == pytest.approx(0)
    assert rows["guideline"].score.value == pytest.approx(100)
    assert len(rows["jax_ppo"].by_seed) == 2
    assert rows["jax_ppo"].score.low <= rows["jax_ppo"].score.value <= rows["jax_ppo"].score.high
    assert "| PPO (JAX) |" in table.table(list(rows.values()))


def names(baselines, *kinds):
    return {name for kind in kinds or baselines for name in baselines[kind]}


def test_every_baseline_has_its_settings():
    environments = run.environments("regimen")
    assert len(environments) == len(card_files())
    runs = run.planned(environments, None, None)
    assert {one.algorithm for one in runs} == names(run.UNTRAINED, "regimen") | names(run.TRAINED, "regimen")
    assert all(one.settings for one in runs if one.trained)
    assert sum(one.algorithm == "maskable_ppo" for one in runs) >= 5 * len(environments)
    assert set(table.NAMES) == names(run.UNTRAINED) | names(run.TRAINED)
    doses = run.planned(["NSCLC-Dose-v0"], None, 5)
    assert {one.algorithm for one in doses} == {"random", "constant", "guideline", "sac"}


def test_every_run_that_is_kept_is_done_and_wanted():
    """A run that is no longer recognised would be made again, and that takes hours."""
    runs = run.planned([name for kind in run.TRAINED for name in run.environments(kind)], None, None)
    assert {one.file for one in runs} == set(run.RUNS.glob("*/*/*.json"))
    assert [one.file for one in runs if not one.is_done()] == []


def test_the_page_is_what_the_runs_say():
    every = table.scored(table.read())
    scores = table.together({name: every[name] for name in run.environments("regimen")})
    assert table.page(every, scores, profiled=True) == table.PAGE.read_text(), "run python baselines/table.py"


def test_a_broken_run_is_run_again(kept):
    one = run.Run("NSCLC-v0", "random", 0, 60, 0, {})
    one.file.parent.mkdir(parents=True)
    one.file.write_text('{"stamp": ')
    assert not one.is_done()
