"""Pages in a real browser: Debian's Chromium, or the one that $CHROMIUM names."""

import functools
import http.server
import os
import re
import threading
import time
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from made import BOARD
from paged import write_boards

from onco_gym.leaderboard.pages.export import build_site
from onco_gym.leaderboard.pages.routes import make_routes
from onco_gym.leaderboard.pages.sources import FolderSource

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
ARGUMENTS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
ENTRY = f"{1:012x}"
TABLE, ONE = f"{BOARD.name}/index.html", f"{BOARD.name}/entries/{ENTRY}.html"
JOURNEY = f"{BOARD.name}/entries/{ENTRY}/journeys/NSCLC-v0/4.html"
PHONE, DESK = {"width": 375, "height": 720}, {"width": 1280, "height": 900}

playwright = pytest.importorskip("playwright.sync_api")
if not Path(CHROMIUM).exists():
    pytest.skip(f"there is no Chromium at {CHROMIUM}: apt-get install chromium", allow_module_level=True)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing is printed."""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a file server that shows an exported site, below a folder."""
    folder = tmp_path_factory.mktemp("browser")
    for name, count in (("few", 6), ("many", 60)):
        write_boards(folder / f"boards-{name}", count)
        build_site(folder / name, FolderSource(folder / f"boards-{name}"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/few/"
    server.shutdown()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a server that makes the pages of the long table when they are asked for."""
    folder = tmp_path_factory.mktemp("served")
    write_boards(folder / "boards", 60)
    app = FastAPI()
    app.include_router(make_routes(FolderSource(folder / "boards")))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as tool:
        running = tool.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def visit(browser, address):
    """Opens a page; at the end nothing may have gone wrong, and nothing may have been asked of anybody else."""
    contexts, wrong = [], []

    def open_page(path, address=address, **options):
        contexts.append(browser.new_context(**{"viewport": DESK, **options}))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: None if asked.url.startswith((home(address), "data:")) else wrong.append(asked.url))
        page.goto(address + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def home(address):
    return re.match(r"http://[\d.:]+/", address).group()


def names(page):
    return page.locator(".standings tbody tr:visible .who > a").all_inner_texts()


def week(page):
    return page.locator(".scrubber output").inner_text()


def current(page):
    return page.locator(".decision").evaluate_all("all => all.filter((one) => one.checkVisibility()).map((one) => one.id)")


def test_a_column_sorts_the_table(visit):
    page = visit(TABLE)
    assert names(page)[:2] == ["policy 6", "policy 5"]
    head = page.locator("th[data-key=qalys]")
    head.locator("a").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert page.locator("[aria-sort]").count() == 1

    def values():
        return [float(one.get_attribute("data-v")) for one in page.locator("tbody tr td:nth-child(4)").all()]

    assert values() == sorted(values(), reverse=True)
    head.locator("a").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    page.locator("th[data-key=regret] a").click()  # lower is better
    assert page.locator("th[data-key=regret]").get_attribute("aria-sort") == "ascending"


def test_words_and_kinds_filter_the_table(visit):
    page = visit(TABLE)
    page.get_by_label("Find").fill("account3")
    assert names(page) == ["policy 3"]
    assert page.locator(".filter output").inner_text() == "1 entry"
    page.get_by_label("Find").fill("")
    page.get_by_label("Kind").select_option("reference")
    assert names(page) == ["Guideline"]


def test_a_long_table_is_sorted_as_a_whole(visit):
    page = visit(f"../many/{BOARD.name}/index.html")
    assert len(names(page)) == 50
    page.locator(".pager a[rel=next]").click()
    page.wait_for_url("**/page-2.html")
    assert "Page 2 of 2" in page.inner_text(".pager")
    page.locator("th[data-key=score] a").click()
    page.wait_for_function("document.querySelectorAll('.standings tbody tr').length === 61")
    assert len(set(names(page))) == 61
    page.get_by_label("Find").fill("account55")
    assert names(page) == ["policy 55"]


def test_from_the_boards_to_a_decision(visit, address):
    page = visit("index.html")
    page.get_by_role("link", name=BOARD.title, exact=True).click()
    page.get_by_role("link", name="policy 1", exact=True).click()
    page.wait_for_url(address + ONE)
    page.locator(".patients a").first.click()
    page.wait_for_url(address + JOURNEY)
    assert current(page) == ["decision-1", "guideline-1", "optimum-1"]
    scrubber = page.get_by_role("slider")
    scrubber.focus()
    before = page.locator(".cursor").bounding_box()["x"]
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert week(page) == "Week 21, month 5"
    assert current(page) == ["decision-2", "guideline-2", "optimum-1"]
    page.wait_for_function(f"document.querySelector('.cursor').getBoundingClientRect().x > {before} + 20")
    assert scrubber.get_attribute("aria-valuetext") == week(page)
    assert page.url.endswith("#decision-2")
    page.mouse.click(5, 5)
    page.keyboard.press("ArrowLeft")  # anywhere on the page
    assert week(page) != "Week 21, month 5"
    page.get_by_role("button", name="Later").click()
    assert week(page) == "Week 21, month 5"
    page.locator(".pager a[rel=next]").click()
    page.wait_for_url("**/7.html")


def test_a_decision_has_an_address(visit):
    page = visit(f"{JOURNEY}#decision-3")
    assert "decision-3" in current(page)
    page.wait_for_function("Math.abs(document.querySelector('.explorer').getBoundingClientRect().y) < 40")
    assert page.locator(".now-given li").all_inner_texts()[0].split("\n")[-1] == "Best supportive care"
    masked = page.locator("#decision-3 .masked").first
    assert "Not possible" in masked.inner_text()
    colours = [
        page.locator(f"#decision-3 .{kind}").first.evaluate("one => getComputedStyle(one).color") for kind in ("masked", "chosen")
    ]
    assert colours[0] != colours[1]
    page.locator(".track.guideline h3 a:visible").click()
    assert re.search(r"#guideline-\d$", page.url)
    page.locator(".journey a[href='#optimum-2']").click()
    assert "optimum-2" in current(page)


def test_a_server_sorts_and_filters_without_breaking_its_own_rules(visit, served):
    """The server's pages forbid everything that is written into them; the browser would complain."""
    page = visit(TABLE, served)
    page.locator("th[data-key=qalys] a").click()
    page.wait_for_url("**/index.html?sort=qalys")
    assert page.locator("th[data-key=qalys]").get_attribute("aria-sort") == "descending"
    page.locator(".pager a[rel=next]").click()
    page.wait_for_url("**/page-2.html?sort=qalys")
    page.get_by_label("Find").fill("account55")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/*text=account55*")
    assert names(page) == ["policy 55"]
    page.get_by_role("button", name="Switch between light and dark").click()
    page.goto(served + JOURNEY)
    before = page.locator(".cursor").bounding_box()["x"]
    page.get_by_role("button", name="Later").click()
    assert week(page) != "Week 0, month 0"
    page.wait_for_timeout(300)  # the cursor glides
    assert page.locator(".cursor").bounding_box()["x"] > before + 5


def test_pages_can_be_read_without_scripts(visit):
    page = visit(JOURNEY, java_script_enabled=False)
    assert page.locator(".decision:visible").count() == 9
    assert page.locator(".scrubber:visible").count() == 0
    page.locator(".journey a[href='#decision-2']").click()
    assert page.url.endswith("#decision-2")
    page = visit(TABLE, java_script_enabled=False)
    assert len(names(page)) == 7
    assert page.locator(".theme:visible").count() == 0


@pytest.mark.parametrize("path", ["index.html", "about.html", TABLE, ONE, JOURNEY])
def test_a_phone_needs_no_sideways_scrolling(visit, path):
    page = visit(path, viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert page.locator("h1").bounding_box()["width"] <= 375
    if path == TABLE:
        scroll = page.locator(".scroll")
        assert scroll.evaluate("one => one.scrollWidth > one.clientWidth")
        scroll.evaluate("one => one.scrollBy(500, 0)")
        assert page.locator("tbody .name").first.bounding_box()["x"] < 30  # the names stay


def test_dark_mode_follows_the_system_and_can_be_chosen(visit):
    def lightness(page):
        return sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]))

    page = visit(TABLE, color_scheme="dark")
    assert lightness(page) < 100
    page = visit(TABLE, color_scheme="light")
    assert lightness(page) > 600
    page.get_by_role("button", name="Switch between light and dark").click()
    assert lightness(page) < 100
    page.get_by_role("link", name="policy 1", exact=True).click()
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert lightness(page) < 100


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(visit, scheme):
    """Contrast of at least 4.5 to 1, as WCAG AA asks for."""
    page = visit(TABLE, color_scheme=scheme)
    measured = page.evaluate(
        """() => {
          const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
          const light = (colour) => {
            canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
            const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => linear(v / 255));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const probe = document.body.appendChild(document.createElement("i"));
          const value = (name) => { probe.style.color = `var(${name})`; return light(getComputedStyle(probe).color); };
          const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          const found = {};
          for (const back of ["--paper", "--panel"])
            for (const front of ["--ink", "--soft", "--accent", "--bad", "--good", "--warn"])
              found[front + back] = ratio(value(front), value(back));
          for (const back of ["--c0", "--c1", "--c2", "--c3", "--c4"])
            found["--in" + back] = ratio(value("--in"), value(back));
          return found;
        }"""
    )
    assert len(measured) == 17
    assert {name: ratio for name, ratio in measured.items() if ratio < 4.5} == {}
