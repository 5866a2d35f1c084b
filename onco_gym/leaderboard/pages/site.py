"""Every page as text, from a :class:`~onco_gym.leaderboard.pages.sources.BoardSource`.

The server and the export give pages the same addresses, and all links are relative:

=====================================================  ==========================================
``index.html``, ``about.html``                         the boards; how they work
``BOARD/index.html``, ``BOARD/page-2.html``            the table
``BOARD/board.json``                                   the same as plain values
``BOARD/entries/ID.html``, ``.json``                   an entry
``BOARD/entries/ID/journeys/NSCLC-v0/7.html``          a patient's journeys, also ``.json``
=====================================================  ==========================================
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import jinja2

from onco_gym.foundation.intervals import Interval
from onco_gym.foundation.results import to_plain
from onco_gym.leaderboard.boards import Board
from onco_gym.leaderboard.drugs import CLASSES
from onco_gym.leaderboard.entries import Entry, while_secret
from onco_gym.leaderboard.explorations import Exploration, Explored
from onco_gym.leaderboard.judgements import Judgement, overall
from onco_gym.leaderboard.metrics import METRICS
from onco_gym.leaderboard.pages import numbers
from onco_gym.leaderboard.pages.cohorts import swimmer, waterfall
from onco_gym.leaderboard.pages.numbers import Scale, bounds_text, scale_of, value_text
from onco_gym.leaderboard.pages.sources import BoardSource
from onco_gym.leaderboard.pages.timelines import LEGEND, MARKS, anchor, ending, heading, journey_chart, slug
from onco_gym.leaderboard.pages.whiskers import whisker
from onco_gym.leaderboard.standings import Row, Standings
from onco_gym.rewards import TERMS
from onco_gym.version import __version__

HERE = Path(__file__).parent
FILES = {"style.css": "text/css", "script.js": "text/javascript"}
"""Files beside the pages, and their types."""
ROWS = 50
"""Rows of a page of the table."""
KINDS = {
    "verified": "The policy was run again by us, in a sandbox, on secret patients.",
    "self-reported": "Its authors ran it themselves. We did not, so it has no rank.",
    "reference": "An agent of onco_gym, for comparison.",
}
STATES = {
    "waiting": "waits for a worker",
    "working": "is being judged",
    "done": "was judged; its score is not published",
    "refused": "was refused",
    "failed": "could not be judged",
}
VERDICTS = {
    "contraindicated": "contraindicated",
    "not_recommended": "not recommended",
    "off_guideline": "outside the guideline",
    "later": "an option for a later line",
    "option": "an option",
    "preferred": "preferred",
}


class PageError(LookupError):
    """There is no such page."""


class Query(NamedTuple):
    """What of a table is asked for.

    Attributes:
        sort: a metric, or nothing for the order of the standings.
        order: ``best`` first or ``worst`` first.
        text: that is part of the name, the authors or the account.
        kind: of entry; empty for all.
        page: from 1.
    """

    sort: str = ""
    order: str = "best"
    text: str = ""
    kind: str = ""
    page: int = 1

    def link(self, **changes: Any) -> str:
        """The address of the table with some things changed."""
        asked = self._replace(**{"page": 1, **changes})
        given = {name: value for name, value in asked._asdict().items() if name != "page" and value != getattr(EVERYTHING, name)}
        name = "index.html" if asked.page == 1 else f"page-{asked.page}.html"
        return f"{name}?{urlencode(given)}" if given else name


EVERYTHING = Query()


class Site:
    """Makes pages.

    Args:
        source: of boards and entries.
        static: whether pages become files, so that nobody answers queries.
    """

    def __init__(self, source: BoardSource, static: bool = False) -> None:
        self._source, self._static = source, static
        self._templates = _templates()

    # ---------------------------------------------------------------------------------------------- pages

    def index(self) -> str:
        """The boards, those over several environments first."""
        shown = []
        for board in sorted(self._source.boards(), key=lambda board: len(board.environments) == 1):
            standings = self._source.standings(board.name)
            rows = [row for row in standings.rows if board.metrics[0] in row.figures][:8]
            scale = scale_of([row.figures[board.metrics[0]] for row in rows], 4, 156)
            shown.append({"board": board, "standings": standings, "rows": rows, "scale": scale})
        return self._render("index.html", 0, boards=shown)

    def about(self) -> str:
        """How the boards work."""
        return self._render("about.html", 0, kinds=KINDS)

    def missing(self, depth: int) -> str:
        """For what does not exist, ``depth`` folders below the root."""
        return self._render("missing.html", depth)

    def board(self, name: str, query: Query = EVERYTHING) -> str:
        """The table of a board."""
        standings = self._standings(name)
        board, rows = standings.board, _asked(standings, query)
        pages = max(math.ceil(len(rows) / ROWS), 1)
        if not 1 <= query.page <= pages:
            raise PageError(f"{name} has {pages} pages")
        shown = rows[(query.page - 1) * ROWS : query.page * ROWS]
        everything = {
            metric: [row.figures[metric] for row in standings.rows if metric in row.figures] for metric in board.metrics
        }
        columns = [
            {
                "name": metric,
                "metric": METRICS[metric],
                "scale": _column_scale(metric, found, 150 if place == 0 else 68),
                "order": _next_order(query, metric, first=place == 0),
                "sorted": (query.sort or board.metrics[0]) == metric,
            }
            for place, (metric, found) in enumerate(everything.items())
        ]
        return self._render(
            "board.html",
            1,
            board=board,
            standings=standings,
            columns=columns,
            rows=shown,
            found=len(rows),
            query=query,
            pages=pages,
            kinds=KINDS,
            marks=_marks(standings),
            digests=_digests(row.entry for row in standings.rows[:1]),
        )

    def entry(self, board: str, entry: str) -> str:
        """An entry. Of one that is not published, only its state."""
        found, standings = self._entry(board, entry), self._standings(board)
        others = self._source.entries(board, found.account) if found.kind != "reference" else []
        submissions = [(one, self._score(standings.board, one)) for one in others]
        about = {"board": standings.board, "entry": found, "submissions": submissions, "states": STATES, "kinds": KINDS}
        if not _public(found):
            return self._render("hidden.html", 2, **about)
        row = next((row for row in standings.rows if row.entry.id == found.id), None)
        explorations = {_short_id(one.stamp.environment): one for one in self._source.explorations(found.id)}
        return self._render(
            "entry.html",
            2,
            **about,
            row=row,
            figures=self._figures(standings, found),
            environments=[self._part(standings.board, found, one, explorations) for one in found.judgements],
            journal=self._source.journal(found.id),
            digests=_digests([found]),
        )

    def journey(self, board: str, entry: str, environment: str, patient: int) -> str:
        """The journeys of a patient."""
        found, exploration, explored = self._journey(board, entry, environment, patient)
        exploration = replace(exploration, name=found.manifest.name)
        numbers_of = [one.number for one in exploration.patients]
        place = numbers_of.index(patient)
        return self._render(
            "journey.html",
            5,
            board=self._standings(board).board,
            entry=found,
            exploration=exploration,
            explored=explored,
            chart=journey_chart(exploration, explored),
            before=numbers_of[place - 1] if place else None,
            after=numbers_of[place + 1] if place + 1 < len(numbers_of) else None,
            place=place + 1,
            verdicts=VERDICTS,
            heading=heading,
            ending=ending,
            anchor=anchor,
            terms=list(TERMS),
            legend=[(MARKS[name], name, words) for name, words in LEGEND.items()],
            digests=[f"card {exploration.stamp.card_digest[:12]}", f"cohort {exploration.stamp.cohort_digest[:12]}"],
        )

    # ---------------------------------------------------------------------------------------------- plain values

    def board_json(self, name: str) -> dict[str, Any]:
        """The standings of a board."""
        found = self._standings(name)
        rows = [
            {
                **{"entry": row.entry.id, "name": row.entry.manifest.name, "authors": row.entry.manifest.authors},
                **{"account": row.entry.account, "kind": row.entry.kind, "submitted": row.entry.submitted.isoformat()},
                **{"rank": row.rank, "submissions": row.submissions, "efficient": row.efficient},
                "figures": {metric: figure.to_json() for metric, figure in row.figures.items()},
            }
            for row in found.rows
        ]
        about = {"board": found.board.model_dump(mode="json"), "submissions": found.submissions, "accounts": found.accounts}
        return {**about, "rows": rows}

    def entry_json(self, board: str, entry: str) -> dict[str, Any]:
        """An entry, as far as it may be seen while its season is open. Of an entry that is not published, only its state."""
        found = self._entry(board, entry)
        if not _public(found):
            kept = {"id": found.id, "board": found.board, "season": found.season, "state": found.state, "published": False}
            return {**kept, "submitted": found.submitted.isoformat()}
        return (found if self._standings(board).board.ended(found.season) else while_secret(found)).to_json()

    def journey_json(self, board: str, entry: str, environment: str, patient: int) -> dict[str, Any]:
        """The journeys of a patient."""
        _, exploration, explored = self._journey(board, entry, environment, patient)
        about = {"agent": exploration.name, "stamp": to_plain(exploration.stamp), "cycle_weeks": exploration.cycle_weeks}
        return {**about, "treatments": [to_plain(one) for one in exploration.treatments], "patient": to_plain(explored)}

    # ---------------------------------------------------------------------------------------------- addresses

    def pages(self, board: str) -> int:
        """How many pages the table of a board has."""
        return max(math.ceil(len(self._standings(board).rows) / ROWS), 1)

    def listed(self, board: str) -> list[Entry]:
        """The entries that have a page: all submissions of everybody in the standings."""
        found = {}
        for row in self._standings(board).rows:
            found[row.entry.id] = row.entry
            if row.entry.kind != "reference":
                found.update({one.id: one for one in self._source.entries(board, row.entry.account)})
        return list(found.values())

    def journeys(self, entry: Entry) -> list[tuple[str, int]]:
        """(environment, patient) of the journeys that an entry has pages for."""
        if not _public(entry):
            return []
        return [
            (_short_id(one.stamp.environment), patient.number)
            for one in self._source.explorations(entry.id)
            for patient in one.patients
        ]

    # ---------------------------------------------------------------------------------------------- parts

    def _render(self, name: str, depth: int, **values: Any) -> str:
        return self._templates.get_template(name).render(root="../" * depth, static=self._static, **values)

    def _standings(self, board: str) -> Standings:
        if board not in {one.name for one in self._source.boards()}:
            raise PageError(f"there is no board {board!r}")
        return self._source.standings(board)

    def _entry(self, board: str, entry: str) -> Entry:
        found = self._source.entry(entry)
        if found is None or found.board != board:
            raise PageError(f"there is no entry {entry!r} on {board}")
        return found

    def _journey(self, board: str, entry: str, environment: str, patient: int) -> tuple[Entry, Exploration, Explored]:
        found = self._entry(board, entry)
        if _public(found):
            for exploration in self._source.explorations(entry):
                for explored in exploration.patients:
                    if (_short_id(exploration.stamp.environment), explored.number) == (environment, patient):
                        return found, exploration, explored
        raise PageError(f"there is no journey of patient {patient} in {environment}")

    def _score(self, board: Board, entry: Entry) -> str:
        """The score of a submission, if it is published."""
        if not _public(entry):
            return ""
        full = entry if entry.judgements else self._source.entry(entry.id)
        found = overall(board, full.judgements, board.metrics[0]) if full is not None else None
        return "" if found is None else value_text(METRICS[board.metrics[0]], found.value)

    def _figures(self, standings: Standings, entry: Entry) -> list[dict[str, Any]]:
        """The figures of an entry over the whole board, beside the guideline's."""
        board = standings.board
        usual = next((row.figures for row in standings.rows if row.entry.agent == "guideline"), {})
        shown = []
        for name in METRICS:
            found = overall(board, entry.judgements, name)
            if found is not None:
                others = [row.figures[name] for row in standings.rows if name in row.figures]
                scale = _column_scale(name, [*others, found], 196)
                beside = usual.get(name) if entry.agent != "guideline" else None
                shown.append({"metric": METRICS[name], "found": found, "guideline": beside, "scale": scale})
        return shown

    def _part(self, board: Board, entry: Entry, found: Judgement, explorations: Mapping[str, Exploration]) -> dict[str, Any]:
        """What an entry's page shows of one environment."""
        name = _short_id(found.environment)
        exploration = explorations.get(name)
        folder = f"{entry.id}/journeys/{name}"
        links = {one.number: f"{folder}/{one.number}.html" for one in exploration.patients} if exploration else {}
        return {
            "name": name,
            "judgement": found,
            "subgroups": scale_of([one.gain for one in found.subgroups], 4, 196, 0.0),
            "populations": scale_of([one.score for one in found.populations], 4, 196),
            "unfairness": scale_of(found.unfairness.values(), 4, 196, 0.0),
            "score": found.figures.get("score"),
            "exploration": exploration,
            "links": links,
            "swimmer": swimmer(exploration, links) if exploration else "",
            "waterfall": waterfall(exploration) if exploration else "",
            "classes": [name for name in CLASSES if any(name in one.classes for one in exploration.treatments)]
            if exploration
            else [],
            "alone": len(board.environments) == 1,
        }


@functools.cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.globals.update(
        metrics=METRICS,
        version=__version__,
        whisker=whisker,
        value_text=value_text,
        bounds_text=bounds_text,
        number=numbers.number,
        months=numbers.months,
        slug=slug,
        life=_life,
        brief=_brief,
    )
    made.filters["words"] = lambda text: text.replace("_", " ")
    made.filters["day"] = lambda when: f"{when.day} {when:%B %Y}"
    return made


def _brief(explored: Explored) -> str:
    """A patient in a few words: age, sex, performance, and what was found."""
    facts = dict(explored.facts)
    found = [facts[name] for name in ("age", "sex") if name in facts]
    if "ECOG" in facts:
        found.append(f"ECOG {facts['ECOG']}")
        clinical = explored.facts[list(facts).index("ECOG") + 1 :]
        told = [(name, value) for name, value in clinical if value not in ("no", "none", "no result yet")]
        found += [name if value == "yes" else value if name == "driver" else f"{name} {value}" for name, value in told[:2]]
    return ", ".join(found)


def _life(exploration: Exploration, weeks: float) -> float:
    """The share of the follow-up that was lived, in percent."""
    return round(100 * min(weeks / exploration.follow_up_weeks, 1), 1)


def _asked(standings: Standings, query: Query) -> list[Row]:
    """The rows that a query asks for, in its order."""
    wanted = query.text.casefold()

    def fits(row: Row) -> bool:
        manifest = row.entry.manifest
        said = " ".join((manifest.name, *manifest.authors, row.entry.account)).casefold()
        return wanted in said and query.kind in ("", row.entry.kind)

    rows = [row for row in standings.rows if fits(row)]
    if query.sort in standings.board.metrics:
        sign = 1 if METRICS[query.sort].better == "lower" else -1
        sign *= -1 if query.order == "worst" else 1

        def place(row: Row) -> tuple[bool, float]:
            value = row.figures[query.sort].value if query.sort in row.figures else math.nan
            return not math.isfinite(value), sign * value if math.isfinite(value) else 0.0

        rows.sort(key=place)
    elif query.order == "worst":
        rows.reverse()
    return rows


def _next_order(query: Query, metric: str, first: bool) -> str:
    """The order that a click on a column asks for."""
    now = query.sort == metric or (first and not query.sort)
    return "worst" if now and query.order == "best" else "best"


def _column_scale(name: str, found: Sequence[Interval], width: float) -> Scale:
    """The scale of a column. An entry far below random play does not squeeze the others."""
    scale = scale_of(found, 4, width - 4)
    return scale._replace(low=max(scale.low, -25.0)) if name in ("score", "robustness") and scale.high > -20 else scale


def _marks(standings: Standings) -> dict[str, list[tuple[float, str]]]:
    """Lines behind the intervals of a column: the guideline."""
    usual = next((row.figures for row in standings.rows if row.entry.agent == "guideline"), {})
    return {name: [(figure.value, "usual")] for name, figure in usual.items() if math.isfinite(figure.value)}


def _digests(entries: Iterable[Entry]) -> list[str]:
    """What figures were made with."""
    found: dict[str, None] = {}
    for entry in entries:
        for one in entry.judgements:
            found[f"{_short_id(one.environment)}: card {one.stamp.card_digest[:12]}, cohort {one.stamp.cohort_digest[:12]}"] = (
                None
            )
        found.update({f"policy {digest[:12]}": None for digest in entry.policies.values()})
    return list(found)


def _public(entry: Entry) -> bool:
    return entry.published and entry.state == "done"


def _short_id(environment: str) -> str:
    """``NSCLC-v0`` of ``onco_gym/NSCLC-v0``."""
    return environment.rpartition("/")[2]
