"""Photograph the pages of the shipped boards: docs/images/leaderboard-*.png.

It needs Chromium, at /usr/bin/chromium or where $CHROMIUM says, and the fonts Inter and Charis SIL for the looks.
"""

import functools
import http.server
import io
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from PIL import Image
from playwright.sync_api import sync_playwright

from onco_gym.foundation.files import replacing
from onco_gym.leaderboard.pages.export import build_site
from onco_gym.leaderboard.pages.sources import FolderSource
from pages import IMAGES, parser

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
ARGUMENTS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
BOARD, ENVIRONMENT, NAME, PATIENT = "nsclc-2026", "NSCLC-v0", "Behaviour cloning", 5
"""The board, its environment, the entry, and the place of the patient whose journey is shown."""
COLOURS = 256
"""Colours of a picture; flat pages need no more."""


class Shot(NamedTuple):
    """A picture: its name, the page, the part at its top, and how it is looked at."""

    name: str
    page: str
    part: str = "header"
    width: int = 1280
    height: int = 900
    scheme: str = "light"


def shots(source: FolderSource) -> list[Shot]:
    """The pictures."""
    rows = source.standings(BOARD).rows
    entry = next((row.entry for row in rows if row.entry.manifest.name == NAME), rows[0].entry)
    patient = source.explorations(entry.id)[0].patients[PATIENT].number
    page = f"{BOARD}/entries/{entry.id}"
    journey = f"{page}/journeys/{ENVIRONMENT}/{patient}.html#decision-2"
    return [
        Shot("boards", "index.html", height=1000),
        Shot("table", f"{BOARD}/index.html"),
        Shot("entry", f"{page}.html", ".environment", height=1240),
        Shot("journey", journey, ".explorer", height=1180),
        Shot("dark", journey, ".headline", height=1180, scheme="dark"),
        Shot("phone", journey, ".explorer", 375, 812),
    ]


@contextmanager
def served(folder: str) -> Iterator[str]:
    """The address of a file server."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def photograph(browser: Any, address: str, shot: Shot) -> None:
    """Take a picture, and write its file."""
    size = {"width": shot.width, "height": shot.height}
    context = browser.new_context(viewport=size, color_scheme=shot.scheme, device_scale_factor=2 if shot.width < 600 else 1)
    page = context.new_page()
    page.goto(address + shot.page, wait_until="load")
    page.wait_for_timeout(300)
    page.evaluate("part => document.querySelector(part).scrollIntoView()", shot.part)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    with replacing(IMAGES / f"leaderboard-{shot.name}.png") as temporary:
        picture.save(temporary, format="PNG", optimize=True)
    context.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Take all pictures."""
    parser(__file__, __doc__).parse_args(arguments)
    source = FolderSource()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tool:
        build_site(folder, source)
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        with served(folder) as address:
            for shot in shots(source):
                photograph(browser, address, shot)
        browser.close()


if __name__ == "__main__":
    main()
