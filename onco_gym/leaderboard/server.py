"""The server: it takes submissions, and shows boards and entries as pages and as JSON."""

import functools
import html
import logging
import math
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException as AnyHTTPException

from onco_gym.foundation.results import to_plain
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.leaderboard.boards import Board, BoardError
from onco_gym.leaderboard.bodies import read_proposal
from onco_gym.leaderboard.entries import Entry
from onco_gym.leaderboard.limits import Limiter
from onco_gym.leaderboard.monitoring import Monitor
from onco_gym.leaderboard.pages.routes import HEADERS as PAGE_HEADERS
from onco_gym.leaderboard.pages.routes import make_routes
from onco_gym.leaderboard.publishing import Published
from onco_gym.leaderboard.standings import Row
from onco_gym.leaderboard.store import CapError, Store, SubmissionError, check_open
from onco_gym.leaderboard.tokens import LONGEST, find_account
from onco_gym.leaderboard.validating import validate
from onco_gym.version import __version__

MOST = 500
"""Rows of an answer."""
AGAIN = 15
"""Seconds after which to ask again while another policy is validated."""
REQUESTS = (200, 20.0)
"""Requests from an address: how many at once, and how many more a second."""
STRANGERS = (20, 0.2)
"""Requests with a wrong token from an address: how many at once, and how many more a second."""
SUBMISSIONS = (20, 0.2)
"""Submissions and validations of an account: how many at once, and how many more a second."""
HEADERS = {**PAGE_HEADERS, "X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin"}
LOG = logging.getLogger("onco_gym.leaderboard")
_BODY = {
    "type": "object",
    "required": ["manifest", "policies"],
    "additionalProperties": False,
    "properties": {
        "manifest": {"type": "object", "description": "name, authors, link, about, training_data, training_energy_kwh, licence"},
        "policies": {
            "type": "object",
            "description": "a policy file (ONNX) in base64 for each environment of the board, by its id",
            "additionalProperties": {"type": "string", "contentEncoding": "base64"},
        },
    },
}
_SENDS = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _BODY}}},
    "security": [{"token": []}],
}

_ID = "^[0-9a-f]{12}$"
EntryId = Annotated[str, Path(pattern=_ID, description="12 hexadecimal digits")]
EntryOnly = Annotated[str | None, Query(pattern=_ID, description="the row of this entry only")]
AccountName = Annotated[str | None, Query(pattern="^[a-z0-9_-]{1,40}$", description="submissions of this account only")]
Start = Annotated[int, Query(ge=0, le=10**9, description="how many to leave out at the beginning")]
Most = Annotated[int, Query(ge=1, le=MOST, description="how many at most")]


def make_app(store: Store, boards: Iterable[Board]) -> FastAPI:
    """The server of a store.

    Args:
        store: where submissions are kept.
        boards: that it shows. They are looked at again for every request.
    """
    app = FastAPI(title="onco_gym leaderboards", version=__version__, docs_url=None, redoc_url=None)
    published, monitor = Published(store, boards), Monitor(store)
    _guard(app, monitor)
    _explain_errors(app)
    _add_boards(app, published)
    _add_entries(app, published)
    _add_submissions(app, store, published)
    _add_operations(app, store, monitor)
    app.include_router(make_routes(published))
    return app


# ------------------------------------------------------------------------------------------------ around all requests


def _guard(app: FastAPI, monitor: Monitor) -> None:
    """Count every request, limit how many an address makes, and say in every answer what browsers must not do with it."""
    limiter = Limiter(*REQUESTS)

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        begun = time.perf_counter()
        wait = limiter.wait(_address(request))
        try:
            response = _error(429, "too many requests from this address", wait) if wait else await call_next(request)
        except Exception:
            LOG.exception("%s %s failed", request.method, request.url.path)
            response = _error(500, "an error of ours, which is in the log of the server")
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        route = getattr(request.scope.get("route"), "path", "other")
        monitor.count(request.method, route, response.status_code, time.perf_counter() - begun)
        return response


def _explain_errors(app: FastAPI) -> None:
    @app.exception_handler(AnyHTTPException)
    async def refused(_: Request, error: AnyHTTPException) -> Response:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return _error(422, f"{first['loc'][-1]}: {first['msg']}")

    @app.exception_handler(BoardError)
    async def unknown(_: Request, error: BoardError) -> Response:
        return _error(404, str(error))

    @app.exception_handler(CapError)
    async def capped(_: Request, error: CapError) -> Response:
        return _error(429, str(error))

    @app.exception_handler(SubmissionError)
    async def unfit(_: Request, error: SubmissionError) -> Response:
        return _error(422, str(error))

    @app.exception_handler(SQLAlchemyError)
    async def down(_: Request, error: SQLAlchemyError) -> Response:
        LOG.error("the store does not answer", exc_info=error)
        return _error(503, "the store does not answer: try again in a moment")


def _error(status: int, text: str, wait: float = 0.0) -> JSONResponse:
    return JSONResponse({"error": text}, status, {"Retry-After": str(math.ceil(wait))} if wait else None)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


# ------------------------------------------------------------------------------------------------ reading


def _add_boards(app: FastAPI, published: Published) -> None:
    @app.get("/api/boards", summary="All boards")
    def boards() -> Any:
        return [one.model_dump(mode="json") for one in published.boards()]

    @app.get("/api/boards/{name}", summary="The table of a board, best first")
    def standings(name: str, entry: EntryOnly = None, start: Start = 0, most: Most = 100) -> Any:
        found = published.standings(name)
        rows = [row for row in found.rows if entry in (None, row.entry.id)]
        return {
            "board": found.board.model_dump(mode="json"),
            "submissions": found.submissions,
            "accounts": found.accounts,
            "total": len(rows),
            "rows": [_row(row) for row in rows[start : start + most]],
        }

    @app.get("/api/boards/{name}/entries", summary="All submissions of the season, newest first, whatever became of them")
    def entries(name: str, account: AccountName = None, start: Start = 0, most: Most = 100) -> Any:
        found = published.entries(name, account, start, most)
        return {"total": published.count(name, account), "entries": [_head(one) for one in found]}


def _add_entries(app: FastAPI, published: Published) -> None:
    def entry_of(entry: EntryId) -> Entry:
        found = published.entry(entry)
        if found is None:
            raise HTTPException(404, f"there is no entry {entry!r}")
        return found

    @app.get("/api/entries/{entry}", summary="A submission, with its figures and its manifest if they are published")
    def entry(found: Annotated[Entry, Depends(entry_of)]) -> Any:
        return found.to_json()

    @app.get("/api/entries/{entry}/log", summary="Where a submission stands, and every step on the way")
    def log(found: Annotated[Entry, Depends(entry_of)]) -> Any:
        return {**_head(found), "steps": [to_plain(step) for step in published.journal(found.id)]}


def _head(entry: Entry) -> dict[str, Any]:
    plain = to_plain(replace(entry, judgements=()))
    names = ("id", "board", "season", "account", "kind", "submitted", "state", "reason", "published")
    return {**{name: plain[name] for name in names}, "name": entry.manifest.name, "authors": entry.manifest.authors}


def _row(row: Row) -> dict[str, Any]:
    figures = {name: figure.to_json() for name, figure in row.figures.items()}
    found = {"rank": row.rank, "place": row.place, "efficient": row.efficient, "figures": figures, "submissions": row.submissions}
    return {**_head(row.entry), **found}


# ------------------------------------------------------------------------------------------------ submitting


def _add_submissions(app: FastAPI, store: Store, published: Published) -> None:
    strangers, limiter, validating = Limiter(*STRANGERS), Limiter(*SUBMISSIONS), threading.Lock()

    def sender(request: Request) -> str:
        """The account that the request's token belongs to."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        account = find_account(store, token) if scheme.lower() == "bearer" and len(token) <= LONGEST else None
        if account is None:
            if wait := strangers.wait(_address(request)):
                raise HTTPException(429, "too many wrong tokens from this address", {"Retry-After": str(math.ceil(wait))})
            raise HTTPException(401, "expected a valid token, as in Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        if wait := limiter.wait(account):
            raise HTTPException(429, f"too many requests of {account}", {"Retry-After": str(math.ceil(wait))})
        return account

    def open_board(name: str) -> Board:
        board = published.board(name)
        check_open(board)
        return board

    @app.post("/api/boards/{name}/submissions", summary="Submit policies", status_code=202, openapi_extra=_SENDS)
    async def submit(
        request: Request, account: Annotated[str, Depends(sender)], board: Annotated[Board, Depends(open_board)]
    ) -> Any:
        """The answer is the submission. The same policies sent again are the same submission."""
        manifest, policies = await read_proposal(request, board)
        board = open_board(board.name)  # the season may have ended while the body came
        return _head(await run_in_threadpool(store.submit, board, account, manifest, policies))

    @app.post("/api/boards/{name}/validate", summary="What would be said of policies, without submitting", openapi_extra=_SENDS)
    async def check(request: Request, account: Annotated[str, Depends(sender)], name: str) -> Any:
        """The answer says for each environment whether the policy is accepted, and why not."""
        board = published.board(name)
        proposal = await read_proposal(request, board)

        def verdicts() -> dict[str, Any]:
            if not validating.acquire(blocking=False):  # to wait would take a thread from other requests
                raise HTTPException(503, "other policies are being validated: try again in a moment", {"Retry-After": str(AGAIN)})
            try:
                return {
                    name: to_plain(validate(_engine(name), policy, board.patients)) for name, policy in proposal.policies.items()
                }
            finally:
                validating.release()

        return await run_in_threadpool(verdicts)


@functools.lru_cache(maxsize=16)
def _engine(environment: str) -> Engine:
    return make_engine(environment, split="validation")


# ------------------------------------------------------------------------------------------------ operating


def _add_operations(app: FastAPI, store: Store, monitor: Monitor) -> None:
    @app.get("/health", summary="Whether the server and its store answer")
    def health() -> Any:
        waiting = sum(number for (_, state), number in store.states().items() if state == "waiting")
        return {"status": "ok", "version": __version__, "waiting": waiting}

    @app.get("/metrics", summary="For Prometheus", response_class=Response)
    def metrics() -> Response:
        return Response(monitor.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(_describe(app.openapi()))

    described = app.openapi

    def openapi() -> dict[str, Any]:
        content = described()
        schemes = content.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes["token"] = {"type": "http", "scheme": "bearer"}
        return content

    app.openapi = openapi  # type: ignore[method-assign]  # the way that FastAPI documents


def _describe(openapi: dict[str, Any]) -> str:
    """A page that lists the operations."""
    lines = []
    for path, operations in openapi["paths"].items():
        for method, one in operations.items():
            needs = " Needs a token." if one.get("security") else ""
            text = f"{one['summary']}. {one.get('description', '')}{needs}"
            address = re.sub(r"(\{\w+\})", r"<var>\1</var>", html.escape(path))
            lines.append(f"<dt><code>{method.upper()} {address}</code></dt>\n<dd>{html.escape(' '.join(text.split()))}</dd>")
    title = html.escape(openapi["info"]["title"])
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}: API</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="stylesheet" href="style.css">\n'
        f"</head>\n<body>\n<main>\n<h1>API</h1>\n<p>Answers are JSON. An error is an object with <code>error</code>, one line of "
        'text. Tools can read <a href="openapi.json">openapi.json</a>.</p>\n<dl>\n' + "\n".join(lines) + "\n</dl>\n</main>\n"
        "</body>\n</html>\n"
    )
