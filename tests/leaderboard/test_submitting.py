"""onco-gym submit, account and serve, as a user types them."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import httpx
import pytest
import tiny
import uvicorn
from conftest import refuses
from made import drawn, judgement
from tiny import BOARD, MANIFEST, NAME, SECRET

from onco_gym.leaderboard.boards import read_board, write_season
from onco_gym.leaderboard.client import Client
from onco_gym.leaderboard.entries import read_entries
from onco_gym.leaderboard.seasons import keep_secret
from onco_gym.leaderboard.server import make_app
from onco_gym.leaderboard.store import LOCAL, Store, SubmissionError
from onco_gym.leaderboard.submitting import read_sources
from onco_gym.leaderboard.tokens import add_account
from onco_gym.leaderboard.worker import Worker


@pytest.fixture(scope="module", autouse=True)
def quick():
    with pytest.MonkeyPatch.context() as patch:
        tiny.quick(patch.setattr)
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the board and a policy; the user's store is in it, too."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    tiny.write_board(tmp_path / "boards" / "tiny", BOARD.season)
    (tmp_path / "policy.onnx").write_bytes(tiny.policy())
    (tmp_path / "bad.onnx").write_bytes(b"no policy")
    keep_secret("secrets", "tiny", "one", SECRET)
    return tmp_path


def submit(command, *arguments):
    return command("submit", "--board", "boards/tiny", "--secrets", "secrets", "-q", *arguments)


def said(ran, *words):
    assert ran.code == 2
    assert ran.err.count("\n") == 1, ran.err
    for word in words:
        assert word in ran.err


# ------------------------------------------------------------------------------------------------ here


def test_a_policy_is_judged_here_and_has_a_rank(command, here):
    ran = submit(command, "policy.onnx", "--author", "Ann", "--author", "Bob", "--licence", "MIT")
    assert (ran.code, ran.err) == (0, "")
    assert "policy on Tiny, season one; 95% intervals" in ran.out
    assert re.search(r"Score +-?\d+\.\d \(-?\d+\.\d to -?\d+\.\d\)", ran.out)
    (name,) = re.findall(r"submission (\w{12}) to tiny: verified, published, rank 1\n", ran.out)
    entry = Store(str(here / "data" / "onco_gym" / "leaderboard.sqlite")).entry(name)
    assert (entry.account, entry.kind, entry.manifest.authors) == (LOCAL, "verified", ["Ann", "Bob"])
    assert submit(command, "policy.onnx").out == ran.out  # the same policy is the same submission


def test_without_the_secret_it_is_self_reported(command, here):
    ran = submit(command, "policy.onnx", "--secrets", "elsewhere")
    assert ran.code == 0
    assert "self-reported, published" in ran.out
    assert "the season's secret is not known here" in ran.err
    write_season(here / "boards" / "tiny", BOARD.season.model_copy(update={"secret": SECRET.hex()}))  # the season ends
    assert "verified, published, rank 1" in submit(command, "policy.onnx", "--secrets", "elsewhere").out


def test_without_the_walls_of_linux_it_is_self_reported(command, here, monkeypatch):
    monkeypatch.setattr("onco_gym.leaderboard.submitting.sys", SimpleNamespace(platform="darwin"))
    assert "self-reported, published" in submit(command, "policy.onnx").out


def test_another_agent_is_self_reported(command, here):
    ran = submit(command, "guideline")
    assert ran.code == 0
    assert "guideline on Tiny" in ran.out
    assert "self-reported, published" in ran.out
    assert "it is not a policy file" in ran.err


def test_a_manifest_says_who_made_it(command, here):
    (here / "policy.toml").write_text('name = "Mine"\nauthors = ["Ann"]\n')
    assert "Mine on Tiny" in submit(command, "policy.onnx", "--manifest", "policy.toml").out
    said(submit(command, "policy.onnx", "--manifest", "policy.toml", "--name", "x"), "--manifest says all")
    (here / "policy.toml").write_text('name = "Mine"\n')
    said(submit(command, "policy.onnx", "--manifest", "policy.toml"), "policy.toml", "authors")


def test_what_cannot_be_submitted(command, here):
    said(submit(command, "bad.onnx"), "was refused", "ONNX")
    said(submit(command, "absent.onnx"), "absent.onnx cannot be read: No such file")
    said(submit(command, "guidelin"), "there is no agent 'guidelin' (did you mean 'guideline'?)")
    said(submit(command), "nothing to submit")
    said(command("submit", "policy.onnx", "--board", "nothing"), "there is no board 'nothing'")
    said(submit(command, "policy.onnx", "--store", "mysql://x/y"), "not of a known kind")
    said(command("submit", "--status", "0" * 12), "--status needs --server")
    assert Store(str(here / "data" / "onco_gym" / "leaderboard.sqlite")).count("tiny") == 1  # the one that was refused


def test_the_verdict_before_submitting(command, here):
    ran = submit(command, "policy.onnx", "--validate")
    assert ran.code == 0
    assert f"{NAME}: accepted; {len(tiny.policy()):,} bytes, " in ran.out
    said(submit(command, "bad.onnx", "--validate"), f"{NAME}: refused: ")
    said(submit(command, "guideline", "--validate"), "only policy files")
    assert not (here / "data").exists()


def test_policies_for_a_board_with_several_environments(here):
    board = read_board("oncology-2026")
    names = ("NSCLC", "onco_gym/Breast-v0", "colorectal", "Melanoma")
    given = [f"{name}=policy.onnx" for name in names]
    policies, agent = read_sources(board, given)
    assert (list(policies), agent) == (board.environments, "")
    assert read_sources(board, ["guideline"]) == ({}, "guideline")
    refuses(SubmissionError, "expected one for each of", read_sources, board, given[1:])
    refuses(SubmissionError, "expected one for each of", read_sources, board, [*given, given[0]])
    refuses(SubmissionError, "expected ENVIRONMENT=FILE.onnx", read_sources, board, ["policy.onnx"])


# ------------------------------------------------------------------------------------------------ with a server


@pytest.fixture
def server(here, monkeypatch):
    """A server for the board with a worker, and the token of an account in the environment."""
    monkeypatch.setattr("onco_gym.leaderboard.client.PAUSE", 0.1)
    store, stop = Store(str(here / "server.sqlite")), threading.Event()
    monkeypatch.setenv("ONCO_GYM_TOKEN", add_account(store, "alice"))
    running = uvicorn.Server(uvicorn.Config(make_app(store, [BOARD]), port=0, log_config=None, ws="none"))
    work = threading.Thread(
        target=Worker(store, [(BOARD, SECRET)]).run, args=(stop.is_set, lambda: time.sleep(0.05)), daemon=True
    )
    threads = [threading.Thread(target=running.run, daemon=True), work]
    for thread in threads:
        thread.start()
    while not running.started:
        time.sleep(0.01)
    host, port = running.servers[0].sockets[0].getsockname()
    yield f"http://{host}:{port}"
    running.should_exit = True
    stop.set()
    for thread in threads:
        thread.join()


def send(command, server, *arguments):
    return command("submit", *arguments, "--board", "tiny", "--server", server, "-q")


def test_a_policy_is_sent_and_followed(command, here, server, monkeypatch):
    ran = send(command, server, "policy.onnx", "--author", "Ann")
    assert ran.code == 0
    (name,) = re.findall(r"submission (\w{12}) to tiny: verified, published, rank 1\n", ran.out)
    assert f"submitted as {name}; follow it: onco-gym submit --status {name} --server {server}" in ran.err
    assert re.search(r"Score +-?\d+\.\d \(", ran.out)
    monkeypatch.delenv("ONCO_GYM_TOKEN")
    assert command("submit", "--status", name, "--server", server, "-q").out == ran.out
    said(send(command, server, "policy.onnx", "--author", "Ann"), "expected a valid token")
    (here / "token").write_text("wrong\n")
    said(send(command, server, "policy.onnx", "--author", "Ann", "--token-file", "token"), "expected a valid token")


def test_the_rank_of_a_submission_is_asked_for_by_its_id(command, here, server):
    """However many rows are above its own."""
    (name,) = re.findall(r"submission (\w{12}) to", send(command, server, "policy.onnx", "--author", "Ann").out)
    store = Store(str(here / "server.sqlite"))
    better = store.submit(BOARD, "bob", MANIFEST, {}, "self-reported", "an agent")
    store.finish(store.take(better.id), [judgement(drawn(1000, 1), NAME)])
    client = Client(server)
    assert [row["id"] for row in client.board("tiny")["rows"]] == [better.id]
    assert [row["id"] for row in client.board("tiny", name)["rows"]] == [name]
    assert "verified, published, rank 1" in command("submit", "--status", name, "--server", server, "-q").out


def test_what_a_server_does_not_take(command, here, server, monkeypatch):
    said(send(command, server, "guideline", "--author", "Ann"), "policy files (.onnx) only")
    said(send(command, server, "policy.onnx"), "needs --manifest FILE.toml, or --author NAME")
    said(send(command, server, "bad.onnx", "--author", "Ann", "--validate"), f"{NAME}: refused: ")
    assert "accepted" in send(command, server, "policy.onnx", "--author", "Ann", "--validate").out
    said(
        command("submit", "policy.onnx", "--author", "A", "--board", "nothing", "--server", server), "there is no board 'nothing'"
    )
    said(command("submit", "--status", "0" * 12, "--server", server), "there is no entry")
    said(command("submit", "--status", "0" * 12, "--server", "ftp://x"), "not the address of a server")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    said(command("submit", "--status", "0" * 12, "--server", f"http://127.0.0.1:{port}"), "does not answer")


def test_a_policy_that_the_server_refuses(command, here, server):
    ran = send(command, server, "bad.onnx", "--author", "Ann")
    assert ran.code == 2
    assert re.search(r"submission \w{12} was refused: .*ONNX", ran.err)


def test_accounts(command, here):
    ran = command("account", "add", "alice", "--store", "server.sqlite")
    assert re.fullmatch(r"[\w-]{43}\n", ran.out)
    assert "cannot be shown again" in ran.err
    said(command("account", "add", "alice", "--store", "server.sqlite"), "revoke that first")
    assert command("account", "revoke", "alice", "--store", "server.sqlite").code == 0
    assert re.search(r"alice +\d{4}-\d\d-\d\d +cannot submit", command("account", "list", "--store", "server.sqlite").out)


def test_published_entries_are_collected_for_others_to_replay(command, here):
    submit(command, "policy.onnx", "--store", "server.sqlite")
    said(
        command("leaderboard", "collect", "boards/tiny", "--store", "server.sqlite", "-q"),
        "season 'one' of tiny has not ended",
    )
    assert not (here / "boards" / "tiny" / "entries").exists()
    write_season(here / "boards" / "tiny", BOARD.season.model_copy(update={"secret": SECRET.hex()}))
    ran = command("leaderboard", "collect", "boards/tiny", "--store", "server.sqlite", "-q")
    assert ran.out == "wrote 1 entries of season one to boards/tiny\n"
    write_season(here / "boards" / "tiny", BOARD.season.model_copy(update={"name": "two"}))
    again = command("leaderboard", "collect", "boards/tiny", "--season", "one", "--store", "server.sqlite", "-q")
    assert again.out == ran.out
    assert [entry.state for entry in read_entries("boards/tiny", "tiny")] == ["done"]


@pytest.mark.parametrize(
    ("package", "extra", "url"), [("sqlalchemy", "leaderboard", "x.sqlite"), ("psycopg", "postgres", "postgresql+psycopg://x/y")]
)
def test_a_package_that_is_not_installed(here, package, extra, url):
    code = "import sys; sys.modules[sys.argv[1]] = None; from onco_gym.cli import main; sys.exit(main(sys.argv[2:]))"
    command = [sys.executable, "-c", code, package, "account", "list", "--store", url]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 2
    assert re.fullmatch(f'onco-gym: this .* needs {package}: pip install "onco_gym.{extra}."\n', ran.stderr)


def test_a_worker_needs_a_secret(command, here):
    said(command("worker", "--boards", "boards", "--store", "server.sqlite"), "no secret of a board is known here")
    said(command("worker", "--boards", ".", "--store", "server.sqlite"), "not a folder of boards")


def test_a_secret_that_is_not_the_boards(command, here):
    keep_secret("others", "tiny", "one", bytes(32))
    ran = command("worker", "--boards", "boards", "--secrets", "others", "--store", "server.sqlite")
    said(ran, "not the secret of season 'one'")


@pytest.mark.parametrize("url", ["postgresql+psycopg://ann:pass1234@x/y", "postgresql+psycopg://x/y?user=ann&password=pass1234"])
def test_the_password_of_the_store_is_not_shown(command, here, monkeypatch, url):
    monkeypatch.setattr("onco_gym.leaderboard.serving.serve", lambda *_: None)
    ran = command("serve", "--store", url)
    assert (ran.code, ran.out) == (0, "")
    assert "store postgresql+psycopg://" in ran.err
    assert "pass1234" not in ran.err
    damaged = command("serve", "--store", "postgresql://x::pass1234")
    said(damaged, "the store cannot be opened: expected a file or a URL")
    assert "pass1234" not in damaged.err


@pytest.mark.slow
def test_the_server_as_a_command(here, command, monkeypatch):
    """With a worker of its own, which is killed once and started again, and ends with the server."""
    monkeypatch.setenv("ONCO_GYM_TOKEN", command("account", "add", "alice", "--store", "server.sqlite").out.strip())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--boards", "boards", "--secrets", "secrets", "--store", "server.sqlite", "--port", str(port)]
    code = "import sys; from onco_gym.cli import main; sys.exit(main())"
    process = subprocess.Popen([sys.executable, "-c", code, "serve", *options], stderr=subprocess.PIPE)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                assert "server" not in httpx.get(f"{address}/health").headers
                break
            except httpx.ConnectError:
                time.sleep(0.2)
        (worker,) = children(process.pid)
        os.kill(worker, signal.SIGKILL)
        ran = send(command, address, "policy.onnx", "--author", "Ann")
        assert "verified, published, rank 1" in ran.out
        (again,) = children(process.pid)
        assert again != worker
    finally:
        process.terminate()
        process.wait(60)
    assert process.returncode == 143
    assert not os.path.exists(f"/proc/{again}")


def children(parent):
    """The worker processes of a process, without the one that keeps Python's resources."""
    found = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(parent)], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in found.splitlines() if "spawn_main" in line]
