"""The store, on SQLite and on PostgreSQL: what is kept, who may write, and how many submissions an account may make."""

import datetime
import json
import multiprocessing
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import databases
import numpy as np
import pytest
from conftest import refuses
from made import drawn, judgement
from made import entry as entry_made
from paged import exploration
from paged import judged as judged_values
from sqlalchemy import update
from tiny import BOARD, ENDED, MANIFEST, NAME, SECRET, roomy, write_board

from onco_gym.foundation.intervals import Interval
from onco_gym.foundation.results import to_plain
from onco_gym.leaderboard.boards import BoardError
from onco_gym.leaderboard.database import DatabaseError, default_url
from onco_gym.leaderboard.entries import EntryError, read_entries, write_entry
from onco_gym.leaderboard.exchange import export_folder, import_folder
from onco_gym.leaderboard.metrics import METRICS
from onco_gym.leaderboard.pages.sources import FolderSource
from onco_gym.leaderboard.publishing import Published
from onco_gym.leaderboard.store import ATTEMPTS, CapError, LeaseError, Store, SubmissionError, check_open
from onco_gym.leaderboard.tables import SUBMISSIONS
from onco_gym.leaderboard.tokens import AccountError, add_account, find_account, list_accounts, revoke_account

SEASON = [(BOARD.name, BOARD.season.name)]


@pytest.fixture(params=databases.KINDS)
def url(request, tmp_path):
    return databases.make_url(request.param, tmp_path)


@pytest.fixture
def store(url):
    store = Store(url)
    yield store
    store.close()


def submitted(store, content=b"a policy", account="alice", board=None, **options):
    return store.submit(board or roomy(), account, MANIFEST, {NAME: content}, **options)


def judged(store, score, account="alice", seed=1):
    """A submission that came to this mean score."""
    entry = submitted(store, f"{account} {score} {seed}".encode(), account)
    claim = store.claim(SEASON)
    assert claim.entry.id == entry.id
    return store.finish(claim, [judgement(drawn(score, seed), NAME)])


def texts(store, entry):
    return [step.text for step in store.journal(entry.id)]


def behind(store, days):
    """Let all submissions so far have been made some days ago."""
    with store.writing() as connection:
        earlier = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
        connection.execute(update(SUBMISSIONS).values(submitted=earlier))


# ------------------------------------------------------------------------------------------------ a submission's life


def test_a_submission_is_kept_as_it_was_sent(store):
    entry = submitted(store)
    assert (entry.state, entry.kind, entry.account, entry.manifest) == ("waiting", "verified", "alice", MANIFEST)
    assert abs(entry.submitted - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(seconds=60)
    assert store.policies(entry.id) == {NAME: b"a policy"}
    assert to_plain(store.entry(entry.id)) == to_plain(entry)
    assert texts(store, entry) == ["received"]
    assert store.entry("0" * 12) is None


def test_a_judged_submission_has_its_figures_and_a_journal(store):
    entry = submitted(store)
    claim = store.claim(SEASON)
    assert store.entry(entry.id).state == "working"
    assert store.claim(SEASON) is None
    store.log(claim, "treating patients")
    values = judgement(drawn(50, 1), NAME)
    ended = store.finish(claim, [values])
    assert to_plain(store.entry(entry.id)) == to_plain(ended)
    assert ended.state == "done"
    assert ended.published
    assert to_plain(ended.judgements[0]) == to_plain(values)
    assert texts(store, entry) == ["received", "taken by a worker", "treating patients", "judged", "published"]
    assert not any(step.at.microsecond for step in store.journal(entry.id))
    assert store.claim(SEASON) is None


def test_journeys_are_kept_for_entries_that_are_published(store, tmp_path):
    values = judgement(drawn(50, 1), NAME)
    journeys = [exploration(values.stamp)]
    good, same = submitted(store, b"1"), submitted(store, b"2")
    for entry in (good, same):
        store.finish(store.claim(SEASON), [values], journeys)
        assert to_plain(store.explorations(entry.id)[0]) == to_plain(journeys[0])
    published = Published(store, [BOARD])
    assert len(published.explorations(good.id)) == 1
    assert published.explorations(same.id) == ()
    export_folder(store, tmp_path, ENDED)
    other = Store(str(tmp_path / "other.sqlite"))
    import_folder(other, tmp_path, BOARD)
    assert to_plain(other.explorations(good.id)[0]) == to_plain(journeys[0])


def test_a_refused_submission_says_why(store):
    entry = submitted(store)
    store.refuse(store.claim(SEASON), "it has a Loop")
    found = store.entry(entry.id)
    assert (found.state, found.reason, found.published, found.judgements) == ("refused", "it has a Loop", False, ())
    assert texts(store, entry)[-1] == "refused: it has a Loop"


def test_the_oldest_submission_of_known_seasons_is_taken_first(store):
    first, second = submitted(store, b"1"), submitted(store, b"2")
    submitted(store, b"3", board=roomy().model_copy(update={"name": "another"}))
    assert [store.claim(SEASON).entry.id for _ in range(2)] == [first.id, second.id]
    assert store.claim(SEASON) is None


def test_what_authors_ran_themselves_is_not_for_workers(store):
    entry = store.submit(BOARD, "local", MANIFEST, {}, "self-reported", "module:Agent")
    assert store.claim(SEASON) is None
    assert store.take(entry.id).entry.agent == "module:Agent"


def test_a_submission_must_fit_its_board(store):
    refuses(SubmissionError, "expected .'onco_gym/NSCLC-Dose-v0'", store.submit, BOARD, "alice", MANIFEST, {})
    refuses(SubmissionError, "there are policies", store.submit, BOARD, "alice", MANIFEST, {NAME: b"1", "other": b"1"})
    refuses(SubmissionError, "has 0 bytes", submitted, store, b"")
    refuses(SubmissionError, "expected 1 to 8388608", submitted, store, bytes(8 * 2**20 + 1))
    assert store.count(BOARD.name) == 0


def test_a_season_takes_submissions_from_its_first_to_its_last_day():
    check_open(BOARD)
    today = datetime.datetime.now(datetime.UTC).date()
    day = datetime.timedelta(days=1)
    for changes, said in (
        ({"opened": today + day}, "begins on"),
        ({"closed": today - day}, "is over"),
        ({"secret": SECRET.hex()}, "is over"),
    ):
        refuses(SubmissionError, said, check_open, BOARD.model_copy(update={"season": BOARD.season.model_copy(update=changes)}))
    check_open(BOARD.model_copy(update={"season": BOARD.season.model_copy(update={"closed": today})}))


# ------------------------------------------------------------------------------------------------ leases


def test_a_worker_that_dies_loses_its_submission_to_another(store):
    entry = submitted(store)
    dead = store.claim(SEASON, lease=-1)
    again = store.claim(SEASON)
    assert (again.entry.id, again.attempt) == (entry.id, 2)
    for late in (store.renew, store.release, lambda claim: store.log(claim, "?"), lambda claim: store.refuse(claim, "?")):
        refuses(LeaseError, "another worker", late, dead)
    refuses(LeaseError, "another worker", store.finish, dead, [judgement(drawn(1, 1), NAME)])
    assert store.finish(again, [judgement(drawn(50, 1), NAME)]).published
    assert texts(store, entry) == ["received", "taken by a worker", "taken by a worker, attempt 2", "judged", "published"]


def test_a_sign_of_life_keeps_a_submission(store):
    submitted(store)
    claim = store.claim(SEASON, lease=-1)
    store.renew(claim)
    assert store.claim(SEASON) is None


def test_a_submission_that_was_given_back_waits_again(store):
    entry = submitted(store)
    for _ in range(2 * ATTEMPTS):  # nobody died of it
        store.release(store.claim(SEASON))
    assert store.entry(entry.id).state == "waiting"
    assert store.claim(SEASON).attempt == 1


def test_a_submission_of_which_workers_die_is_given_up(store):
    entry = submitted(store)
    for _ in range(ATTEMPTS):
        assert store.claim(SEASON, lease=-1).entry.id == entry.id
    assert store.claim(SEASON) is None
    assert store.entry(entry.id).state == "failed"
    assert submitted(store).id != entry.id  # it was no fault of the author's


# ------------------------------------------------------------------------------------------------ the Ladder


def test_a_score_is_published_only_if_it_is_better_by_more_than_noise(store):
    first = judged(store, 50)
    assert first.published
    same = judged(store, 50, seed=2)
    assert not same.published
    assert "by more than noise" in same.reason
    assert texts(store, same)[-1] == f"not published: {same.reason}"
    assert judged(store, 60).published
    assert not judged(store, 55).published
    assert judged(store, 10, account="bob").published


def test_what_authors_ran_themselves_does_not_decide_on_what_we_ran(store):
    own = store.submit(BOARD, "alice", MANIFEST, {NAME: b"own"}, "self-reported")
    store.finish(store.take(own.id), [judgement(np.full(3, 99.0), NAME)])
    assert judged(store, 50).published


# ------------------------------------------------------------------------------------------------ the same again, and caps


def test_the_same_policies_sent_again_are_the_same_submission(store):
    first = submitted(store)
    assert submitted(store).id == first.id
    assert submitted(store, account="bob").id != first.id
    assert submitted(store, kind="self-reported").id != first.id
    assert submitted(store, b"other").id != first.id
    assert store.count(BOARD.name, BOARD.season.name, "alice") == 3


def test_caps_by_day_and_by_month(store):
    board = roomy(per_day=2)
    board = board.model_copy(update={"caps": board.caps.model_copy(update={"per_month": 3})})
    first = submitted(store, b"1", board=board)
    submitted(store, b"2", board=board)
    refuses(CapError, "alice has made 2 submissions to tiny today", submitted, store, b"3", board=board)
    assert submitted(store, b"1", board=board).id == first.id  # nothing new
    submitted(store, b"3", "bob", board=board)
    submitted(store, b"3", board=board, capped=False)
    behind(store, 2)
    refuses(CapError, "3 submissions to tiny in 30 days", submitted, store, b"4", board=board)
    behind(store, 30)
    submitted(store, b"4", board=board)


def test_failures_of_ours_do_not_count(store):
    board = roomy(per_day=1)
    submitted(store, b"1", board=board)
    store.fail(store.claim(SEASON), "the disk is on fire")
    submitted(store, b"2", board=board)
    store.refuse(store.claim(SEASON), "it has a Loop")
    refuses(CapError, "alice has made 1 submissions to tiny today", submitted, store, b"3", board=board)


def test_eight_clients_at_once(store, url):
    board, stores = roomy(per_day=5), [Store(url) for _ in range(8)]

    def client(number):
        made = 0
        for place in range(4):
            try:
                submitted(stores[number], f"{number} {place}".encode(), board=board)
                made += 1
            except CapError:
                pass
        return made

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(client, range(8))) == 5
        same = threads.map(lambda one: submitted(one, b"the same", "bob", board=board).id, stores)
        assert len(set(same)) == 1
        taken = [claim.entry.id for claim in threads.map(lambda one: one.claim(SEASON), stores) if claim is not None]
    assert len(taken) == len(set(taken)) == 6
    assert store.count(BOARD.name) == 6


# ------------------------------------------------------------------------------------------------ databases


def open_store(url, done):
    Store(url)
    done.put(True)


def test_stores_can_be_opened_at_once(url):
    context = multiprocessing.get_context("fork")
    done = context.SimpleQueue()
    processes = [context.Process(target=open_store, args=(url, done)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    submitted(Store(url))


def test_what_was_kept_is_there_when_a_store_is_opened_again(store, url):
    entry = judged(store, 50)
    assert to_plain(Store(url).entry(entry.id)) == to_plain(entry)


def test_a_store_of_a_newer_version_is_left_alone(tmp_path):
    path = tmp_path / "store.sqlite"
    Store(str(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    refuses(DatabaseError, "newer version", Store, str(path))


def test_what_is_no_store(tmp_path):
    (tmp_path / "text").write_text("not a database, and longer than a header of one would be" * 10)
    refuses(DatabaseError, "not a database", Store, str(tmp_path / "text"))
    refuses(DatabaseError, "unable to open", Store, str(tmp_path / "absent" / "store.sqlite"))
    refuses(DatabaseError, "not of a known kind", Store, "mysql://host/name")
    refuses(DatabaseError, "cannot be opened", Store, "postgresql+psycopg://nobody:secret@/nothing?host=/nowhere")
    with pytest.raises(DatabaseError) as caught:
        Store("postgresql+psycopg://nobody:secret@/nothing?host=/nowhere")
    assert "secret" not in str(caught.value)


def test_the_store_of_a_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    Store(default_url()).close()
    assert (tmp_path / "onco_gym" / "leaderboard.sqlite").is_file()


# ------------------------------------------------------------------------------------------------ accounts


def test_a_token_is_valid_until_it_is_revoked(store):
    token = add_account(store, "alice")
    assert find_account(store, token) == "alice"
    for wrong in ("", token[:-1], token + "x", token.swapcase(), "x" * 10_000, "\ud800", "' OR 1=1 --"):
        assert find_account(store, wrong) is None
    refuses(AccountError, "revoke that first", add_account, store, "alice")
    revoke_account(store, "alice")
    assert find_account(store, token) is None
    assert not list_accounts(store)[0].active
    again = add_account(store, "alice")
    assert again != token
    assert find_account(store, again) == "alice"
    assert find_account(store, token) is None
    refuses(AccountError, "no account 'bob'", revoke_account, store, "bob")


@pytest.mark.parametrize("name", ["", "Alice", "a b", "../x", "<b>", "local", "a" * 41, "a\n"])
def test_names_of_accounts(tmp_path, name):
    refuses(AccountError, "cannot be the name", add_account, Store(str(tmp_path / "store.sqlite")), name)


def test_the_store_does_not_know_tokens(tmp_path):
    path = tmp_path / "store.sqlite"
    token = add_account(Store(str(path)), "alice")
    assert all(token.encode() not in file.read_bytes() for file in tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ what everybody sees


def test_everybody_sees_scores_that_are_published_and_no_single_patient(store):
    good, same = judged(store, 50), judged(store, 50, seed=2)
    published = Published(store, [BOARD])
    seen, all_digits = (one.judgements[0].figures["score"].value for one in (published.entry(good.id), good))
    assert seen == round(all_digits, 1) != all_digits
    assert len(published.entry(good.id).judgements[0].returns) == 0
    assert published.entry(same.id).judgements == ()
    assert published.entry(same.id).state == "done"
    assert published.explorations(same.id) == ()
    assert published.entry("no id; DROP TABLE submissions") is None
    standings = published.standings("tiny")
    assert [(row.entry.id, row.rank, row.submissions) for row in standings.rows] == [(good.id, (1, 1), 2)]
    assert len(standings.rows[0].entry.judgements[0].returns) == 0
    assert [one.id for one in published.entries("tiny", "alice")] == [same.id, good.id]
    assert len(Published(store, [ENDED]).entry(good.id).judgements[0].returns) == len(good.judgements[0].returns)


def test_figures_are_rounded_while_patients_are_secret(store):
    entry = submitted(store)
    (values,) = judged_values(entry_made(1, drawn(50, 1))).judgements
    few = [replace(one, patients=patients) for one, patients in zip(values.subgroups, (49, 50), strict=True)]
    values = replace(values, subgroups=few, decisions=3.14159, terms={"outcome": Interval(1.23456, 1.2, 1.3)})
    store.finish(store.claim(SEASON), [replace(values, stamp=replace(values.stamp, environment=NAME))])
    for board, digits in ((BOARD, True), (ENDED, False)):
        published = Published(store, [board])
        ((found,), (row,)) = published.entry(entry.id).judgements, published.standings("tiny").rows
        for figures in (found.figures, row.figures, row.entry.judgements[0].figures):
            for name, metric in METRICS.items():
                if name in figures:
                    expected = metric.rounded(values.figures[name]) if digits else values.figures[name]
                    assert figures[name] == pytest.approx(expected, abs=0 if digits else 1e-9), name
        assert [one.patients for one in found.subgroups] == ([50] if digits else [49, 50])
        assert found.decisions == (3.1 if digits else 3.14159)
        assert found.terms["outcome"].value == (1.235 if digits else 1.23456)
    assert METRICS["grade3"].rounded(Interval(0.12345, 0.1, 0.2)).value == 0.12


def test_standings_follow_the_store(store):
    published = Published(store, [BOARD])
    assert published.standings("tiny").rows == ()
    judged(store, 50)
    wait_for(lambda: [row.entry.account for row in published.standings("tiny").rows] == ["alice"])
    judged(store, 70, account="bob")
    wait_for(lambda: [row.entry.account for row in published.standings("tiny").rows] == ["bob", "alice"])
    submitted(store, b"waits")
    wait_for(lambda: published.standings("tiny").submissions == 3)


def wait_for(happens):
    """Standings are made beside the reader; the first that is asked may still get the last ones."""
    for _ in range(50):
        if happens():
            return
    pytest.fail("it did not happen")


# ------------------------------------------------------------------------------------------------ folders


def test_published_entries_go_to_a_folder_and_come_back(store, tmp_path, url):
    good, same = judged(store, 50), judged(store, 50, seed=2)
    submitted(store, b"waits")
    assert export_folder(store, tmp_path / "board", ENDED) == 1
    found = {one.id: one for one in read_entries(tmp_path / "board", "tiny")}
    assert to_plain(found[good.id]) == to_plain(good)
    import_folder(store, tmp_path / "board", BOARD)  # it is there already
    assert store.count("tiny") == 3
    other = Store(str(tmp_path / "other.sqlite"))
    for _ in range(2):
        import_folder(other, tmp_path / "board", BOARD)
        assert to_plain(other.entry(good.id)) == to_plain(good)
    assert other.policies(good.id) == store.policies(good.id)
    assert other.claim(SEASON) is None
    assert set(found) == {good.id, same.id}
    assert [Published(one, [ENDED]).standings("tiny").submissions for one in (store, other)] == [3, 2]


def test_a_folder_counts_what_is_not_published_and_says_nothing_of_it(store, tmp_path):
    good, same = judged(store, 50), judged(store, 50, seed=2)
    refused = submitted(store, b"a loop")
    store.refuse(store.claim(SEASON), "it has a Loop")
    folder = tmp_path / "tiny"
    write_board(folder, ENDED.season)
    export_folder(store, folder, ENDED)
    files = {path.stem: path.read_text() for path in (folder / "entries").glob("*.json")}
    assert set(files) == {good.id, same.id, refused.id}
    for one in (same, refused):
        told = {name: value for name, value in json.loads(files[one.id]).items() if value}
        assert told.keys() == {"id", "board", "season", "account", "kind", "manifest", "submitted", "state"}
        assert (told["account"], told["manifest"]["name"]) == ("alice", "not published")
        assert len(files[one.id]) < 500
    assert [path.stem for path in (folder / "entries" / "policies").iterdir()] == [good.policies[NAME]]
    (row,) = FolderSource(folder).standings("tiny").rows
    assert (row.entry.id, row.submissions) == (good.id, 3)


def test_a_season_that_is_open_does_not_go_to_a_folder(store, tmp_path):
    judged(store, 50)
    refuses(BoardError, "season 'one' of tiny has not ended: .* single patients", export_folder, store, tmp_path, BOARD)
    assert not list(tmp_path.glob("entries/*"))


def test_a_folder_that_changes_is_read_again(store, tmp_path):
    good = judged(store, 50)
    other = Store(str(tmp_path / "other.sqlite"))
    submitted(other, b"made here")
    write_entry(tmp_path, good, store.policies(good.id))
    import_folder(other, tmp_path, BOARD)
    write_entry(tmp_path, replace(good, reason="another"), {})
    import_folder(other, tmp_path, BOARD)
    assert other.entry(good.id).reason == "another"
    (tmp_path / "entries" / f"{good.id}.json").unlink()
    import_folder(other, tmp_path, BOARD)
    assert other.entry(good.id) is None
    assert other.count("tiny") == 1


def test_an_agent_of_ones_own_does_not_go_to_a_folder(store, tmp_path):
    """Whoever reads the folder would refuse it: a name of one's own can make others run anything."""
    entry = store.submit(BOARD, "local", MANIFEST, {}, "self-reported", "module:Agent")
    store.finish(store.take(entry.id), [judgement(drawn(50, 1), NAME)])
    export_folder(store, tmp_path, ENDED)
    (found,) = read_entries(tmp_path, "tiny")
    assert (found.id, found.kind, found.agent) == (entry.id, "self-reported", "")


def test_an_entry_that_would_be_judged_here_is_not_imported(store, tmp_path):
    good = judged(store, 50)
    write_entry(tmp_path, replace(good, state="waiting", judgements=()), store.policies(good.id))
    other = Store(str(tmp_path / "other.sqlite"))
    refuses(EntryError, "is waiting, expected a submission that has ended", import_folder, other, tmp_path, BOARD)
    assert other.claim(SEASON) is None


def test_an_entry_of_another_board_is_not_imported(store, tmp_path):
    good = judged(store, 50)
    write_entry(tmp_path, good, store.policies(good.id))
    another = BOARD.model_copy(update={"name": "another"})
    refuses(EntryError, "entry .* of tiny, expected .* of another", import_folder, store, tmp_path, another)
