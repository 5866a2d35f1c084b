"""rollout, evaluate and yardstick."""

import json
import re

import numpy as np
import pytest

from onco_gym.agents import load_agent, rollout
from onco_gym.evaluation import read_evaluation, yardsticks
from onco_gym.evaluation.yardsticks import Yardstick, read_yardstick
from onco_gym.foundation.units import WEEKS_PER_MONTH, WEEKS_PER_YEAR
from onco_gym.interfaces.engine import make_engine
from onco_gym.verification import amortised

N = 32
"""Patients; functions are compiled for each number of them."""


def test_rollout_figures_are_those_of_the_episodes(command, tmp_path):
    path = tmp_path / "figures.json"
    code, out, err = command("rollout", "guideline", "--env", "NSCLC", "-n", N, "--seed", 5, "--json", path)
    assert (code, err) == (0, "")
    found = json.loads(path.read_text())
    engine = make_engine("nsclc")
    episodes = rollout(engine, load_agent(engine, "guideline"), N, 5)
    assert found["stamp"] == engine.stamp.to_json()
    assert (found["agent"], found["seed"], found["cohort"], found["episodes"]) == ("guideline", 5, None, N)
    assert found["return"]["value"] == pytest.approx(episodes.returns.mean(), rel=1e-5)
    assert found["qalys"] == found["terms"]["outcome"]
    assert (found["return"]["low"] + found["return"]["high"]) / 2 == pytest.approx(found["return"]["value"])
    median = found["median_survival_months"]["value"] * WEEKS_PER_MONTH
    assert (episodes.weeks <= median * 1.00001).mean() >= 0.5 > (episodes.weeks < median * 0.99999).mean()
    assert found["survival"]["1"]["value"] == pytest.approx((episodes.weeks >= WEEKS_PER_YEAR).mean())
    assert found["survival"]["5"]["value"] == pytest.approx(1 - found["died"]["value"], abs=0.01)
    assert found["first_line_response"]["value"] == pytest.approx((episodes.best_change <= -0.3).mean())
    assert found["median_progression_months"]["value"] < found["median_survival_months"]["value"]
    assert found["concordance"]["value"] == pytest.approx((episodes.verdicts[episodes.verdicts >= 0] >= 3).mean())
    assert found["contraindicated"]["value"] == pytest.approx((episodes.verdicts[episodes.verdicts >= 0] == 0).mean())
    assert found["divergence"]["sex"]["decisions"] > 0
    assert sum(found["first_cycle"].values()) == pytest.approx(1)
    assert re.search(rf"return, all four terms +{found['return']['value']:.3f} ", out)
    assert out.count("first cycle: ") == 5
    for died in (True, False):
        patient = int(np.flatnonzero(episodes.died == died)[0])
        code, out, _ = command("rollout", "guideline", "--env", "NSCLC", "-n", 1, "--seed", 5 + patient, "--json", path)
        found = json.loads(path.read_text())
        assert (found["return"]["low"], found["return"]["high"]) == (None, None)
        weeks = episodes.weeks[patient] / WEEKS_PER_MONTH
        assert found["median_survival_months"]["value"] == (pytest.approx(weeks, rel=1e-5) if died else None)
        assert bool(re.search("median survival, months +not reached", out)) != died


def test_evaluate(command, tmp_path):
    figures, page = tmp_path / "figures.json", tmp_path / "report.html"
    asked = ("evaluate", "clinician", "--env", "NSCLC", "-n", N, "--seed", 5, "--no-fairness")
    code, out, err = command(*asked, "--compare", "osimertinib", "clinician", "--json", figures, "--html", page)
    assert (code, err) == (0, "")
    assert "score (0 random, 100 planner)" in out
    assert "chance that clinician does better" in out
    assert "Fairness of" not in out
    assert out.endswith(f"wrote {figures}\nwrote {page}\n")
    found = json.loads(figures.read_text())
    assert found["stamp"] == make_engine("nsclc").stamp.to_json()
    assert [one["agent"] for one in found["compared"]] == ["osimertinib", "random", "guideline"]
    assert read_evaluation(figures).agent == "clinician"
    assert "Three patients of clinician" in page.read_text()


@pytest.mark.slow
def test_evaluate_asks_about_twins(command):
    ran = command("evaluate", "clinician", "--env", "NSCLC", "-n", N)
    assert ran.code == 0
    assert f"Fairness of clinician: {N} patients and their twins" in ran.out
    assert "Fairness of guideline" not in ran.out


@pytest.mark.parametrize("name", ["rollout", "evaluate"])
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("clinician", "--env", "Nowhere"), "there is no environment or card 'Nowhere'"),
        (("clinician", "--env", "NSCLC-Dos"), "(did you mean 'NSCLC-Dose'?)"),
        (("nobody", "--env", "NSCLC"), "there is no agent 'nobody'"),
        (("guidelin", "--env", "NSCLC"), "(did you mean 'guideline'?)"),
        (("docetaxl", "--env", "NSCLC"), "(did you mean 'docetaxel'?)"),
        (("absent.onnx", "--env", "NSCLC"), "there is no policy file 'absent.onnx'"),
        (("absent.zip", "--env", "NSCLC"), "there is no model 'absent.zip'"),
        (("absent_module:agent", "--env", "NSCLC"), "cannot be imported"),
        (("clinician", "--env", "NSCLC-Dose"), "the agent 'clinician' is for regimen environments"),
        (("clinician", "--env", "nothing.toml"), "nothing.toml"),
    ],
)
def test_errors_are_one_line(refused, name, arguments, named):
    refused(named, name, *arguments, "-n", N)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("evaluate", "clinician", "--env", "NSCLC", "--compare", "nobody"), "nobody"),
        (("rollout", "clinician", "--env", "NSCLC", "--cohort", "nowhere.parquet"), "nowhere.parquet"),
        (("rollout", "clinician", "--env", "NSCLC", "--cohort", __file__), "Parquet"),
        (("yardstick", "mine.toml"), "shipped cards only"),
        (("yardstick", "nscl"), "(did you mean 'NSCLC'?)"),
    ],
)
def test_more_errors_are_one_line(refused, arguments, named):
    refused(named, *arguments)


def test_yardstick(command, monkeypatch, tmp_path):
    """What the measure itself finds, tests/evaluation checks."""
    path = tmp_path / "nsclc.json"
    monkeypatch.setattr(yardsticks, "yardstick_file", lambda card: path)

    def measure(engine, patients, first, progress):
        progress("patients", patients, patients)
        return Yardstick(engine.scenario.digest, patients, first, 0.5, 1.0, 1.25, (0.25, 0.2, 0.3))

    monkeypatch.setattr(yardsticks, "measure", measure)
    code, out, err = command("yardstick", "NSCLC", "-n", 8, "--seed", 3)
    assert (code, err) == (0, "")
    assert "onco_gym/NSCLC-v0: random 0.500, guideline 1.000, planner 1.250; the planner gains 0.250 (0.200 to 0.300)" in out
    assert "the score of the guideline is 66.7" in out
    assert out.endswith(f"wrote {path}\n")
    found = read_yardstick(path)
    assert (found.patients, found.first) == (8, 3)


def test_yardstick_network(command, monkeypatch, tmp_path):
    path = tmp_path / "nsclc.npz"
    monkeypatch.setattr(amortised, "network_file", lambda card: path)
    weights = {name: np.zeros(2, np.float32) for name in amortised._NAMES}
    monkeypatch.setattr(amortised, "train", lambda engine, progress: amortised.Network("digest", weights))
    code, out, err = command("yardstick", "NSCLC", "--network")
    assert (code, out, err) == (0, f"wrote {path}\n", "")
    assert amortised.read_network(path).card_digest == "digest"
