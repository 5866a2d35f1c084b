"""Pages as text: what they say, to whom, and that they need nothing from anywhere else."""

import html
import json
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import urljoin

import numpy as np
import pytest
from conftest import ROOT, refuses
from fastapi import FastAPI
from fastapi.testclient import TestClient
from made import BOARD, drawn, entry, judgement
from paged import exploration, track, write_boards

from onco_gym.foundation.intervals import Interval
from onco_gym.foundation.results import from_plain
from onco_gym.leaderboard.boards import BoardError, write_season
from onco_gym.leaderboard.entries import Entry, write_entry
from onco_gym.leaderboard.exchange import import_folder
from onco_gym.leaderboard.explorations import ExplorationError, Explored
from onco_gym.leaderboard.manifests import Manifest
from onco_gym.leaderboard.metrics import METRICS
from onco_gym.leaderboard.pages.export import build_site
from onco_gym.leaderboard.pages.numbers import number, time_marks
from onco_gym.leaderboard.pages.routes import make_routes
from onco_gym.leaderboard.pages.site import PageError, Query, Site
from onco_gym.leaderboard.pages.sources import FolderSource
from onco_gym.leaderboard.pages.timelines import journey_chart
from onco_gym.leaderboard.standings import Row, Standings
from onco_gym.leaderboard.store import Store

LARGEST = 200_000
"""Bytes of a page."""
EVIL = Manifest(
    name="<script>alert(1)</script>",
    authors=['"><img src=x onerror=alert(2)>', "Robert'); DROP TABLE entries;--"],
    link='https://example.org/"onmouseover=alert(3)//<b>',
    about="{{ 7 * 191 }} </title><svg onload=alert(4)> & more",
    licence="<b>MIT</b>",
    training_data="<!-- --><iframe src='https://example.org'>",
)


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    @property
    def ids(self):
        return {found["id"] for _, found in self.tags if "id" in found}

    @property
    def links(self):
        return [found["href"] for tag, found in self.tags if tag in ("a", "link") and "href" in found]


@pytest.fixture(scope="module")
def boards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boards")
    write_boards(folder, **{f"{2:012x}": {"manifest": EVIL}})
    return folder


@pytest.fixture(scope="module")
def source(boards):
    return FolderSource(boards)


@pytest.fixture(scope="module")
def site(source):
    return Site(source)


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    build_site(folder, source)
    return folder


@pytest.fixture(scope="module")
def many(source):
    """The same board with 10,000 entries."""
    few = source.standings(BOARD.name)
    rng = np.random.default_rng(0)

    def row(place):
        like = few.rows[place % len(few.rows)]
        name = like.entry.manifest.model_copy(update={"name": f"policy {place}"})
        return Row(
            replace(like.entry, id=f"{place:012x}", manifest=name), {**like.figures, "qalys": drawn_figure(rng)}, (1, 2), 3
        )

    class Many(FolderSource):
        def __init__(self):
            self.rows = Standings(few.board, tuple(map(row, range(10_000))), 10_000, 10_000)

        def boards(self):
            return [few.board]

        def standings(self, board):
            return self.rows

    return Many()


def drawn_figure(rng):
    value = rng.uniform(0, 3)
    return Interval(value, value - 0.1, value + 0.1)


def pages(folder):
    return sorted(folder.rglob("*.html"))


# ------------------------------------------------------------------------------------------------ what every page keeps


def test_every_link_leads_somewhere(built):
    followed = 0
    for path in pages(built):
        found = Page(path.read_text())
        for link in found.links:
            address, _, anchor = link.partition("#")
            address = address.partition("?")[0]
            if address.startswith(("https:", "data:")):
                continue
            target = (path.parent / address).resolve() if address else path
            assert target.is_relative_to(built.resolve()), f"{path} leads out to {link}"
            assert target.is_file(), f"{path} leads to {link}"
            if anchor:
                assert anchor in Page(target.read_text()).ids, f"{path} leads to {link}"
            followed += 1
    assert followed > 200


def test_nothing_is_loaded_from_outside(built):
    for path in pages(built):
        for tag, found in Page(path.read_text()).tags:
            assert tag not in ("iframe", "object", "embed", "img", "base", "style"), f"{path}: {tag}"
            assert not [name for name in found if name.startswith("on") or name in ("style", "srcset", "background")], found
            for name in ("src", "action", "data", "poster"):
                assert not found.get(name, "").startswith(("http", "//", "javascript"))
            if tag == "link":
                assert found["href"].endswith("style.css") or found["href"] == "data:,"
            if tag == "script":
                assert found["src"].endswith("script.js")
    assert not re.search(r"https?://|@import", (built / "style.css").read_text() + (built / "script.js").read_text())


def test_pages_are_small_and_whole(built):
    for path in pages(built):
        text = path.read_text()
        assert len(text.encode()) < LARGEST, path
        assert text.count("<h1") == 1
        assert "Research software, not for treating patients." in text
        ids = re.findall(r'\sid="([^"]+)"', text)
        assert len(ids) == len(set(ids)), f"{path}: an id twice"
        for tag, found in Page(text).tags:
            if tag == "svg":
                assert found.get("aria-hidden") == "true" or found.get("role") in ("img", "group"), f"{path}: {found}"


def test_drawings_say_what_they_show(built):
    drawings = re.findall(r'<svg[^>]*class="chart.*?</svg>', "".join(path.read_text() for path in pages(built)), re.S)
    assert len(drawings) > 5
    for one in drawings:
        assert re.search(r"<title>.+?</title><desc>.+?</desc>", one, re.S)


# ------------------------------------------------------------------------------------------------ what they say


def test_the_table_has_all_figures(site, source):
    text = Page(site.board(BOARD.name)).text
    for row in source.standings(BOARD.name).rows:
        assert html.unescape(row.entry.manifest.name) in text
        for name in BOARD.metrics:
            figure, metric = row.figures[name], METRICS[name]
            assert number(100 * figure.value if metric.share else figure.value, metric.digits) in text
    for name in BOARD.metrics:
        assert METRICS[name].about in text
    assert "higher is better" in text
    assert "lower is better" in text
    assert BOARD.season.commitment in text


def test_efficient_entries_are_marked_where_there_are_several_objectives(source):
    single = source.standings(BOARD.name)
    board = BOARD.model_copy(update={"track": "multi-objective"})

    class Several(FolderSource):
        def __init__(self):
            pass

        def boards(self):
            return [board]

        def standings(self, name):
            rows = [replace(row, efficient=place == 1) for place, row in enumerate(single.rows)]
            return replace(single, board=board, rows=tuple(rows))

    site = Site(Several())
    text = site.board(BOARD.name)
    marked = re.findall(r'entries/(\w{12})\.html">[^<]*</a> <span class="front"', text)
    assert marked == [single.rows[1].entry.id]
    assert "marks efficient entries" in text
    assert [row["efficient"] for row in site.board_json(BOARD.name)["rows"]][:3] == [False, True, False]
    assert 'class="front"' not in Site(source).board(BOARD.name)


def test_submitters_are_told_who_runs_and_who_reads_what(site):
    text = Page(site.about()).text
    assert "Its authors ran it themselves." in text
    assert "get its policy file when the season has ended" in text
    assert "collect` puts\nthe policy file into the board's folder" in (ROOT / "docs" / "leaderboard.md").read_text()


def test_an_entry_shows_everything(site):
    text = Page(site.entry(BOARD.name, f"{1:012x}")).text
    for words in ("sex: female", "older", "Even-handedness", "Energy and carbon", "Robustness", "Patient 7", "63 years, female"):
        assert words in text
    assert f"{900:012x}" in text  # a submission whose score is not published is counted
    assert "its score is not published" in text


def test_a_journey_shows_every_decision(site):
    found = Page(site.journey(BOARD.name, f"{1:012x}", "NSCLC-v0", 7))
    assert {"decision-1", "decision-3", "guideline-1", "optimum-3"} <= found.ids
    for words in (
        "Pembrolizumab with platinum",
        "Not possible: Crizotinib",
        "70%",
        "Preferred",
        "+0.200",
        "died in month 14",
        "brain metastases",
    ):
        assert words in found.text
    text = site.journey(BOARD.name, f"{1:012x}", "NSCLC-v0", 7)
    for words in ("+20%", "−30%", "Targeted therapy", 'class="death"', 'class="on"', "Chemotherapy"):
        assert words in text


def test_a_line_begins_with_another_drug():
    stamp = judgement([1.0]).stamp
    lines = {}
    for name, regimens in (("paused", (1, 0, 1)), ("changed", (1, 2, 0)), ("untreated", (0, 0, 0))):
        shown = exploration(stamp)
        tracks = tuple(track(who, 18.0, True, regimens) for who in ("entry", "guideline", "optimum"))
        chart = journey_chart(shown, replace(shown.patients[0], tracks=tracks))
        lines[name] = chart.count('class="sum"') / 3
        assert chart.count('class="scan"') == 9
    assert lines == {"paused": 2, "changed": 3, "untreated": 1}


def test_an_entry_with_a_score_alone_has_a_page(tmp_path):
    write_boards(tmp_path, 1)
    write_entry(tmp_path / BOARD.name, bare := entry(77, drawn(40, 1), "newcomer", policies={}), {})
    site = Site(FolderSource(tmp_path))
    assert "policy 77" in site.board(BOARD.name)
    assert "There is no explorer of journeys" in site.entry(BOARD.name, bare.id)


def test_plain_values_are_those_of_the_source(site, source, built):
    plain = json.loads((built / BOARD.name / "board.json").read_text())
    assert [row["entry"] for row in plain["rows"]] == [row.entry.id for row in source.standings(BOARD.name).rows]
    one = f"{1:012x}"
    again = Entry.from_json(json.loads((built / BOARD.name / "entries" / f"{one}.json").read_text()))
    assert again.judgements[0].returns.tolist() == source.entry(one).judgements[0].returns.tolist()
    journey = json.loads((built / BOARD.name / "entries" / one / "journeys" / "NSCLC-v0" / "4.json").read_text())
    assert from_plain(Explored, journey["patient"]) == source.explorations(one)[0].patients[0]


def test_numbers_are_as_people_write_them():
    assert [number(-0.0004, 2), number(-1.25, 2), number(1234.5, 0), number(float("inf")), number(float("nan"))] == [
        *("0.00", "−1.25", "1,234", "not reached", "–")
    ]
    assert number(0.5, 1, sign=True) == "+0.5"
    for weeks in (5, 60, 261, 1500):
        assert 1 < len(time_marks(weeks)) < 12 or weeks == 5


# ------------------------------------------------------------------------------------------------ what they hide


def test_hostile_words_are_only_words(built):
    seen = 0
    for path in pages(built):
        text = path.read_text()
        found = Page(text)
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "<svg onload" not in text
        assert "1337" not in text
        for tag, attributes in found.tags:
            if tag == "a" and attributes["href"].startswith("http"):
                assert attributes["href"] == EVIL.link
                assert attributes["rel"] == "nofollow noopener"
                seen += 1
    assert seen == 1
    entry = Page((built / BOARD.name / "entries" / f"{2:012x}.html").read_text())
    assert EVIL.name in entry.text
    assert EVIL.about in entry.text


def test_of_what_is_not_published_only_its_state_is_shown(site):
    hidden = f"{900:012x}"
    text = site.entry(BOARD.name, hidden)
    assert "was judged; its score is not published" in text
    assert "policy 900" not in text + site.entry(BOARD.name, f"{1:012x}") + site.board(BOARD.name)
    assert set(site.entry_json(BOARD.name, hidden)) == {"id", "board", "season", "state", "published", "submitted"}


def test_single_patients_are_hidden_while_a_season_is_open(tmp_path):
    write_boards(tmp_path, 1)
    shown = Site(FolderSource(tmp_path)).entry_json(BOARD.name, f"{1:012x}")
    write_season(tmp_path / BOARD.name, BOARD.season.model_copy(update={"secret": None, "closed": None}))
    site = Site(FolderSource(tmp_path))
    hidden = site.entry_json(BOARD.name, f"{1:012x}")
    assert len(shown["judgements"][0]["returns"]) > 100 > len(hidden["judgements"][0]["returns"])
    assert "Open." in site.board(BOARD.name)


def test_what_does_not_exist_is_refused(site):
    one = f"{1:012x}"
    for make in (
        lambda: site.board("nowhere"),
        lambda: site.board(BOARD.name, Query(page=9)),
        lambda: site.entry(BOARD.name, "f" * 12),
        lambda: site.journey(BOARD.name, one, "NSCLC-v0", 99),
        lambda: site.journey(BOARD.name, one, "Breast-v0", 4),
        lambda: site.journey(BOARD.name, f"{900:012x}", "NSCLC-v0", 4),
    ):
        refuses(PageError, "there is no|has 1 pages", make)


# ------------------------------------------------------------------------------------------------ many entries


def shown(text):
    return re.findall(r'entries/([0-9a-f]{12})\.html">policy', text)


def test_a_long_table_is_quick_and_small(many):
    site = Site(many)
    site.board(BOARD.name)  # templates are read once
    for query in (Query(), Query(sort="qalys", text="policy 99"), Query(page=200), Query(order="worst", kind="verified")):
        begun = time.process_time()  # other tests run beside this one
        text = site.board(BOARD.name, query)
        assert time.process_time() - begun < 0.3
        assert len(text.encode()) < LARGEST
        assert 1 <= len(shown(text)) <= 50


def test_the_server_sorts_filters_and_pages(many):
    site, rows = Site(many), many.rows.rows
    by_qalys = [row.entry.id for row in sorted(rows, key=lambda row: -row.figures["qalys"].value)]
    assert shown(site.board(BOARD.name, Query(sort="qalys"))) == by_qalys[:50]
    assert shown(site.board(BOARD.name, Query(sort="qalys", page=2))) == by_qalys[50:100]
    assert shown(site.board(BOARD.name, Query(sort="qalys", order="worst")))[:3] == by_qalys[::-1][:3]
    only = [row.entry.id for row in rows if "policy 777" in row.entry.manifest.name and row.entry.kind == "reference"]
    assert shown(site.board(BOARD.name, Query(text="POLICY 777", kind="reference"))) == only
    assert "No entry fits." in site.board(BOARD.name, Query(text="nobody has this name"))
    assert 'href="page-3.html?sort=qalys&amp;text=policy"' in site.board(BOARD.name, Query(sort="qalys", text="policy", page=2))


# ------------------------------------------------------------------------------------------------ where they are


def test_the_server_shows_the_same_pages(source, built):
    app = FastAPI()
    app.include_router(make_routes(source))
    client = TestClient(app)
    for path in [path for path in built.rglob("*.*") if path.is_file()]:
        address = str(path.relative_to(built))
        answer = client.get(f"/{address}")
        assert answer.status_code == 200, address
        assert answer.text.replace('data-static="no"', 'data-static="yes"') == path.read_text(), address
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert client.get("/").text == client.get("/index.html").text
    assert client.get(f"/{BOARD.name}/").text == client.get(f"/{BOARD.name}/index.html").text
    for address in ("/nowhere/", "/other.css", f"/{BOARD.name}/entries/zzz.html", f"/{BOARD.name}/page-0.html"):
        answer = client.get(address)
        assert (answer.status_code, "There is no such page" in answer.text) == (404, True), address
        for link in Page(answer.text).links:
            assert link == "data:," or link[0] == "#" or client.get(urljoin(address, link)).status_code == 200, (address, link)
    found = client.get(f"/{BOARD.name}/", params={"text": EVIL.name, "sort": "<b>", "kind": "'"})
    assert "<script>alert" not in found.text


def test_the_command_builds_a_site(printed, refused, boards, tmp_path):
    assert printed("site", "build", "-o", tmp_path / "site", "--boards", boards / BOARD.name, "-q").startswith("wrote ")
    assert (tmp_path / "site" / BOARD.name / "index.html").is_file()
    refused("is not a folder of boards", "site", "build", "-o", "site", "--boards", tmp_path / "site", "-q")


def test_a_site_can_be_built_from_a_store(printed, boards, source, tmp_path):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    store = Store(url)
    import_folder(store, boards / BOARD.name, source.boards()[0])
    store.close()
    printed("site", "build", "-o", tmp_path / "site", "--boards", boards, "--store", url, "-q")
    page = Page((tmp_path / "site" / BOARD.name / "entries" / f"{1:012x}.html").read_text())
    assert "policy 1" in page.text
    assert re.search(r"Journal .* received", page.text)
    assert (tmp_path / "site" / BOARD.name / "entries" / f"{1:012x}" / "journeys" / "NSCLC-v0" / "7.html").is_file()


def test_damaged_journeys_are_refused_by_name(tmp_path):
    write_boards(tmp_path, 1)
    path = tmp_path / BOARD.name / "journeys" / f"{1:012x}.json"
    path.write_text("[{}]")
    refuses(ExplorationError, f"{1:012x}.json: 0.name", FolderSource(tmp_path).explorations, f"{1:012x}")
    refuses(BoardError, "is not a folder of boards", FolderSource, tmp_path / "nothing")
