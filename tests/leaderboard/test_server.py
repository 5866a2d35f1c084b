"""The server over real connections: what it answers, whom it lets in, and what hostile requests come to."""

import base64
import json
import pickle
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
import tiny
import uvicorn
from made import drawn, judgement
from tiny import BOARD, MANIFEST, NAME

from onco_gym.leaderboard import client as clients
from onco_gym.leaderboard import server as serving
from onco_gym.leaderboard.boards import write_season
from onco_gym.leaderboard.bodies import LARGEST
from onco_gym.leaderboard.entries import Entry, digest_of
from onco_gym.leaderboard.following import FollowedBoards
from onco_gym.leaderboard.limits import Limiter
from onco_gym.leaderboard.manifests import Manifest
from onco_gym.leaderboard.metrics import METRICS
from onco_gym.leaderboard.server import make_app
from onco_gym.leaderboard.store import Store
from onco_gym.leaderboard.tokens import add_account, revoke_account

SEASON = [(BOARD.name, BOARD.season.name)]
SUBMISSIONS = "/api/boards/tiny/submissions"
HOSTILE = "<script>alert(1)</script>'; DROP TABLE submissions; --"


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "store.sqlite"))


@contextmanager
def listening(store, boards):
    """The address of a server that listens on a free port."""
    config = uvicorn.Config(make_app(store, boards), port=0, log_config=None, ws="none")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    host, port = running.servers[0].sockets[0].getsockname()
    yield f"http://{host}:{port}"
    running.should_exit = True
    thread.join()


@pytest.fixture
def address(store):
    ended = BOARD.model_copy(update={"name": "ended", "season": BOARD.season.model_copy(update={"secret": tiny.SECRET.hex()})})
    with listening(store, [tiny.roomy(3), ended]) as address:
        yield address


@pytest.fixture
def token(store):
    return add_account(store, "alice")


@pytest.fixture
def client(address, token):
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        yield client


def body(content=b"a policy", manifest=MANIFEST, **more):
    policies = {NAME: base64.b64encode(content).decode()}
    return {"manifest": manifest.model_dump(mode="json"), "policies": policies, **more}


def with_manifest(**changes):
    return json.dumps({**body(), "manifest": {**MANIFEST.model_dump(mode="json"), **changes}}).encode()


def judged(store, score, account="alice"):
    store.submit(tiny.roomy(), account, MANIFEST, {NAME: f"{account} {score}".encode()})
    return finished(store, score).id


def finished(store, score):
    """The submission that waits, judged."""
    made = judgement(drawn(score, 1), NAME)
    return store.finish(store.claim(SEASON), [replace(made, figures=dict.fromkeys(METRICS, made.figures["score"]))])


def refused(answer, status, said):
    """An answer that is one clear line."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert said in error
    assert "\n" not in error
    assert "Traceback" not in error
    assert len(error) < 500


# ------------------------------------------------------------------------------------------------ answers


def test_a_submission_and_its_log(client, store):
    answer = client.post(SUBMISSIONS, json=body())
    assert answer.status_code == 202
    sent = answer.json()
    assert (sent["state"], sent["account"], sent["board"]) == ("waiting", "alice", "tiny")
    assert store.policies(sent["id"]) == {NAME: b"a policy"}
    again = client.post(SUBMISSIONS, json=body())  # a replayed request
    assert again.json() == sent
    assert store.count("tiny") == 1
    finished(store, 50)
    log = client.get(f"/api/entries/{sent['id']}/log").json()
    assert (log["state"], log["published"]) == ("done", True)
    assert [step["text"] for step in log["steps"]] == ["received", "taken by a worker", "judged", "published"]


def test_standings_and_entries_as_json(client, store):
    good, same, best = judged(store, 50), judged(store, 49), judged(store, 70, "bob")
    answer = client.get("/api/boards/tiny").json()
    assert (answer["submissions"], answer["accounts"], answer["total"]) == (3, 2, 2)
    assert [(row["id"], row["place"]) for row in answer["rows"]] == [(best, "1"), (good, "2")]
    assert answer["rows"][0]["figures"]["score"]["value"] == pytest.approx(70, abs=5)
    assert answer["rows"][0]["efficient"] is None  # marked on multi-objective boards only
    assert [row["id"] for row in client.get("/api/boards/tiny?start=1&most=1").json()["rows"]] == [good]
    own = client.get(f"/api/boards/tiny?most=1&entry={good}").json()
    assert (own["total"], [(row["id"], row["place"]) for row in own["rows"]]) == (1, [(good, "2")])
    assert client.get(f"/api/boards/tiny?entry={same}").json()["rows"] == []
    listed = client.get("/api/boards/tiny/entries").json()
    assert (listed["total"], [one["id"] for one in listed["entries"]]) == (3, [best, same, good])
    listed = client.get("/api/boards/tiny/entries?account=alice&most=1").json()
    assert (listed["total"], [one["id"] for one in listed["entries"]]) == (2, [same])
    entry = client.get(f"/api/entries/{good}").json()
    assert entry["judgements"][0]["figures"]["score"]["value"] == pytest.approx(50, abs=5)
    assert client.get(f"/api/entries/{same}").json()["judgements"] == []
    assert {one["name"] for one in client.get("/api/boards").json()} == {"tiny", "ended"}


def test_no_answer_tells_of_single_patients_or_secrets(client, store, token):
    good, same = judged(store, 50), judged(store, 49)
    values = judgement(drawn(50, 1), NAME).to_json()["returns"]
    told = [f"/api/entries/{one}{more}" for one in (good, same) for more in ("", "/log")]
    told += [f"/tiny/entries/{one}.{kind}" for one in (good, same) for kind in ("html", "json")]
    told += ["/api/boards", "/api/boards/tiny", "/api/boards/tiny/entries", "/tiny/", "/tiny/board.json", "/metrics"]
    for path in told:
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert values not in answer.text
        assert token not in answer.text
        assert tiny.SECRET.hex() not in answer.text.replace(client.get("/api/boards").json()[1]["season"]["secret"], "")


def test_of_a_submission_that_is_not_published_only_its_state_is_shown(client, store):
    manifest = Manifest(name="Mine", authors=["Ann"], link="https://ann.example", about="how it was made", licence="MIT")
    sent = client.post(SUBMISSIONS, json=body(manifest=manifest)).json()["id"]

    def shown():
        answer = client.get(f"/api/entries/{sent}")
        hidden = (digest_of(b"a policy"), manifest.link, manifest.about)
        return answer.json(), {one in answer.text for one in hidden}

    found, told = shown()
    assert (found["state"], found["manifest"]["name"], found["manifest"]["authors"], told) == (
        "waiting",
        "Mine",
        ["Ann"],
        {False},
    )
    claim = store.claim(SEASON)
    store.refuse(claim, "it has a Loop")
    found, told = shown()
    assert (found["state"], found["reason"], told) == ("refused", "it has a Loop", {False})
    assert Entry.from_json(found).reason == "it has a Loop"  # as its author reads it
    published = judged(store, 50)
    assert client.get(f"/api/entries/{published}").json()["policies"]


def test_health_metrics_and_the_description_of_the_api(client, store):
    judged(store, 50)
    client.post(SUBMISSIONS, json=body())
    client.get("/no/such/page/at/all")
    assert client.get("/health").json() | {"version": ""} == {"status": "ok", "version": "", "waiting": 1}
    metrics = client.get("/metrics").text
    assert 'onco_gym_submissions{board="tiny",state="done"} 1.0' in metrics
    assert 'onco_gym_submissions{board="tiny",state="waiting"} 1.0' in metrics
    assert 'onco_gym_requests_total{method="POST",route="/api/boards/{name}/submissions",status="202"} 1.0' in metrics
    assert 'route="other",status="404"' in metrics
    described = client.get("/openapi.json").json()
    page = client.get("/docs").text
    for path in described["paths"]:
        assert path.split("{")[0] in page
    assert described["paths"]["/api/boards/{name}/submissions"]["post"]["security"] == [{"token": []}]
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page


def test_methods_that_clients_make_up_are_counted_as_one(client):
    for number in range(20):
        assert client.request(f"MADE{number}", "/health").status_code == 405
    metrics = client.get("/metrics").text
    assert 'method="other",route="/health",status="405"} 20.0' in metrics
    assert "MADE" not in metrics


def test_every_answer_says_what_browsers_must_not_do(client):
    for path in ("/", "/api/boards", "/docs", "/no/such/page/at/all", "/tiny/entries/0123456789ab.html"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


# ------------------------------------------------------------------------------------------------ whom it lets in


def test_without_a_valid_token_nothing_is_taken(address, store, token):
    revoked = add_account(store, "bob")
    revoke_account(store, "bob")
    wrong = ["", "Bearer", f"Bearer {token[:-1]}", f"Bearer {token}x", f"Basic {token}", token, f"Bearer {revoked}"]
    wrong += ["Bearer " + "x" * 5000, "Bearer ' OR '1'='1", "Bearer é"]
    with httpx.Client(base_url=address) as client:
        for one in wrong:
            answer = client.post(SUBMISSIONS, json=body(), headers={"Authorization": one.encode()})
            refused(answer, 401, "expected a valid token")
            assert answer.headers["www-authenticate"] == "Bearer"
        refused(client.post(SUBMISSIONS, json=body()), 401, "expected a valid token")
    assert store.count("tiny") == 0


def test_guessing_tokens_is_slow(address):
    with httpx.Client(base_url=address) as client:
        answers = [client.post(SUBMISSIONS, headers={"Authorization": f"Bearer {number}"}) for number in range(40)]
    codes = [answer.status_code for answer in answers]
    assert codes[:10] == [401] * 10
    assert codes[-1] == 429
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_caps_and_rates(client, store):
    for number in range(3):
        assert client.post(SUBMISSIONS, json=body(f"{number}".encode())).status_code == 202
    refused(client.post(SUBMISSIONS, json=body(b"another")), 429, "alice has made 3 submissions to tiny today")
    answers = [client.post(SUBMISSIONS, json=body(b"0")) for _ in range(serving.SUBMISSIONS[0])]
    refused(answers[-1], 429, "too many requests of alice")
    assert store.count("tiny") == 3


def test_eight_clients_at_once(address, store, token):
    def send(number):
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
            return [client.post(SUBMISSIONS, json=body(f"{number} {place}".encode())).status_code for place in range(2)]

    with ThreadPoolExecutor(8) as threads:
        codes = [code for some in threads.map(send, range(8)) for code in some]
    assert sorted(codes) == [202] * 3 + [429] * 13
    assert store.count("tiny") == 3


def test_a_bucket_fills_again():
    limiter = Limiter(2, 100.0)
    assert [limiter.wait("a") > 0 for _ in range(3)] == [False, False, True]
    assert limiter.wait("b") == 0
    time.sleep(0.02)
    assert limiter.wait("a") == 0


def test_a_season_that_is_over_takes_nothing(client):
    refused(client.post("/api/boards/ended/submissions", json=body()), 422, "is over")


ENDED = BOARD.season.model_copy(update={"secret": tiny.SECRET.hex()})


@pytest.fixture
def followed(store, token, tmp_path):
    """A folder of boards, and a client of a server that follows it."""
    tiny.write_board(tmp_path / "boards" / "tiny", BOARD.season)
    headers = {"Authorization": f"Bearer {token}"}
    with (
        listening(store, FollowedBoards(tmp_path / "boards")) as address,
        httpx.Client(base_url=address, headers=headers, timeout=60) as client,
    ):
        yield tmp_path / "boards" / "tiny", client


def test_a_season_that_ends_or_begins_is_seen_at_once(followed, store):
    folder, client = followed
    assert client.post(SUBMISSIONS, json=body()).status_code == 202
    good = finished(store, 50).id
    assert [row["id"] for row in client.get("/api/boards/tiny").json()["rows"]] == [good]
    write_season(folder, ENDED)
    refused(client.post(SUBMISSIONS, json=body(b"too late")), 422, "season 'one' of tiny is over")
    assert client.get("/api/boards/tiny").json()["board"]["season"]["secret"] == tiny.SECRET.hex()
    assert len(Entry.from_json(client.get(f"/api/entries/{good}").json()).judgements[0].returns) > 0
    write_season(folder, BOARD.season.model_copy(update={"name": "two"}))
    assert client.get("/api/boards/tiny").json()["rows"] == []
    assert client.post(SUBMISSIONS, json=body(b"in time")).json()["season"] == "two"


def test_a_season_that_ends_while_a_submission_comes(followed, store, monkeypatch):
    folder, client = followed
    read = serving.read_proposal

    async def slow(*arguments):
        found = await read(*arguments)
        write_season(folder, ENDED)
        return found

    monkeypatch.setattr(serving, "read_proposal", slow)
    refused(client.post(SUBMISSIONS, json=body()), 422, "is over")
    assert store.count("tiny") == 0


def test_a_board_that_is_damaged_stays_as_it_was(tmp_path, caplog):
    tiny.write_board(tmp_path / "tiny", BOARD.season)
    file, boards = tmp_path / "tiny" / "board.toml", FollowedBoards(tmp_path)
    good = file.read_text()
    file.write_text("patients = ")
    assert [board.season for board in boards for _ in range(2)] == [BOARD.season] * 2
    file.unlink()
    assert [board.season for board in boards] == [BOARD.season]
    assert caplog.text.count("the board stays as it was") == 2
    file.write_text(good)
    write_season(tmp_path / "tiny", ENDED)
    assert [board.season for board in pickle.loads(pickle.dumps(boards))] == [ENDED]  # as a worker beside the server gets them


# ------------------------------------------------------------------------------------------------ hostile requests


def check_up(client, store, submissions=0):
    assert client.get("/health").json()["status"] == "ok"
    assert client.get("/").status_code == 200
    assert store.count("tiny") == submissions


def test_bodies_that_are_no_submissions(client, store):
    good = body()
    long = {"manifest": good["manifest"], "policies": {NAME: base64.b64encode(bytes(LARGEST + 1)).decode()}}
    texts = [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"[" * 200_000, 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"9" * 10_000, 400, "not JSON"),
        (b"[]", 422, "not a submission"),
        (b"{}", 422, "not a submission"),
        (json.dumps(body(account="bob")).encode(), 422, "not a submission"),
        (json.dumps({**good, "policies": []}).encode(), 422, "there are policies for []"),
        (json.dumps({**good, "policies": {"../../x": ""}}).encode(), 422, "there are policies for ['../../x']"),
        (json.dumps({**good, "policies": {NAME: 1}}).encode(), 422, "not base64"),
        (json.dumps({**good, "policies": {NAME: "é"}}).encode(), 422, "not base64"),
        (json.dumps({**good, "policies": {NAME: ""}}).encode(), 422, "has 0 bytes"),
        (json.dumps(long).encode(), 422, "expected 1 to"),
        (json.dumps({**good, "manifest": 1}).encode(), 422, "the manifest"),
        (json.dumps({**good, "manifest": {"name": "a"}}).encode(), 422, "the manifest: authors"),
        (json.dumps({**good, "manifest": {**good["manifest"], "name": "a\x00b"}}).encode(), 422, "the manifest: name"),
        (json.dumps({**good, "manifest": {**good["manifest"], "name": "\ud800"}}).encode(), 422, "the manifest: name"),
        (
            json.dumps({**good, "manifest": {**good["manifest"], "link": "javascript:alert(1)"}}).encode(),
            422,
            "the manifest: link",
        ),
    ]
    headers = {"Content-Type": "application/json"}
    for place, (text, status, said) in enumerate(texts):
        if place % 15 == 14:  # the account may send only so many
            client.headers["Authorization"] = f"Bearer {add_account(store, 'another')}"
        refused(client.post(SUBMISSIONS, content=text, headers=headers), status, said)
    refused(client.post(SUBMISSIONS, content=b"{}", headers={"Content-Type": "text/plain"}), 415, "content-type")
    refused(client.post(SUBMISSIONS, content=b"{}", headers={**headers, "Content-Encoding": "gzip"}), 415, "content-encoding")
    check_up(client, store)


def test_a_body_that_is_too_large_is_not_read(address, token, client, store):
    def parts():
        while True:
            yield b" " * 2**20

    refused(client.post(SUBMISSIONS, content=b" " * (2 * LARGEST), headers={"Content-Type": "application/json"}), 413, "bytes")
    try:
        answer = client.post(SUBMISSIONS, content=parts(), headers={"Content-Type": "application/json"})
        refused(answer, 413, "bytes")
    except httpx.WriteError:  # the server has hung up
        pass
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as connection:  # it claims to be huge, and sends nothing
        head = f"POST {SUBMISSIONS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")
    check_up(client, store)


@pytest.mark.parametrize(
    "path",
    [
        "/api/boards/..%2f..%2fetc%2fpasswd",
        "/api/boards/%00",
        "/api/boards/tiny'%20OR%201=1",
        "/api/boards/<script>/entries",
        "/api/entries/..%2f..%2fsecret",
        "/api/entries/%00",
        "/api/entries/0123456789ab'--",
        "/api/entries/0123456789ab/log",
        "/api/boards/tiny/entries?account=%00",
        "/api/boards/tiny/entries?account=' OR 1=1",
        "/api/boards/tiny/entries?start=-1",
        "/api/boards/tiny/entries?most=1e9",
        "/api/boards/tiny?start=99999999999999999999999",
        "/no/such/page/at/all",
    ],
)
def test_paths_that_lead_nowhere(client, store, path):
    answer = client.get(path)
    assert answer.status_code in (404, 422)
    assert set(answer.json()) == {"error"}
    assert "<script>" not in answer.text or answer.headers["content-type"] == "application/json"
    check_up(client, store)


@pytest.mark.parametrize(
    "path",
    ["/..%2f..%2fetc%2fpasswd", "/tiny/entries/..%2f..%2fx.html", "/tiny/entries/%00.html", "/x%00/", "/%2e%2e/x.css", "/x.css"],
)
def test_pages_that_do_not_exist(client, store, path):
    assert client.get(path).status_code == 404
    check_up(client, store)


def test_text_of_authors_is_only_text(client, store):
    manifest = Manifest(name=HOSTILE, authors=[HOSTILE], about=HOSTILE, training_data=HOSTILE)
    sent = client.post(SUBMISSIONS, json=body(manifest=manifest)).json()["id"]
    finished(store, 50)
    assert client.get(f"/api/entries/{sent}").json()["manifest"]["name"] == HOSTILE
    for path in ("/", "/tiny/", f"/tiny/entries/{sent}.html"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
    assert "DROP TABLE" in client.get(f"/tiny/entries/{sent}.html").text
    check_up(client, store, 1)


def test_an_error_of_ours_is_told_without_details(client, store, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("the password is 1234")

    monkeypatch.setattr(store, "entry", broken)
    refused(client.get("/api/entries/0123456789ab"), 500, "an error of ours")
    assert "1234" not in client.get("/api/entries/0123456789ab").text


def test_a_policy_is_validated_before_it_is_sent(client, store):
    answer = client.post("/api/boards/tiny/validate", json=body(tiny.policy())).json()[NAME]
    assert (answer["reason"], answer["size"]) == ("", len(tiny.policy()))
    answer = client.post("/api/boards/tiny/validate", json=body(b"no policy")).json()[NAME]
    assert answer["reason"]
    check_up(client, store)


def test_a_validation_keeps_nobody_waiting(client, store, monkeypatch):
    begun, ended = threading.Event(), threading.Event()

    def slow(*_):
        begun.set()
        ended.wait(60)
        return {"reason": ""}

    monkeypatch.setattr(serving, "validate", slow)
    monkeypatch.setattr(serving, "_engine", lambda name: None)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(client.post, "/api/boards/tiny/validate", json=body())
        try:
            assert begun.wait(60)
            since = time.perf_counter()
            answer = client.post("/api/boards/tiny/validate", json=body())
            refused(answer, 503, "other policies are being validated")
            assert int(answer.headers["retry-after"]) == serving.AGAIN
            assert client.get("/health").status_code == 200
            assert time.perf_counter() - since < 5
        finally:
            ended.set()
        assert first.result().json() == {NAME: {"reason": ""}}


@pytest.mark.parametrize(("told", "waited"), [({"Retry-After": "7"}, 7), ({}, clients.PAUSE), ({"Retry-After": "9999"}, 60)])
def test_a_client_comes_back_when_it_was_told_to(monkeypatch, told, waited):
    answers, pauses = iter([httpx.Response(503, headers=told, json={"error": "busy"}), httpx.Response(200, json={NAME: {}})]), []
    monkeypatch.setattr(httpx.Client, "request", lambda *_, **options: next(answers))
    monkeypatch.setattr(clients.time, "sleep", pauses.append)
    assert clients.Client("http://x").validate("tiny", MANIFEST, {NAME: b"a policy"}) == {NAME: {}}
    assert pauses == [waited]


# ------------------------------------------------------------------------------------------------ many entries


@pytest.mark.slow
def test_ten_thousand_entries_are_listed_at_once(client, store):
    """2,000 accounts with five submissions each, of which the best is published."""
    for number in range(2000):
        account = f"account-{number}"
        judged(store, 40 + number % 50, account)
        for again in range(4):
            store.submit(tiny.roomy(), account, MANIFEST, {NAME: f"{account} again {again}".encode()})
            store.refuse(store.claim(SEASON), "no")
    for path in ("/api/boards/tiny", "/api/boards/tiny/entries", "/api/boards/tiny/entries?start=9000", "/tiny/", "/"):
        client.get(path, timeout=300)
        begun = time.perf_counter()
        assert client.get(path).status_code == 200
        taken = time.perf_counter() - begun
        print(f"{path}: {1000 * taken:.0f} ms")
        assert taken < 0.3, path
