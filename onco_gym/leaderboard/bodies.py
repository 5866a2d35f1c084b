"""Bodies of requests with a submission: bounded before they are read, and checked before anything is made of them."""

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import HTTPException, Request
from fastapi.concurrency import run_in_threadpool

from onco_gym.agents.onnxfile import LARGEST
from onco_gym.foundation.words import shown
from onco_gym.leaderboard.boards import Board
from onco_gym.leaderboard.manifests import MOST, Manifest, ManifestError, make_manifest

SECONDS = 120.0
"""Time in which a body must have come."""
_HANG_UP = {"Connection": "close"}  # else the server would go on reading, only to throw it away


class Proposal(NamedTuple):
    """What a request submits: a manifest, and a policy for each environment of a board."""

    manifest: Manifest
    policies: Mapping[str, bytes]


async def read_proposal(request: Request, board: Board) -> Proposal:
    """The submission in the body of a request.

    Raises:
        HTTPException: if the body is too large, too slow, compressed, or not a submission to the board.
    """
    for name, wanted in (("content-type", "application/json"), ("content-encoding", "identity")):
        given = request.headers.get(name, wanted).split(";")[0].strip().lower()
        if given != wanted:
            raise HTTPException(415, f"{name} is {shown(given)}, expected {wanted}")
    most = len(board.environments) * (4 * LARGEST // 3 + 200) + MOST
    body = await _read(request, most)
    return await run_in_threadpool(_parse, body, board)


async def _read(request: Request, most: int) -> bytes:
    too_large = HTTPException(413, f"the body has more than {most} bytes", _HANG_UP)
    given = request.headers.get("content-length", "0")
    if not given.isdecimal() or len(given) > 18 or int(given) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        raise HTTPException(408, f"the body did not come within {SECONDS:.0f} seconds", _HANG_UP) from None
    return bytes(body)


def _parse(body: bytes, board: Board) -> Proposal:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON") from None
    if not isinstance(content, dict) or set(content) != {"manifest", "policies"}:
        raise HTTPException(422, 'the body is not a submission: expected {"manifest": {...}, "policies": {environment: base64}}')
    try:
        return Proposal(make_manifest(content["manifest"]), _policies(content["policies"], board))
    except ManifestError as error:
        raise HTTPException(422, str(error)) from None


def _policies(content: Any, board: Board) -> dict[str, bytes]:
    if not isinstance(content, dict) or set(content) != set(board.environments):
        given = sorted(content) if isinstance(content, dict) else content
        raise HTTPException(422, f"there are policies for {shown(given)}, expected {board.environments}")
    found = {}
    for environment in board.environments:
        try:
            found[environment] = base64.b64decode(content[environment], validate=True)
        except (TypeError, ValueError):
            raise HTTPException(422, f"the policy for {environment} is not base64") from None
        if not 0 < len(found[environment]) <= LARGEST:
            size = len(found[environment])
            raise HTTPException(422, f"the policy for {environment} has {size} bytes, expected 1 to {LARGEST}")
    return found
