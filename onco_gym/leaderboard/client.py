"""The client of a server: sends submissions, and asks what became of them."""

import base64
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from onco_gym.leaderboard.manifests import Manifest

SECONDS = 60.0
"""Time for an answer."""
PAUSE = 2.0
"""Seconds between two looks at a submission."""
TRIES = 5
"""How often a question is asked again if the server does not answer. A submission sent twice is one submission."""


class ClientError(ValueError):
    """What a server answered, or that it did not answer."""


class Client:
    """Talks to a server.

    Args:
        server: its address, ``https://...``.
        token: of an account; needed for submitting and validating.
    """

    def __init__(self, server: str, token: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = httpx.Client(base_url=server, headers=headers, timeout=SECONDS)
            known = self._http.base_url.scheme in ("http", "https") and self._http.base_url.host
        except (httpx.InvalidURL, UnicodeError):  # the latter for a token that no header can hold
            known = ""
        if not known:
            raise ClientError(f"{server!r} is not the address of a server, or the token is damaged: expected https://...")
        self._server = server

    def submit(self, board: str, manifest: Manifest, policies: Mapping[str, bytes]) -> str:
        """Submit policies, by environment id; the id of the submission. The same policies are the same submission.

        Raises:
            ClientError: if the server refuses them, or does not answer.
        """
        answer = self._ask("POST", f"/api/boards/{board}/submissions", _content(manifest, policies))
        return str(answer["id"])

    def validate(self, board: str, manifest: Manifest, policies: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
        """What the server would say of policies; for each environment the fields of a validation.

        Raises:
            ClientError: if the server refuses to look at them, or does not answer.
        """
        path, patience = f"/api/boards/{board}/validate", SECONDS * (1 + 2 * len(policies))
        answer: dict[str, dict[str, Any]] = self._ask("POST", path, _content(manifest, policies), patience)
        return answer

    def board(self, name: str, entry: str = "") -> dict[str, Any]:
        """A board, and the row of this entry in its table, or else the first one.

        Raises:
            ClientError: if there is no such board, or the server does not answer.
        """
        answer: dict[str, Any] = self._ask("GET", f"/api/boards/{name}?most=1" + (f"&entry={entry}" if entry else ""))
        return answer

    def log(self, entry: str) -> dict[str, Any]:
        """Where a submission stands, and its steps so far.

        Raises:
            ClientError: if there is no such submission, or the server does not answer.
        """
        answer: dict[str, Any] = self._ask("GET", f"/api/entries/{entry}/log")
        return answer

    def entry(self, entry: str) -> dict[str, Any]:
        """A submission, with its figures if they are published.

        Raises:
            ClientError: if there is no such submission, or the server does not answer.
        """
        answer: dict[str, Any] = self._ask("GET", f"/api/entries/{entry}")
        return answer

    def follow(self, entry: str) -> Iterator[dict[str, Any]]:
        """The log of a submission again and again, until it ends."""
        while True:
            found = self.log(entry)
            yield found
            if found["state"] in ("done", "refused", "failed"):
                return
            time.sleep(PAUSE)

    def _ask(self, method: str, path: str, content: bytes | None = None, patience: float = SECONDS) -> Any:
        headers = {} if content is None else {"Content-Type": "application/json"}
        answer = said = None
        for _ in range(TRIES):
            try:
                answer = self._http.request(method, path, content=content, headers=headers, timeout=patience)
            except httpx.HTTPError as error:
                said = str(error)
            if answer is not None and answer.status_code != 503:
                break
            time.sleep(_pause(answer))
        if answer is None:
            raise ClientError(f"{self._server} does not answer: {said}")
        return _read(answer, self._server)


def _content(manifest: Manifest, policies: Mapping[str, bytes]) -> bytes:
    texts = {name: base64.b64encode(policy).decode() for name, policy in policies.items()}
    return json.dumps({"manifest": manifest.model_dump(mode="json"), "policies": texts}).encode()


def _pause(answer: httpx.Response | None) -> float:
    """Seconds until the next try: as many as the server says, within reason."""
    said = "" if answer is None else answer.headers.get("retry-after", "")
    return min(float(said), SECONDS) if said.isdecimal() else PAUSE


def _read(answer: httpx.Response, server: str) -> Any:
    try:
        content = answer.json()
    except ValueError:
        content = {}
    if answer.is_success and content:
        return content
    said = content.get("error") if isinstance(content, dict) else None
    raise ClientError(f"{server} answers: {said or f'status {answer.status_code}'}")
