"""rollout, evaluate and yardstick."""

import json
import re

import numpy as np
import pytest

from onco_gym.agents import load_agent, rollout
from onco_gym.evaluation import Interval, read_evaluation, yardsticks
from onco_gym.evaluation.yardsticks import Yardstick, read_yardstick
from onco_gym.foundation.units import WEEKS_PER_MONTH
from onco_gym.interfaces.engine import make_engine
from onco_gym.verification import amortised

N = 32
"""Patients; functions are compiled for each number of them."""


def test_rollout_figures_are_those_of_the_episodes(printed, tmp_path):
    path = tmp_path / "figures.json"
    out = printed("rollout", "guideline", "--env", "NSCLC", "-n", N, "--seed", 5, "--json", path)
    found = json.loads(path.read_text())
    engine = make_engine("nsclc", split="test")
    episodes = rollout(engine, load_agent(engine, "guideline"), N, 5)
    assert found["stamp"] == engine.stamp.to_json()
    assert (found["agent"], found["seed"], found["cohort"], found["episodes"]) == ("guideline", 5, None, N)
    assert found["return"]["value"] == pytest.approx(episodes.returns.mean(), rel=1e-5)
    assert (found["return"]["low"] + found["return"]["high"]) / 2 == pytest.approx(found["return"]["value"])
    assert found["survival"]["5"]["value"] == pytest.approx(1 - found["died"]["value"], abs=0.01)
    assert found["first_line_response"]["value"] == pytest.approx((episodes.best_change <= -0.3).mean())
    assert found["median_progression_months"]["value"] < found["median_survival_months"]["value"]
    assert found["contraindicated"]["value"] == pytest.approx((episodes.verdicts[episodes.verdicts >= 0] == 0).mean())
    assert found["divergence"]["sex"]["decisions"] > 0
    assert sum(found["first_cycle"].values()) == pytest.approx(1)
    assert re.search(rf"return, all four terms +{found['return']['value']:.3f} ", out)
    assert out.count("first cycle: ") == 5
    for died in (True, False):
        patient = int(np.flatnonzero(episodes.died == died)[0])
        out = printed("rollout", "guideline", "--env", "NSCLC", "-n", 1, "--seed", 5 + patient, "--json", path)
        found = json.loads(path.read_text())
        assert (found["return"]["low"], found["return"]["high"]) == (None, None)
        weeks = episodes.weeks[patient] / WEEKS_PER_MONTH
        assert found["median_survival_months"]["value"] == (pytest.approx(weeks, rel=1e-5) if died else None)
        assert bool(re.search("median survival, months +not reached", out)) != died


def test_evaluate(printed, tmp_path):
    figures, page = tmp_path / "figures.json", tmp_path / "report.html"
    asked = ("evaluate", "clinician", "--env", "NSCLC", "-n", N, "--seed", 5, "--no-fairness")
    out = printed(*asked, "--compare", "osimertinib", "clinician", "--json", figures, "--html", page)
    assert "score (0 random, 100 planner)" in out
    assert "chance that clinician does better" in out
    assert "Fairness of" not in out
    assert out.endswith(f"wrote {figures}\nwrote {page}\n")
    found = json.loads(figures.read_text())
    assert found["stamp"] == make_engine("nsclc", split="test").stamp.to_json()
    assert [one["agent"] for one in found["compared"]] == ["osimertinib", "random", "guideline"]
    assert read_evaluation(figures).agent == "clinician"
    assert "Three patients of clinician" in page.read_text()


@pytest.mark.slow
def test_evaluate_asks_about_twins(printed):
    said = printed("evaluate", "clinician", "--env", "NSCLC", "-n", N)
    assert f"Fairness of clinician: {N} patients and their twins" in said
    assert "Fairness of guideline" not in said


def test_yardstick(printed, monkeypatch, tmp_path):
    """What the measure itself finds, tests/evaluation checks."""
    path = tmp_path / "nsclc.json"
    monkeypatch.setattr(yardsticks, "yardstick_file", lambda card: path)

    def measure(engine, patients, first, progress):
        progress("patients", patients, patients)
        gain = Interval(0.25, 0.2, 0.3)
        return Yardstick(engine.scenario.digest, engine.decide, engine.split, patients, first, 0.5, 1.0, 1.25, gain)

    monkeypatch.setattr(yardsticks, "measure", measure)
    out = printed("yardstick", "NSCLC", "-n", 8, "--seed", 3)
    assert "onco_gym/NSCLC-v0: random 0.500, guideline 1.000, planner 1.250; the planner gains 0.250 (0.200 to 0.300)" in out
    assert "the score of the guideline is 66.7" in out
    assert out.endswith(f"wrote {path}\n")
    found = read_yardstick(path)
    assert (found.split, found.patients, found.first) == ("test", 8, 3)


def test_yardstick_network(printed, monkeypatch, tmp_path):
    path = tmp_path / "nsclc.npz"
    monkeypatch.setattr(amortised, "network_file", lambda card: path)
    weights = {name: np.zeros(2, np.float32) for name in amortised._NAMES}
    monkeypatch.setattr(amortised, "train", lambda engine, progress: amortised.Network("digest", weights))
    assert printed("yardstick", "NSCLC", "--network") == f"wrote {path}\n"
    assert amortised.read_network(path).card_digest == "digest"
