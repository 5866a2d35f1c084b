"""Evaluations: the same digits wherever chunks run, figures that can be recounted, a page that stands alone."""

import json
import math
import pickle
import re
from dataclasses import fields, replace
from html.parser import HTMLParser

import numpy as np
import pytest
from conftest import refuses

from onco_gym.agents import AgentError, GuidelineAgent, rollout
from onco_gym.evaluation import Evaluation, EvaluationError, Interval, evaluate, evaluate_all, figures, improvement, running
from onco_gym.evaluation.figures import Dependence, Fairness, Runs, Timing, read_evaluation, summarise, write_evaluation
from onco_gym.evaluation.report import write_report
from onco_gym.evaluation.tables import rows, shown
from onco_gym.evaluation.yardsticks import Yardstick
from onco_gym.foundation.units import WEEKS_PER_YEAR
from onco_gym.foundation.workers import spread
from onco_gym.interfaces.engine import make_engine
from onco_gym.rewards import TERMS

SIZE, SEED, HORIZON = 32, 5, 20  # patients, seed, cycles


@pytest.fixture(scope="module", autouse=True)
def small():
    """Chunks of few patients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "CHUNK", SIZE)
        patch.setattr(running, "ASKED", 10)
        yield


@pytest.fixture(scope="module")
def engine():
    """An environment with a short follow-up."""
    return make_engine("nsclc", horizon=HORIZON, split="test")


@pytest.fixture(scope="module")
def found(small, engine):
    """Evaluations of three agents on two chunks."""
    return evaluate_all(engine, ["clinician", "guideline", "random"], episodes=2 * SIZE, seed=SEED, fairness=False)


def reproducible(one):
    return {name: value for name, value in one.to_json().items() if name not in ("timing", "agent")}


def test_without_a_yardstick_the_guideline_is_100_and_random_0(found):
    clinician, guideline, random = found
    assert (guideline.score.value, guideline.score.low, guideline.score.high) == (100, 100, 100)
    assert (random.score.value, random.score.low, random.score.high) == (0, 0, 0)
    assert clinician.score.low < clinician.score.value < clinician.score.high
    top = clinician.returns.value - random.returns.value
    assert clinician.score.value == pytest.approx(100 * top / (guideline.returns.value - random.returns.value))
    assert clinician.reference.name == "guideline"
    assert clinician.reference.value == guideline.returns.value


def test_with_a_yardstick_the_planner_is_100(engine, monkeypatch):
    measured = Yardstick("", "cycles", "test", 1000, 0, random=1.0, guideline=2.0, planner=2.25, gain=Interval(0.25, 0.2, 0.3))
    monkeypatch.setattr(figures, "yardstick", lambda engine: measured)
    one = evaluate(engine, "guideline", episodes=20, seed=SEED, fairness=False)
    better = one.returns.value - one.reference.random
    score = pytest.approx(100 * better / (better + 0.25))
    assert (one.score.value, one.score.low, one.score.high) == (score, score, score)
    assert one.reference.name == "planner"
    assert one.reference.guideline == score
    assert one.reference.value == pytest.approx(one.returns.value + 0.25)
    assert f"the guideline has {one.score.value:.1f}" in one.to_json()["reference"]["says"]


def test_an_object_a_name_and_spread_chunks_give_the_same_digits(engine, found):
    seen, agent = [], GuidelineAgent(engine.card)
    one = evaluate(engine, agent, 2 * SIZE, SEED, fairness=False, progress=lambda stage, done, total: seen.append((done, total)))
    assert one.agent == "GuidelineAgent"
    assert reproducible(one) == reproducible(found[1])
    assert seen == [(number, 6) for number in range(1, 7)]
    named = evaluate(engine, "clinician", 2 * SIZE, SEED, fairness=False)
    assert reproducible(named) == reproducible(found[0])


def test_chunks_are_pure_and_can_be_sent(engine, found):
    tasks = [running._Task(engine, "clinician", "clinician", SEED, start, SIZE) for start in (SIZE, 0)]  # in another order
    results = [played.runs for played in spread(running._work, pickle.loads(pickle.dumps(tasks)))]
    for task, result in zip(tasks, results, strict=True):
        part = slice(task.start, task.start + SIZE)
        np.testing.assert_array_equal(result.returns, found[0].runs.returns[part])
        np.testing.assert_array_equal(result.concordant, found[0].runs.concordant[part])
    assert same(Runs.joined(results[::-1]), found[0].runs)


def same(one, other):
    """Whether all fields are equal, field by field; nan is nan."""
    for field in fields(one):
        here, there = getattr(one, field.name), getattr(other, field.name)
        if isinstance(here, Runs):
            equal = same(here, there)
        elif isinstance(here, np.ndarray):
            equal = here.dtype == there.dtype and np.array_equal(here, there)
        elif field.name == "terms" and isinstance(one, Runs):
            equal = list(here) == list(there) and all(np.array_equal(here[name], there[name]) for name in here)
        else:
            equal = type(here) is type(there) and repr(here) == repr(there)  # nan is not equal to nan, and its text is
        assert equal, (field.name, here, there)
    return True


def test_figures_can_be_recounted(engine, found):
    """From a rollout of the first chunk, without the evaluation's own code."""
    episodes = rollout(engine, GuidelineAgent(engine.card), SIZE, SEED)
    runs = found[1].runs
    np.testing.assert_array_equal(runs.weeks[:SIZE], episodes.weeks)
    np.testing.assert_array_equal(runs.carbon_kg[:SIZE], episodes.carbon_kg.astype(float))
    inside = [(column[column >= 0] >= 3).sum() for column in episodes.verdicts.T]
    assert runs.concordant[:SIZE].tolist() == inside
    assert found[1].concordance.value == pytest.approx(runs.concordant.sum() / runs.decisions.sum())
    assert found[1].qalys == found[1].terms["outcome"]
    months = runs.weeks * 12 / WEEKS_PER_YEAR
    assert found[1].survival["1"].value == pytest.approx((months >= 12).mean())
    middle = np.sort(np.where(runs.died, months, np.inf))[SIZE - 1 : SIZE + 1]  # who lived to the end of follow-up lived longer
    assert middle[0] - 1e-3 <= found[1].median_survival.value <= middle[1] + 1e-3


def test_json_is_plain_and_keeps_time_apart(found):
    content = found[0].to_json()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert set(content["timing"]) == {"one_us", "batch_us", "batch"}
    assert content["timing"]["one_us"] > 0
    assert content["timing"]["batch"] == SIZE
    assert content["reference"]["says"].startswith("100 is the guideline agent")
    assert set(content["terms"]) == set(TERMS)
    assert content["stamp"]["environment"] == "onco_gym/NSCLC-v0"


def test_improvement_is_symmetric(found):
    one, other = improvement(found[0], found[2]), improvement(found[2], found[0])
    assert one.value + other.value == pytest.approx(1)
    assert one.value > 0.5
    assert one.low <= one.value <= one.high


@pytest.mark.parametrize("n", [1, 5])
def test_what_cannot_be_told_is_null(engine, n):
    numbers, none = np.linspace(1, 2, n).astype(np.float32).astype(float), np.full(n, False)
    counts = {"weeks": np.full(n, 261.0), "decisions": np.full(n, 4), "concordant": np.full(n, 3)}
    terms, costs = dict.fromkeys(TERMS, numbers), {"carbon_kg": numbers, "cost_usd": numbers}
    runs = Runs(returns=numbers, terms=terms, died=none, severe=none, **counts, **costs)
    one = summarise(engine, "x", 0, runs, runs, runs, None, Timing(1.0, 1.0, n))
    content = json.loads(json.dumps(one.to_json(), allow_nan=False))
    assert content["score"] == {"value": None, "low": None, "high": None}  # the reference is no better than random
    assert content["median_survival_months"]["value"] is None
    assert content["survival"]["1"]["value"] == 1
    assert content["survival"]["5"] is None
    assert content["concordance"]["value"] == 0.75
    assert (content["return"]["low"] is None) == (n == 1)
    assert {"not reached", "beyond follow-up"} <= {row[1] for row in rows([one])}
    assert same(Evaluation.from_json(content), one)


UNKNOWN, UNBOUNDED = Interval(math.nan, math.nan, math.nan), Interval(0.5, -math.inf, math.inf)
FAIR = Fairness(5, True, {"sex": {"direct": Dependence(UNBOUNDED, Interval(0.0, 0.0, 0.0), UNKNOWN, 0.01)}})


@pytest.mark.parametrize("fairness", [None, FAIR])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"median_survival": Interval(math.inf, 30.5, math.inf)},
        {"median_survival": Interval(12.25, 10.0, math.inf)},
        {"score": UNBOUNDED},
        {"score": UNKNOWN, "concordance": UNKNOWN},
        {"survival": {"1": Interval(0.5, 0.4, 0.6), "3": None}},
    ],
)
def test_what_is_read_is_what_was_written(tmp_path, found, changes, fairness):
    one = replace(found[0], fairness=fairness, **changes)
    assert same(Evaluation.from_json(one.to_json()), one)
    write_evaluation(tmp_path / "found.json", one)
    again = read_evaluation(tmp_path / "found.json")
    assert same(again, one)
    assert again.to_json() == one.to_json()
    assert rows([again, found[2]]) == rows([one, found[2]])


def test_an_evaluation_is_short_to_look_at(found):
    text = repr(found[0])
    assert len(text) < 160
    assert text.startswith("Evaluation('clinician' in onco_gym/NSCLC-v0, 64 patients, seed 5: score ")


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "3", '"text"', "{}", "[" * 100_000, "\xff", '{"agent": "x"}'])
def test_a_damaged_file_gives_one_error(tmp_path, text):
    path = tmp_path / "found.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(EvaluationError, match=re.escape(str(path))) as caught:
        read_evaluation(path)
    assert "\n" not in str(caught.value)


def damaged(content):
    """Copies with one entry missing, or of another kind."""
    for name, value in content.items():
        yield {key: other for key, other in content.items() if key != name}
        for wrong in ([], "text", {"a": 1}, math.inf):
            if not isinstance(value, str) and (name, wrong) != ("follow_up_months", math.inf):
                yield {**content, name: wrong}
        if isinstance(value, dict) and name not in ("terms", "survival", "attributes"):
            for lost in value.keys() - {"says"}:  # which follows from the rest
                yield {**content, name: {key: one for key, one in value.items() if key != lost}}


def test_whatever_is_damaged_gives_one_error(found):
    content = found[0].to_json()
    for one in damaged(content):
        refuses(EvaluationError, "this is not an evaluation", Evaluation.from_json, one)
    for runs in damaged(content["runs"]):
        with pytest.raises(EvaluationError):
            Evaluation.from_json({**content, "runs": runs})
    for wrong in ([None] * 2 * SIZE, content["runs"]["returns"][1:], [[1.0]] * 2 * SIZE):
        with pytest.raises(EvaluationError, match="figures of its patients"):
            Evaluation.from_json({**content, "runs": {**content["runs"], "returns": wrong}})
    refuses(EvaluationError, "of 7 episodes", Evaluation.from_json, {**content, "episodes": 7})


def test_a_file_is_written_whole_or_not_at_all(tmp_path, found):
    path = tmp_path / "found.json"
    write_evaluation(path, found[0])
    before = path.read_text()
    with pytest.raises(ValueError, match="JSON compliant"):
        write_evaluation(path, replace(found[1], follow_up_months=math.nan))
    assert path.read_text() == before
    assert [one.name for one in tmp_path.iterdir()] == ["found.json"]
    with pytest.raises(FileNotFoundError):
        read_evaluation(tmp_path / "nothing.json")


def test_intervals_in_words():
    assert shown(Interval(1.5, 1.0, 2.0), "{:.1f}".format) == "1.5 (1.0 to 2.0)"
    assert shown(Interval(1.5, 1.0, math.inf), "{:.1f}".format) == "1.5 (1.0 to not reached)"
    assert shown(Interval(1.5, math.nan, math.nan), "{:.1f}".format) == "1.5"
    assert shown(Interval(math.inf, 1, math.inf), "{:.1f}".format) == "not reached"
    assert shown(None, "{:.1f}".format) == "beyond follow-up"


class Page(HTMLParser):
    """Collects what a page would fetch, and whether its elements close."""

    def __init__(self, text):
        super().__init__()
        self.sources, self.tags, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset")]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.remove(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone(tmp_path, engine, found):
    path = tmp_path / "report.html"
    curve = [(0, 0.5), (1000, 1.0)]
    write_report(path, found, engine, GuidelineAgent(engine.card), curve, title="<script>alert(1)</script>")
    text = path.read_text()
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert all(source.startswith(("data:", "#")) for source in page.sources)
    assert not re.search(r"url\((?!#)|@import", text)
    assert text.count("data:image/png;base64,") == 3
    assert page.tags.count("figure") == 8  # learning, score, survival, concordance, carbon, three patients
    assert "Research software, not for treating patients" in text
    assert "currentColor" in text
    assert "#010203" not in text
    other = replace(found[1], seed=SEED + 1)
    refuses(EvaluationError, "different patients", write_report, path, [found[0], other], engine, GuidelineAgent(engine.card))
    refuses(EvaluationError, "at least one", write_report, path, [], engine, GuidelineAgent(engine.card))


def test_errors(engine):
    refuses(EvaluationError, "at least 1", evaluate, engine, "guideline", episodes=0)
    with pytest.raises(AgentError):
        evaluate(engine, "nobody")
    refuses(EvaluationError, "no agent", evaluate_all, engine, [])


@pytest.mark.slow
def test_fairness_is_part_of_it(engine):
    one = evaluate(engine, "clinician", SIZE, SEED)
    found = one.to_json()["fairness"]
    assert found["patients"] == SIZE
    assert found["exact"]
    assert found["attributes"]["insurance"]["direct"]["nats"]["value"] > 0
    assert found["attributes"]["sex"]["direct"]["nats"]["value"] == pytest.approx(0, abs=1e-9)
    assert same(Evaluation.from_json(one.to_json()), one)
