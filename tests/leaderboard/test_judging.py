"""Judging: what an entry's figures mean, and that whoever judges again gets the same digits."""

import dataclasses
import datetime
import json
import re

import numpy as np
import pytest
from conftest import ROOT, refuses
from databases import KINDS, make_url
from policy_files import file, node

from onco_gym.agents.protocol import AgentError
from onco_gym.leaderboard.boards import BoardError, read_board, write_season
from onco_gym.leaderboard.entries import Entry, digest_of, write_entry
from onco_gym.leaderboard.exchange import import_folder
from onco_gym.leaderboard.judgements import Judgement, JudgementError
from onco_gym.leaderboard.judging import Judge
from onco_gym.leaderboard.manifests import Manifest
from onco_gym.leaderboard.metrics import METRICS
from onco_gym.leaderboard.processes import SandboxError
from onco_gym.leaderboard.replaying import replay_entries, replay_season
from onco_gym.leaderboard.sandbox import FAILED
from onco_gym.leaderboard.seasons import find_secret
from onco_gym.leaderboard.store import Store

NAME = "onco_gym/NSCLC-v0"
BOARD = read_board("nsclc-2026").model_copy(update={"patients": 64})
SECRET = find_secret(read_board("nsclc-2026"), None)
PATH = ROOT / "baselines" / "policies" / "NSCLC-v0" / "maskable_ppo-0.onnx"
POLICY = PATH.read_bytes()


@pytest.fixture(scope="module")
def judge():
    return Judge(BOARD, SECRET)


@pytest.fixture(scope="module")
def found(judge):
    """The judgement of a policy file."""
    return judge.judge({NAME: POLICY})[0]


def digits(judgement):
    return json.dumps(judgement.to_json())


def test_the_scale_of_the_score_is_random_and_the_planner(judge):
    usual, random = (judge.judge(name)[0] for name in ("guideline", "random"))
    assert random.figures["score"].value == 0
    assert usual.figures["gain"] == (0, 0, 0)
    assert 70 < usual.figures["score"].value < 100
    assert usual.reference.value > usual.returns.mean()
    assert usual.scores.mean() == pytest.approx(usual.figures["score"].value, abs=1e-3)
    assert {one.score.value for one in random.populations} == {0}


def test_a_policy_has_every_figure_of_the_board(found):
    assert set(BOARD.metrics) == set(METRICS) == set(found.figures)
    assert all(np.isfinite(one.value) and one.low <= one.value <= one.high for one in found.figures.values())
    assert found.figures["fairness"].value == max(one.value for one in found.unfairness.values())
    assert found.figures["robustness"].value == min(one.score.value for one in found.populations)
    assert {one.name for one in found.populations} == {
        "older",
        "frail",
        "rare biomarkers",
        "era before testing",
        "other figures",
    }
    assert 0 < found.figures["computing_ug"].value < 1e3
    assert {"ecog: 1", "sex: female"} <= {one.name for one in found.subgroups}


def test_the_same_policy_has_the_same_digits_whoever_judges_it(judge, found):
    assert digits(judge.judge({NAME: POLICY})[0]) == digits(found)
    assert digits(Judge(BOARD, SECRET).judge({NAME: POLICY})[0]) == digits(found)
    assert digits(Judgement.from_json(json.loads(digits(found)))) == digits(found)


def test_the_sandbox_changes_no_digit(judge, found):
    """The same policy as an agent of this process, of which no work is counted."""
    here = judge.judge(str(PATH))[0]
    work = {"computing_ug": found.figures["computing_ug"]}
    assert dataclasses.replace(here, figures=here.figures | work).to_json() == found.to_json()


def test_a_season_has_patients_of_its_own_and_so_has_the_public(found):
    public = Judge(BOARD).judge({NAME: POLICY})[0]
    (other,) = Judge(BOARD, SECRET[::-1]).stamps()
    assert len({one.cohort_digest for one in (found.stamp, public.stamp, other)}) == 3
    assert (public.stamp.split, found.stamp.split) == ("validation", "own")


def test_policies_that_do_not_fit_the_board_are_refused(judge):
    refuses(JudgementError, "expected", judge.judge, {"onco_gym/Breast-v0": POLICY})
    refuses(AgentError, "takes float32 of shape", judge.judge, {NAME: breast()})
    refuses(AgentError, "there is no agent", judge.judge, "nobody")


def breast():
    return (ROOT / "baselines" / "policies" / "Breast-v0" / "maskable_ppo-0.onnx").read_bytes()


@pytest.fixture(scope="module")
def entry(found):
    return Entry(
        id="0" * 12,
        board=BOARD.name,
        season=BOARD.season.name,
        account="someone",
        kind="verified",
        manifest=Manifest(name="Mine", authors=["Me"]),
        submitted=datetime.datetime(2026, 11, 2, tzinfo=datetime.UTC),
        policies={NAME: digest_of(POLICY)},
        agent="",
        state="done",
        reason="",
        published=True,
        judgements=(found,),
    )


def test_a_replay_finds_every_figure_again_and_any_that_was_changed(entry, found):
    (same,) = replay_entries(BOARD, SECRET, [entry], [{NAME: POLICY}])
    assert same.differences == ()
    better = dataclasses.replace(found, figures={**found.figures, "gain": found.figures["gain"]._replace(value=9.0)})
    richer = dataclasses.replace(found, returns=found.returns + np.float32(1e-6))
    forged = [dataclasses.replace(entry, judgements=(one,)) for one in (better, richer)]
    first, second = replay_entries(BOARD, SECRET, forged, [{NAME: POLICY}] * 2)
    assert "figures, gain, value: 9.0 was published" in first.differences[0]
    assert "returns" in second.differences[0]
    (refused,) = replay_entries(BOARD, SECRET, [entry], [{NAME: breast()}])
    assert "it is refused now" in refused.differences[0]


def test_a_replay_needs_no_more_walls_than_there_are(judge, monkeypatch):
    """Its patients are public, so it runs on every system."""
    monkeypatch.setattr("onco_gym.leaderboard.sandbox.ENOUGH", ())
    refuses(SandboxError, "too weak here for secret patients", judge.judge, {NAME: POLICY})
    refuses(AgentError, "not an ONNX", Judge(BOARD, SECRET, revealed=True).judge, {NAME: b"no policy"})


def test_why_a_policy_fails_is_told_when_patients_are_public(judge, entry):
    """Finite where all is zero, but not where a patient is."""
    made = node("MatMul", "observation,weights", "made")
    failing = file(made, node("Exp", "made", "a"), node("Exp", "a", "b"), node("Exp", "b", "scores"))
    refuses(AgentError, f"^{re.escape(FAILED)}$", judge.judge, {NAME: failing})
    refuses(AgentError, "not finite", Judge(BOARD).judge, {NAME: failing})
    (replayed,) = replay_entries(BOARD, SECRET, [entry], [{NAME: failing}])
    assert "not finite" in replayed.differences[0]


@pytest.fixture
def folder(entry, tmp_path):
    """A board with the entry."""
    made = tmp_path / BOARD.name
    made.mkdir()
    text = (ROOT / "leaderboards" / BOARD.name / "board.toml").read_text()
    (made / "board.toml").write_text(text.replace("patients = 2000", "patients = 64"))
    write_entry(made, entry, {NAME: POLICY})
    return made


def test_a_board_folder_is_replayed(entry, folder):
    (found,) = replay_season(folder)
    assert (found.entry.id, found.differences) == (entry.id, ())


def test_an_earlier_season_is_replayed_after_the_next_has_begun(entry, folder):
    later = BOARD.season.model_copy(update={"name": "later", "secret": None})
    write_season(folder, later)
    (found,) = replay_season(folder, season=BOARD.season.name)
    assert (found.entry.id, found.differences) == (entry.id, ())
    refuses(BoardError, "season 'later' of .* has not ended", replay_season, folder)


@pytest.mark.slow
def test_a_replay_on_ray_gives_the_same_digits(folder):
    (found,) = replay_season(folder, workers="ray")
    assert found.differences == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_from_a_store_gives_the_same_digits(kind, folder, tmp_path):
    store = Store(make_url(kind, tmp_path))
    import_folder(store, folder, BOARD)
    (kept,) = store.entries(BOARD.name)
    (found,) = replay_entries(BOARD, SECRET, [store.entry(kept.id)], [store.policies(kept.id)])
    store.close()
    assert found.differences == ()
