"""Submits from this machine: evaluates here, in the same way as a server does."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from onco_gym.agents import load_agent
from onco_gym.agents.onnxfile import LARGEST
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.registry import find_environment
from onco_gym.leaderboard.boards import Board
from onco_gym.leaderboard.entries import Entry, Kind
from onco_gym.leaderboard.manifests import Manifest
from onco_gym.leaderboard.store import LOCAL, Store, SubmissionError
from onco_gym.leaderboard.worker import Worker


def read_sources(board: Board, sources: Sequence[str]) -> tuple[dict[str, bytes], str]:
    """What is submitted to a board.

    Args:
        board: the board.
        sources: the path of a policy file (``.onnx``), or ``ENVIRONMENT=FILE.onnx`` for each environment of a board with
            several; or one other agent, as :func:`onco_gym.load_agent` takes it.

    Returns:
        The content of policy files by environment id, and an empty name; or nothing, and the name of the agent.

    Raises:
        SubmissionError: if they do not fit the board, or a file is missing or too large.
        AgentError: if the agent cannot be loaded.
    """
    environments = board.environments
    if len(sources) == 1 and not sources[0].endswith(".onnx"):
        for environment in environments:
            load_agent(make_engine(environment), sources[0])
        return {}, sources[0]
    if len(environments) == 1 and len(sources) == 1:
        return {environments[0]: _read(sources[0])}, ""
    paths = {}
    for source in sources:
        environment, equals, path = source.partition("=")
        if not equals:
            raise SubmissionError(f"{board.name} has several environments: expected ENVIRONMENT=FILE.onnx, not {source!r}")
        paths[find_environment(environment).id] = path
    if set(paths) != set(environments) or len(paths) < len(sources):
        raise SubmissionError(f"there are policies for {', '.join(paths)}, expected one for each of {', '.join(environments)}")
    return {environment: _read(paths[environment]) for environment in environments}, ""


def submit_here(
    store: Store,
    board: Board,
    manifest: Manifest,
    policies: Mapping[str, bytes],
    agent: str = "",
    secret: bytes | None = None,
    progress: Progress = silent,
) -> Entry:
    """Submit to the store of this machine, and judge at once.

    A policy file is verified if the season's secret is known. Everything else is reported by oneself: other agents, which run
    in this process, and what is judged on public patients because the secret is not known, or the system is not Linux, without
    which the sandbox is too weak.

    Args:
        store: where it is kept, under the account ``local``, which has no caps.
        board: the board.
        manifest: what the authors say.
        policies, agent: see :func:`read_sources`.
        secret: of the board's season; without it, patients are the public ones.
        progress: told about every stage.

    Raises:
        SubmissionError: if the same submission is being judged already.
    """
    secret = secret if sys.platform == "linux" else None
    kind: Kind = "self-reported" if agent or secret is None else "verified"
    entry = store.submit(board, LOCAL, manifest, policies, kind, agent, capped=False)
    claim = store.take(entry.id)
    ended = [] if claim is None else Worker(store, [(board, secret)]).attend([claim], progress)
    found = ended[0] if ended else store.entry(entry.id)
    if found is None or found.state in ("waiting", "working"):
        raise SubmissionError(f"submission {entry.id} is being judged by another process, or was a minute ago: wait for it")
    return found


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise SubmissionError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise SubmissionError(f"{path} has too many bytes, expected at most {LARGEST}")
    return content
