"""Commands about submissions: submit, serve, worker, account."""

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onco_gym.cli.arguments import whole
from onco_gym.cli.leaderboard import BOARD
from onco_gym.cli.parser import Commands, Parser, UsageError, needs_leaderboard, workers_of
from onco_gym.cli.screen import console, make_table, note, progress_bar
from onco_gym.foundation.progress import Progress

if TYPE_CHECKING:
    from onco_gym.leaderboard import Board, Entry, Manifest
    from onco_gym.leaderboard.client import Client
    from onco_gym.leaderboard.store import Store

TOKEN = "ONCO_GYM_TOKEN"


def register(commands: Commands) -> None:
    """Add the commands."""
    about = "Submit a policy to a board: it is judged here, or sent to a server."
    parser = commands.add(submit_command, about, "submit policy.onnx --board nsclc-2026", agents=True)
    text = "a policy file; ENVIRONMENT=FILE.onnx for each environment of a board with several; or, without --server, any agent"
    parser.add_argument("policies", nargs="*", metavar="POLICY", help=text)
    parser.add_argument("--board", metavar="BOARD", help=BOARD)
    parser.add_argument("--manifest", metavar="FILE.toml", help="what you say about the policy: name, authors, licence and more")
    parser.add_argument("--name", help="instead of a manifest: the name of the policy; by default that of its file")
    parser.add_argument("--author", action="append", metavar="NAME", help="instead of a manifest: who made it (repeat for more)")
    parser.add_argument("--licence", default="", help="instead of a manifest: the licence of the policy")
    parser.add_argument("--validate", action="store_true", help="only say whether the policy would be accepted")
    parser.add_argument("--server", metavar="URL", help="send it to this server")
    text = f"with --server: a file with the token of your account; by default the variable {TOKEN} holds the token"
    parser.add_argument("--token-file", metavar="FILE", help=text)
    parser.add_argument("--status", metavar="ID", help="with --server: follow a submission that was sent before")
    parser.add_argument("--secrets", metavar="FOLDER", help="without --server: the folder with the secrets of open seasons")
    parser.add_store()
    parser.add_quiet()

    about = "Serve boards: take submissions, judge them, and show the pages."
    parser = commands.add(serve_command, about, "serve --secrets secrets --boards leaderboards --port 8000")
    _add_judging(parser)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at; by default 127.0.0.1, this machine only")
    parser.add_argument("--port", type=whole(1, 65535), default=8000, help="by default 8000")
    text = "processes that judge submissions here; by default 1. Each takes about 2 GB"
    parser.add_argument("--workers", type=whole(0, 256), default=1, metavar="N", help=text)

    about = "Judge the submissions of a store that other machines serve."
    parser = commands.add(worker_command, about, "worker --store postgresql+psycopg://host/boards --secrets secrets")
    _add_judging(parser)
    parser.add_workers()

    group = commands.add_group("account", "Make accounts for a server, and revoke them.", "account add alice")
    for run, about, example in (
        (add_command, "Make an account, or give a new token to a revoked one. The token is shown once.", "account add alice"),
        (revoke_command, "Make the token of an account invalid. Its submissions stay.", "account revoke alice"),
        (list_command, "List the accounts.", "account list"),
    ):
        parser = group.add(run, about, example)
        if run is not list_command:
            parser.add_argument("account", metavar="NAME", help="of the account")
        parser.add_store()


def _add_judging(parser: Parser) -> None:
    parser.add_argument("--boards", metavar="FOLDER", help="a folder of boards; by default the shipped ones")
    parser.add_argument("--secrets", metavar="FOLDER", help="the folder with the secrets of open seasons")
    parser.add_store()


def _store(arguments: argparse.Namespace) -> "Store":
    from onco_gym.leaderboard.store import Store

    return Store(_url(arguments))


def _url(arguments: argparse.Namespace) -> str:
    from onco_gym.leaderboard.database import default_url

    return arguments.store or default_url()


# ------------------------------------------------------------------------------------------------ submit


@needs_leaderboard
def submit_command(arguments: argparse.Namespace) -> None:
    """Submit a policy."""
    if arguments.status:
        if not arguments.server or arguments.policies:
            raise UsageError("--status needs --server, and no policy")
        with progress_bar("asking", quiet=arguments.quiet) as progress:
            client = _client(arguments)
            entry = _followed(client, arguments.status, progress)
        _show_sent(client, entry)
        return
    if not arguments.policies or not arguments.board:
        raise UsageError("there is nothing to submit: expected POLICY and --board BOARD")
    if arguments.server:
        _send(arguments)
    else:
        _submit_here(arguments)


def _submit_here(arguments: argparse.Namespace) -> None:
    with progress_bar("reading", quiet=arguments.quiet) as progress:
        from onco_gym.leaderboard import read_board
        from onco_gym.leaderboard.publishing import Published
        from onco_gym.leaderboard.seasons import find_secret
        from onco_gym.leaderboard.submitting import read_sources, submit_here

        board = read_board(arguments.board)
        policies, agent = read_sources(board, arguments.policies)
        manifest, secret = _manifest(arguments), find_secret(board, arguments.secrets)
        if arguments.validate:
            verdicts = _verdicts(board, policies, progress)
        else:
            store = _store(arguments)
            _import_shipped(store, arguments.board, board)
            entry = submit_here(store, board, manifest, policies, agent, secret, progress)
            standings = Published(store, [board]).standings(board.name)
    if arguments.validate:
        _show_verdicts(verdicts)
        return
    place = next((row.place for row in standings.rows if row.entry.id == entry.id), None)
    _show(board, entry, place)
    if entry.kind == "self-reported":
        why = "it is not a policy file" if agent else "the season's secret is not known here, so its patients are public ones"
        note(f"this entry is self-reported: {why}")


def _import_shipped(store: "Store", name: str, board: "Board") -> None:
    from onco_gym.leaderboard.boards import board_folder
    from onco_gym.leaderboard.exchange import import_folder

    import_folder(store, board_folder(name), board)


def _send(arguments: argparse.Namespace) -> None:
    with progress_bar("sending", quiet=arguments.quiet) as progress:
        from onco_gym.leaderboard.submitting import read_sources

        if not any(source.endswith(".onnx") for source in arguments.policies):
            raise UsageError(f"a server takes policy files (.onnx) only, not {arguments.policies[0]!r}: run it without --server")
        if not (arguments.manifest or arguments.author):
            raise UsageError("a submission to a server needs --manifest FILE.toml, or --author NAME")
        client = _client(arguments)
        board, manifest = _served(client, arguments.board), _manifest(arguments)
        policies, _ = read_sources(board, arguments.policies)
        verdicts = client.validate(board.name, manifest, policies) if arguments.validate else {}
        if not arguments.validate:
            sent = client.submit(board.name, manifest, policies)
            note(f"submitted as {sent}; follow it: onco-gym submit --status {sent} --server {arguments.server}")
            entry = _followed(client, sent, progress)
    if arguments.validate:
        _show_verdicts(verdicts)
    else:
        _show_sent(client, entry)


def _client(arguments: argparse.Namespace) -> "Client":
    from onco_gym.leaderboard.client import Client

    token = os.environ.get(TOKEN, "")
    if arguments.token_file:
        token = Path(arguments.token_file).read_text(encoding="utf-8", errors="replace")
    return Client(arguments.server, token.strip())


def _served(client: "Client", name: str) -> "Board":
    """A board of a server."""
    import json

    from pydantic import ValidationError

    from onco_gym.leaderboard import Board, BoardError

    try:
        return Board.model_validate_json(json.dumps(client.board(name)["board"]))
    except (KeyError, TypeError, ValidationError):
        raise BoardError(f"the server has a board {name!r} that this version of onco_gym does not know") from None


def _followed(client: "Client", entry: str, progress: Progress) -> "Entry":
    """A submission on a server, when it has ended."""
    from onco_gym.leaderboard import Entry

    for found in client.follow(entry):
        progress(found["steps"][-1]["text"] if found["steps"] else found["state"], 0, 0)
    return Entry.from_json(client.entry(entry))


def _show_sent(client: "Client", entry: "Entry") -> None:
    rows = client.board(entry.board, entry.id)["rows"]
    place = next((row["place"] for row in rows if row["id"] == entry.id), None)
    _show(_served(client, entry.board), entry, place)


def _manifest(arguments: argparse.Namespace) -> "Manifest":
    from onco_gym.leaderboard.manifests import make_manifest, read_manifest

    if arguments.manifest:
        if arguments.name or arguments.author or arguments.licence:
            raise UsageError("--manifest says all: expected no --name, --author or --licence beside it")
        return read_manifest(arguments.manifest)
    name = arguments.name or Path(arguments.policies[0].rpartition("=")[2]).stem
    return make_manifest({"name": name, "authors": arguments.author or ["unnamed"], "licence": arguments.licence})


def _verdicts(board: "Board", policies: dict[str, bytes], progress: Progress) -> dict[str, dict[str, Any]]:
    from onco_gym.foundation.results import to_plain
    from onco_gym.interfaces.engine import make_engine
    from onco_gym.leaderboard.validating import validate

    if not policies:
        raise UsageError("only policy files (.onnx) can be validated")
    return {
        name: to_plain(validate(make_engine(name, split="validation"), policy, board.patients, progress))
        for name, policy in policies.items()
    }


def _show_verdicts(verdicts: dict[str, dict[str, Any]]) -> None:
    for environment, found in verdicts.items():
        if not found["reason"]:
            walls = ", ".join(found["walls"])
            time = f"{found['microseconds']:.0f} µs a decision, about {found['judgement']:.1f} s in a judgement"
            print(f"{environment}: accepted; {found['size']:,} bytes, {time}; walls: {walls}")
    refused = [f"{environment}: refused: {found['reason']}" for environment, found in verdicts.items() if found["reason"]]
    if refused:
        raise UsageError("; ".join(refused))


def _show(board: "Board", entry: "Entry", place: str | None) -> None:
    """What a submission came to."""
    from onco_gym.leaderboard.judgements import overall
    from onco_gym.leaderboard.metrics import METRICS

    if entry.state != "done":
        raise UsageError(f"submission {entry.id} {'was ' if entry.state == 'refused' else ''}{entry.state}: {entry.reason}")
    if entry.judgements:
        rows = [
            (METRICS[name].head, METRICS[name].shown(found))
            for name in board.metrics
            if (found := overall(board, entry.judgements, name)) is not None
        ]
        title = f"{entry.manifest.name} on {board.title}, season {entry.season}; 95% intervals"
        console().print(make_table(title, ("", ""), rows))
    told = f"published, rank {place}" if place else "published" if entry.published else f"not published: {entry.reason}"
    print(f"submission {entry.id} to {board.name}: {entry.kind}, {told}")


# ------------------------------------------------------------------------------------------------ serve, worker


@needs_leaderboard
def serve_command(arguments: argparse.Namespace) -> None:
    """Serve boards."""
    from onco_gym.leaderboard.database import shown
    from onco_gym.leaderboard.serving import FORMAT, serve

    logging.basicConfig(format=FORMAT)
    host, port = arguments.host, arguments.port
    store = shown(arguments.store) if arguments.store else "of this user"
    note(f"serving at http://{host}:{port}/ with {arguments.workers} workers; store {store}")
    serve(_url(arguments), arguments.boards, arguments.secrets, host, port, arguments.workers)


@needs_leaderboard
def worker_command(arguments: argparse.Namespace) -> None:
    """Judge the submissions of a store."""
    from onco_gym.leaderboard.following import FollowedBoards, JudgedBoards
    from onco_gym.leaderboard.serving import FORMAT
    from onco_gym.leaderboard.worker import Worker

    logging.basicConfig(format=FORMAT)
    where = workers_of(arguments)
    judged = JudgedBoards(FollowedBoards(arguments.boards), arguments.secrets)
    names = [board.name for board, _ in judged]
    if not names:
        raise UsageError("no secret of a board is known here: expected --secrets FOLDER with one")
    store = _store(arguments)
    note(f"judging submissions to {', '.join(names)}")
    Worker(store, judged, **where).run()


# ------------------------------------------------------------------------------------------------ account


@needs_leaderboard
def add_command(arguments: argparse.Namespace) -> None:
    """Make an account."""
    from onco_gym.leaderboard.tokens import add_account

    print(add_account(_store(arguments), arguments.account))
    note(f"this is the token of {arguments.account}; it cannot be shown again")


@needs_leaderboard
def revoke_command(arguments: argparse.Namespace) -> None:
    """Revoke the token of an account."""
    from onco_gym.leaderboard.tokens import revoke_account

    revoke_account(_store(arguments), arguments.account)
    print(f"the token of {arguments.account} is invalid now")


@needs_leaderboard
def list_command(arguments: argparse.Namespace) -> None:
    """List the accounts."""
    from onco_gym.leaderboard.tokens import list_accounts

    found = list_accounts(_store(arguments))
    rows = [(one.name, f"{one.created:%Y-%m-%d}", "can submit" if one.active else "cannot submit") for one in found]
    console().print(make_table("", ("account", "since", ""), rows))
