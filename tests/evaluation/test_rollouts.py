"""The figures of a rollout are those of an evaluation of the same patients."""

import json

import pytest

from onco_gym.agents import load_agent, rollout
from onco_gym.evaluation import evaluate, summarise_rollout
from onco_gym.evaluation.tables import rollout_rows
from onco_gym.interfaces.engine import make_engine

N, SEED = 32, 5
SHARED = ("stamp", "episodes", "follow_up_months", "returns", "terms", "median_survival", "survival", "qalys", "concordance")
COSTS = ("grade3", "carbon_kg", "cost_usd")


@pytest.fixture(scope="module")
def engine():
    return make_engine("nsclc", split="test")


def test_a_rollout_and_an_evaluation_agree(engine):
    summary = summarise_rollout(engine, rollout(engine, load_agent(engine, "guideline"), N, SEED))
    evaluation = evaluate(engine, "guideline", N, SEED, fairness=False)
    for name in (*SHARED, *COSTS):
        assert getattr(summary, name) == getattr(evaluation, name), name
    ours, theirs = summary.to_json(), evaluation.to_json()
    assert json.loads(json.dumps(ours, allow_nan=False)) == ours
    assert all(ours[name] == theirs[name] for name in ours.keys() & theirs.keys())
    assert {"return", "median_survival_months", "survival", "qalys"} <= ours.keys() & theirs.keys()


def test_what_is_not_judged_is_unknown():
    engine = make_engine("nsclc", terms=["outcome"], horizon=4)
    summary = summarise_rollout(engine, rollout(engine, load_agent(engine, "guideline"), N, SEED))
    content = summary.to_json()
    assert content["concordance"]["value"] is None
    assert content["contraindicated"]["value"] is None
    assert content["survival"]["1"] is None
    rows = dict(rollout_rows(summary))
    assert rows["decisions within the guideline"] == "-"
    assert rows["1-year survival"] == "beyond follow-up"
