"""The pages on a server, at the same addresses as in the export."""

import json
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

from onco_gym.leaderboard.pages.site import FILES, HERE, PageError, Query, Site
from onco_gym.leaderboard.pages.sources import BoardSource

POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""What a page may load: nothing from outside, and nothing that is written into it."""
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


def make_routes(source: BoardSource) -> APIRouter:
    """Routes to every page of the boards of ``source``, for an app to include at its root, after its other routes."""
    site, router = Site(source), APIRouter(include_in_schema=False)

    @router.get("/")
    @router.get("/index.html")
    def index() -> Response:
        return _page(site, 0, site.index)

    @router.get("/about.html")
    def about() -> Response:
        return _page(site, 0, site.about)

    @router.get("/{name}.css")
    @router.get("/{name}.js")
    def file(name: str) -> Response:
        found = next((one for one in FILES if one.partition(".")[0] == name), None)
        if found is None:
            return _missing(site, 0)
        return FileResponse(HERE / found, media_type=FILES[found], headers={"Cache-Control": "max-age=300", **HEADERS})

    def table(board: str, page: int, sort: str, order: str, text: str, kind: str) -> Response:
        query = Query(sort[:40], "worst" if order == "worst" else "best", text[:80], kind[:40], page)
        return _page(site, 1, lambda: site.board(board, query))

    @router.get("/{board}/")
    @router.get("/{board}/index.html")
    def first(board: str, sort: str = "", order: str = "", text: str = "", kind: str = "") -> Response:
        return table(board, 1, sort, order, text, kind)

    @router.get("/{board}/page-{page}.html")
    def further(board: str, page: int, sort: str = "", order: str = "", text: str = "", kind: str = "") -> Response:
        return table(board, page, sort, order, text, kind)

    @router.get("/{board}/board.json")
    def board_json(board: str) -> Response:
        return _plain(site, 1, lambda: site.board_json(board))

    @router.get("/{board}/entries/{entry}.html")
    def entry(board: str, entry: str) -> Response:
        return _page(site, 2, lambda: site.entry(board, entry))

    @router.get("/{board}/entries/{entry}.json")
    def entry_json(board: str, entry: str) -> Response:
        return _plain(site, 2, lambda: site.entry_json(board, entry))

    @router.get("/{board}/entries/{entry}/journeys/{environment}/{patient}.html")
    def journey(board: str, entry: str, environment: str, patient: int) -> Response:
        return _page(site, 5, lambda: site.journey(board, entry, environment, patient))

    @router.get("/{board}/entries/{entry}/journeys/{environment}/{patient}.json")
    def journey_json(board: str, entry: str, environment: str, patient: int) -> Response:
        return _plain(site, 5, lambda: site.journey_json(board, entry, environment, patient))

    return router


def _page(site: Site, depth: int, make: Callable[[], str]) -> Response:
    """A page, ``depth`` folders below the root."""
    try:
        return HTMLResponse(make(), headers=HEADERS)
    except PageError:
        return _missing(site, depth)


def _plain(site: Site, depth: int, make: Callable[[], dict[str, Any]]) -> Response:
    try:
        return Response(json.dumps(make(), allow_nan=False), media_type="application/json", headers=HEADERS)
    except PageError:
        return _missing(site, depth)


def _missing(site: Site, depth: int) -> Response:
    return HTMLResponse(site.missing(depth), status_code=404, headers=HEADERS)
