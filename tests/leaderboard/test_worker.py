"""Workers: what they judge is what a judge says, and no submission is lost or judged twice, whatever happens to them."""

import datetime
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import databases
import pytest
import tiny
from made import drawn, judgement
from sqlalchemy import select
from sqlalchemy.exc import DataError
from tiny import BOARD, ENDED, MANIFEST, NAME, SECRET

from onco_gym.leaderboard import judging
from onco_gym.leaderboard.boards import write_season
from onco_gym.leaderboard.exchange import export_folder
from onco_gym.leaderboard.following import FollowedBoards, JudgedBoards
from onco_gym.leaderboard.judging import Judge
from onco_gym.leaderboard.replaying import replay_season
from onco_gym.leaderboard.serving import working
from onco_gym.leaderboard.store import Store
from onco_gym.leaderboard.tables import RESULTS
from onco_gym.leaderboard.worker import Worker

USUAL = dict(vars(judging))
SEASON = [(BOARD.name, BOARD.season.name)]
POLICIES = 3
"""Different policies; the others are copies."""


@pytest.fixture(params=databases.KINDS)
def url(request, tmp_path):
    return databases.make_url(request.param, tmp_path)


@pytest.fixture(scope="module", autouse=True)
def quick():
    with pytest.MonkeyPatch.context() as patch:
        tiny.quick(patch.setattr)
        yield


@pytest.fixture(scope="module")
def undisturbed():
    """What the judge says of each policy."""
    judge = Judge(BOARD, SECRET)
    return [digits(judge.judge({NAME: tiny.policy(seed)})) for seed in range(POLICIES)]


def digits(judgements):
    return json.dumps([one.to_json() for one in judgements])


def until(worker, store, ended):
    """Let a worker run until so many submissions have ended."""
    states = ("done", "refused", "failed")
    worker.run(stop=lambda: sum(store.states().get(("tiny", state), 0) for state in states) >= ended, idle=lambda: None)


def test_what_is_submitted_is_judged(url, undisturbed):
    store = Store(url)
    entries = [store.submit(tiny.roomy(), "alice", MANIFEST, {NAME: tiny.policy(seed)}) for seed in range(2)]
    refused = store.submit(tiny.roomy(), "alice", MANIFEST, {NAME: b"no policy"})
    until(Worker(store, [(BOARD, SECRET)]), store, 3)
    for seed, entry in enumerate(entries):
        assert store.entry(entry.id).state == "done"
        assert digits(store.entry(entry.id).judgements) == undisturbed[seed]
        steps = [step.text for step in store.journal(entry.id)]
        assert steps[:2] == ["received", "taken by a worker"]
        assert any(step.startswith("the policy runs behind limits, ") and step.endswith(f", {NAME}") for step in steps)
        assert steps.index(f"checking the policy, {NAME}") < steps.index(f"treating patients, {NAME}") < steps.index("judged")
    found = store.entry(refused.id)
    assert found.state == "refused"
    assert "not an ONNX" in found.reason
    assert "\n" not in found.reason


def test_an_error_of_ours_is_not_the_authors(tmp_path, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("the disk is on fire")

    monkeypatch.setattr("onco_gym.leaderboard.judging.Judge.judge", broken)
    store = Store(str(tmp_path / "store.sqlite"))
    entry = store.submit(BOARD, "alice", MANIFEST, {NAME: tiny.policy()})
    until(Worker(store, [(BOARD, SECRET)]), store, 1)
    found = store.entry(entry.id)
    assert (found.state, found.published) == ("failed", False)
    assert "on fire" not in found.reason
    assert "on fire" in caplog.text
    assert "Traceback" in caplog.text


def test_what_was_sent_after_the_secret_was_revealed_is_not_verified(tmp_path):
    """By a server that did not know that the season had ended. The worker sees it before the next submission."""
    store, boards = Store(str(tmp_path / "store.sqlite")), [(BOARD, SECRET)]
    worker = Worker(store, boards)
    until(worker, store, 0)
    before = store.submit(tiny.roomy(), "alice", MANIFEST, {NAME: tiny.policy()})
    revealed = datetime.datetime.now(datetime.UTC)
    ended = {"closed": revealed.date(), "secret": SECRET.hex(), "revealed": revealed}
    boards[0] = BOARD.model_copy(update={"season": BOARD.season.model_copy(update=ended)}), SECRET
    after = store.submit(tiny.roomy(), "bob", MANIFEST, {NAME: tiny.policy(1)})
    until(worker, store, 2)
    assert store.entry(before.id).state == "done"
    assert (store.entry(after.id).state, store.entry(after.id).reason) == ("refused", "it was sent after season 'one' had ended")


def test_a_worker_follows_its_boards(tmp_path):
    tiny.write_board(tmp_path / "tiny", BOARD.season)
    boards = JudgedBoards(FollowedBoards(tmp_path), None)
    assert list(boards) == []
    write_season(tmp_path / "tiny", BOARD.season.model_copy(update={"secret": SECRET.hex()}))
    assert [(board.season.ended, secret) for board, secret in boards] == [(True, SECRET)]


@pytest.mark.parametrize("environment", [NAME, "onco_gym/Breast-Dose-v0"])
def test_a_board_that_was_changed_in_its_season_does_not_stop_the_worker(tmp_path, caplog, environment):
    """Before, it had more patients, or another environment."""
    store = Store(str(tmp_path / "store.sqlite"))
    store.submit(BOARD, "alice", MANIFEST, {NAME: b"before"})
    store.finish(store.claim(SEASON), [judgement(drawn(50, 1), environment)])
    entry = store.submit(BOARD, "alice", MANIFEST, {NAME: tiny.policy()})
    until(Worker(store, [(BOARD, SECRET)]), store, 2)
    assert store.entry(entry.id).state == "failed"
    assert "cannot be kept" in caplog.text


def test_a_worker_that_is_interrupted_gives_its_submission_back(tmp_path):
    store = Store(str(tmp_path / "store.sqlite"))
    entry = store.submit(BOARD, "alice", MANIFEST, {NAME: tiny.policy()})

    def interrupt(stage, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Worker(store, [(BOARD, SECRET)]).attend([store.claim(SEASON)], interrupt)
    assert store.entry(entry.id).state == "waiting"
    assert store.claim(SEASON).attempt == 1


def test_an_attempt_that_ends_in_an_error_counts(tmp_path, monkeypatch):
    """Else a submission that the store cannot take would be judged for ever."""
    store = Store(str(tmp_path / "store.sqlite"))
    store.submit(BOARD, "alice", MANIFEST, {NAME: tiny.policy()})

    def broken(*_):
        raise DataError("", {}, ValueError("too long"))

    monkeypatch.setattr(store, "finish", broken)
    with pytest.raises(DataError):
        Worker(store, [(BOARD, SECRET)]).attend([store.claim(SEASON, lease=0.5)])
    time.sleep(0.5)
    assert store.claim(SEASON).attempt == 2


def test_a_worker_that_has_lost_its_submission_writes_nothing(tmp_path):
    store = Store(str(tmp_path / "store.sqlite"))
    entry = store.submit(BOARD, "alice", MANIFEST, {NAME: tiny.policy()})
    lost = store.claim(SEASON, lease=-1)
    other = store.claim(SEASON)
    assert Worker(store, [(BOARD, SECRET)]).attend([lost]) == []
    assert store.entry(entry.id).state == "working"
    assert Worker(store, [(BOARD, SECRET)]).attend([other])[0].state == "done"


def test_a_worker_gives_signs_of_life(tmp_path):
    store = Store(str(tmp_path / "store.sqlite"))
    store.submit(BOARD, "alice", MANIFEST, {NAME: tiny.policy()})
    worker, stages = Worker(store, [(BOARD, SECRET)], lease=1.0), []

    def slow(stage, done, total):
        if not stages:
            time.sleep(1.5)
            assert store.claim(SEASON) is None
        stages.append(stage)

    assert worker.attend([store.claim(SEASON, 1.0)], slow)[0].state == "done"


@pytest.mark.slow
def test_a_cluster_and_a_replay_give_the_same_digits(url, tmp_path):
    """Without what makes judging quick here, of which the processes of the cluster know nothing."""
    store = Store(url)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("shifts", "other_figures", "remembers", "ELSEWHERE"):
            patch.setattr(judging, name, USUAL[name])
        entries = [store.submit(tiny.roomy(), "alice", MANIFEST, {NAME: tiny.policy(seed)}) for seed in range(3)]
        refused = store.submit(tiny.roomy(), "alice", MANIFEST, {NAME: b"no policy"})
        until(Worker(store, [(BOARD, SECRET)], workers="ray"), store, 4)
        judge = Judge(BOARD, SECRET)
        for seed, entry in enumerate(entries):
            assert digits(store.entry(entry.id).judgements) == digits(judge.judge({NAME: tiny.policy(seed)}))
        assert store.entry(refused.id).state == "refused"
        tiny.write_board(tmp_path / "tiny", ENDED.season)
        published = export_folder(store, tmp_path / "tiny", ENDED)
        for workers in ("local", "ray"):
            found = replay_season(tmp_path / "tiny", workers)
            assert [one.differences for one in found] == [()] * published
    assert published >= 1


# ------------------------------------------------------------------------------------------------ killed workers


def start(url):
    command = [sys.executable, Path(tiny.__file__), url, "1.0"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def killed(url, submissions, kills, pause, seed=0):
    """Submit, and kill -9 the worker at random moments of its work. The store, and the entries when all are done."""
    store, moments = Store(url), random.Random(seed)
    made = [
        store.submit(tiny.roomy(), "alice", MANIFEST, {NAME: tiny.policy(number % POLICIES, number)})
        for number in range(submissions)
    ]
    worker = start(url)
    try:
        while store.states().get(("tiny", "done"), 0) < submissions:
            if kills and "working" in {state for _, state in store.states()}:
                time.sleep(moments.uniform(0, pause))
                os.kill(worker.pid, signal.SIGKILL)
                worker.wait()
                worker, kills = start(url), kills - 1
            assert worker.poll() is None
            assert not {state for _, state in store.states()} & {"refused", "failed"}
            time.sleep(0.05)
    finally:
        worker.kill()
        worker.wait()
    assert kills == 0
    found = [store.entry(entry.id) for entry in made]
    return store, found


def check_none_is_lost_or_double(store, found, undisturbed):
    assert [entry.state for entry in found] == ["done"] * len(found)
    assert [digits(entry.judgements) for entry in found] == [undisturbed[number % POLICIES] for number in range(len(found))]
    with store.reading() as connection:
        assert sorted(connection.execute(select(RESULTS.c.submission)).scalars()) == sorted(entry.id for entry in found)
    for entry in found:
        steps = [step.text for step in store.journal(entry.id)]
        assert [steps.count(text) for text in ("received", "judged")] == [1, 1]
    best = [entry.published for entry in found]
    assert best[0]
    assert sum(best) <= POLICIES  # a copy is no better than what it is a copy of


def test_killed_workers_lose_nothing(tmp_path, undisturbed):
    store, found = killed(databases.make_url("sqlite", tmp_path), 6, 3, 1.0)
    check_none_is_lost_or_double(store, found, undisturbed)


@pytest.mark.slow
def test_many_killed_workers_lose_nothing(url, undisturbed):
    store, found = killed(url, 50, 20, 6.0)
    check_none_is_lost_or_double(store, found, undisturbed)


def test_a_worker_that_is_terminated_gives_its_submission_back(tmp_path):
    url = databases.make_url("sqlite", tmp_path)
    store = Store(url)
    entry = store.submit(BOARD, "alice", MANIFEST, {NAME: tiny.policy()})
    with working(url, [(BOARD, SECRET)], 1):
        while store.entry(entry.id).state == "waiting":
            time.sleep(0.05)
    assert store.entry(entry.id).state == "waiting"
    assert [step.text for step in store.journal(entry.id)][-1] == "given back by its worker"
