"""Draws a journey as a timeline: a lane for every kind of event, treatments as bars, causes as arrows."""

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from onco_gym.cards.checks import HOLIDAY, SUPPORTIVE
from onco_gym.foundation.files import replacing
from onco_gym.journeys.events import RESISTANCE, check, read_doses

NOTE = "Simulated patient. Research software, not for treating patients."
LANES = {
    "test": "tests",
    "biomarker": "findings",
    "treatment": "treatment\n(pale: held\nor delayed)",
    "toxicity": "grade 3+\ntoxicity",
    "outcome": "outcomes",
    "scan": "sum of\ndiameters",
    "symptom": "ECOG",
}
"""The lanes from top to bottom, so that most arrows lead to a neighbour."""

COLOURS = {
    "test": "#5f6b76",
    "biomarker": "#7b5ea7",
    "treatment": "#1b6ca8",
    "toxicity": "#c8553d",
    "symptom": "#b08900",
    "scan": "#2f6f62",
    "outcome": "#3a3a3a",
}
OUTCOME_MARKS = {
    "response": ("^", "#588157"),
    "progression": ("v", "#c0392b"),
    "stopped": ("s", "#c8553d"),
    "death": ("X", "#111111"),
    "end": (">", "#588157"),
}
MARKS = {"test": "D", "biomarker": "o", "toxicity": "P", "outcome": "o"}
ARROW = {"arrowstyle": "-|>,head_width=0.12,head_length=0.25", "alpha": 0.45, "lw": 0.8, "shrinkA": 3, "shrinkB": 3}
TALL = {"scan": 3.4, "symptom": 1.7}
"""Height in rows of the lanes with a curve."""

LEAST = {"treatment": 2.0, "toxicity": 1.5}
"""Minimum height in rows of the lanes whose name takes more than one row."""

ROW, WIDTH, MARGIN, GAP = 0.23, 13.0, 1.25, 0.55  # inches, inches, inches left of the timeline, rows between lanes
LETTER = 0.062  # width of a letter in labels, in inches

Event = Mapping[str, Any]


def draw(path: str | os.PathLike[str], graph: nx.DiGraph) -> None:
    """Draw a journey and write it to ``path``, whole or not at all. The ending sets the format (png, svg, pdf).

    Raises:
        JourneyError: if ``graph`` is not a journey.
    """
    drawing = timeline(graph)
    with replacing(path) as temporary:
        drawing.savefig(temporary, format=Path(path).suffix.lstrip(".").lower() or "png")


def timeline(graph: nx.DiGraph) -> Any:
    """The picture as a matplotlib figure.

    Raises:
        JourneyError: if ``graph`` is not a journey.
    """
    from matplotlib.figure import Figure

    check(graph)
    plan = _Plan(graph)
    height = (plan.bottom + 0.4) * ROW + 1.05
    figure = Figure(figsize=(WIDTH, height), dpi=110)
    axes = figure.add_axes((MARGIN / WIDTH, 0.6 / height, 1 - (MARGIN + 0.15) / WIDTH, (plan.bottom + 0.4) * ROW / height))
    _draw_lanes(axes, plan)
    _draw_treatments(axes, plan)
    _draw_curve(axes, plan, "scan", "{:.0f} mm", top=None)
    _draw_curve(axes, plan, "symptom", "{:.0f}", top=4.0)
    for kind in ("test", "biomarker", "toxicity", "outcome"):
        _draw_marks(axes, plan, kind)
    _draw_causes(axes, plan, graph)
    axes.set(xlim=(-0.004 * plan.weeks, plan.weeks), ylim=(plan.bottom + 0.2, -0.4))
    axes.set_xlabel(f"weeks since the first visit\nArrows point from causes to effects. {NOTE}", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_title(f"{graph.graph['title']}: {plan.summary}", fontsize=11, loc="left")
    return figure


class _Plan:
    """The layout: x in weeks, y in rows from the top."""

    def __init__(self, graph: nx.DiGraph) -> None:
        self.cycle_weeks: float = graph.graph["cycle_weeks"]
        events = dict(graph.nodes(data=True))
        last = max((event["until"] for event in events.values()), default=0) * self.cycle_weeks
        self.weeks = max(last * 1.06, 8 * self.cycle_weeks)
        self.per_inch = self.weeks / (WIDTH - MARGIN - 0.15)
        self.summary = self._summary(list(events.values()), last)
        self.lanes: dict[str, tuple[float, float]] = {}  # kind -> top and height
        self.events: dict[str, dict[str, Event]] = {}  # kind -> id -> event
        self.place: dict[str, tuple[float, float]] = {}  # id -> x, y
        self.left: set[str] = set()  # ids whose label is left of the mark
        top = 0.0
        for kind in LANES:
            mine = {key: event for key, event in events.items() if event["kind"] == kind}
            if mine:
                self.events[kind] = mine
                rows = self._rows(kind, mine)
                height = TALL.get(kind, max(max(rows.values()) + 1.0, LEAST.get(kind, 1.0)))
                self.lanes[kind] = top, height
                for key, row in rows.items():
                    self.place[key] = mine[key]["week"], top + row + 0.5
                top += height + GAP
        self.bottom = max(top - GAP, 1.0)

    def end(self, event: Event) -> float:
        """The week in which an event ends."""
        return float(event["until"] * self.cycle_weeks)

    def long(self, label: str) -> float:
        """The width of a label in weeks."""
        return (len(label) + 2) * LETTER * self.per_inch

    def _rows(self, kind: str, events: Mapping[str, Event]) -> dict[str, int]:
        """A row for every event of a lane, so that labels do not overlap. Treatments have a row per regimen."""
        if kind == "treatment":
            names = list(dict.fromkeys(event["name"] for event in events.values()))
            return {key: names.index(event["name"]) for key, event in events.items()}
        if kind in TALL:
            return dict.fromkeys(events, 0)
        rows: dict[str, int] = {}
        taken: list[list[tuple[float, float]]] = []
        for key, event in events.items():
            start, label = event["week"], self.long(_label(event))
            if start + label > self.weeks:
                self.left.add(key)
            mark = 0.1 * self.per_inch
            span = (start - label, start + mark) if key in self.left else (start - mark, start + label)
            row = next((r for r, spans in enumerate(taken) if all(span[1] <= a or b <= span[0] for a, b in spans)), len(taken))
            if row == len(taken):
                taken.append([])
            taken[row].append(span)
            rows[key] = row
        return rows

    @staticmethod
    def _summary(events: Sequence[Event], last: float) -> str:
        ends = {event["name"] for event in events if event["kind"] == "outcome"}
        state = "died" if "death" in ends else "alive at the end of follow-up" if "end" in ends else "in follow-up"
        given = {event["name"] for event in events if event["kind"] == "treatment"} - {HOLIDAY, SUPPORTIVE}
        return f"{state}, week {last:.0f}, {len(given) or 'no'} regimen{'s' if len(given) > 1 else ''}"


def _label(event: Event) -> str:
    """A short label: the card's name if its title is a sentence."""
    name = event["name"].replace("_", " ")
    if event["kind"] == "toxicity":
        return str(name)
    if event["label"].startswith(RESISTANCE):
        return f"resistance: {name}"
    return textwrap.shorten(event["label"], 48, placeholder=" …").replace(", …", " …")


def _draw_lanes(axes: Any, plan: _Plan) -> None:
    for kind, (top, height) in plan.lanes.items():
        axes.axhspan(top - 0.15, top + height + 0.15, color=COLOURS[kind], alpha=0.06, lw=0)
        beside = {"xycoords": ("axes fraction", "data"), "xytext": (-10, 0), "textcoords": "offset points"}
        look = {"ha": "right", "va": "center", "fontsize": 8.5, "color": COLOURS[kind]}
        axes.annotate(LANES[kind], (0, top + height / 2), **beside, **look, annotation_clip=False)
    axes.set_yticks([])
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    for key, event in plan.events.get("outcome", {}).items():
        if event["name"] in ("progression", "death"):
            colour = OUTCOME_MARKS[event["name"]][1]
            axes.plot([plan.place[key][0]] * 2, [-0.15, plan.bottom + 0.15], color=colour, lw=0.7, ls=":", zorder=1)


def _draw_treatments(axes: Any, plan: _Plan) -> None:
    for key, event in plan.events.get("treatment", {}).items():
        x, y = plan.place[key]
        rest = event["name"] in (HOLIDAY, SUPPORTIVE)
        for number, dose in enumerate(read_doses(event)):
            start, alpha = x + number * plan.cycle_weeks, 0.85 if rest else 0.22 + 0.63 * dose
            colour = "#8a949e" if rest else COLOURS["treatment"]
            axes.broken_barh([(start, plan.cycle_weeks)], (y - 0.36, 0.72), facecolor=colour, alpha=alpha, lw=0)
    labelled: set[str] = set()
    for key, event in plan.events.get("treatment", {}).items():
        if event["name"] not in labelled:
            labelled.add(event["name"])
            _label_treatment(axes, plan, plan.place[key], event)


def _label_treatment(axes: Any, plan: _Plan, place: tuple[float, float], event: Event) -> None:
    """Write a regimen's title once in its row: in the first bar if it fits, otherwise in the free space after or before it."""
    label, (x, y) = _label(event), place
    courses = [other for other in plan.events["treatment"].values() if other["name"] == event["name"]]
    bars = [(other["week"], plan.end(other)) for other in courses]
    inside = next((index for index, (start, end) in enumerate(bars) if end - start >= plan.long(label)), None)
    gap = 0.04 * plan.per_inch
    if inside is not None:
        full = courses[inside]["value"] >= 0.5 * (courses[inside]["until"] - courses[inside]["cycle"])
        colour = "white" if full or event["name"] in (HOLIDAY, SUPPORTIVE) else "#222222"
        axes.text(bars[inside][0] + gap, y, label, fontsize=7.5, va="center", color=colour, weight="bold")
    elif bars[-1][1] + plan.long(label) <= plan.weeks:
        axes.text(bars[-1][1] + gap, y, label, fontsize=7.5, va="center", color="#222222")
    elif x - plan.long(label) >= 0:
        axes.text(x - gap, y, label, fontsize=7.5, va="center", ha="right", color="#222222")
    else:
        behind = {"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 0.8}
        axes.text(x + gap, y, label, fontsize=7.5, va="center", color="#222222", bbox=behind)


def _draw_curve(axes: Any, plan: _Plan, kind: str, form: str, top: float | None) -> None:
    """Draw scans or ECOG as a curve in their lane, with the first, last and extreme values written beside it."""
    events = list(plan.events.get(kind, {}).items())
    if not events:
        return
    start, height = plan.lanes[kind]
    values = [event["value"] for _, event in events]
    highest = top or max(*values, 1.0) * 1.12
    weeks = [event["week"] for _, event in events]
    heights = [start + height * (0.93 - 0.93 * value / highest) for value in values]
    for (key, _), week, y in zip(events, weeks, heights, strict=True):
        plan.place[key] = week, y
    colour, steps = COLOURS[kind], kind == "symptom"
    last = max(plan.end(event) for group in plan.events.values() for event in group.values())
    shown = ([*weeks, last], [*heights, heights[-1]]) if steps else (weeks, heights)
    axes.plot(*shown, color=colour, lw=1.2, drawstyle="steps-post" if steps else "default", zorder=2)
    axes.plot(weeks, heights, "o", color=colour, ms=3, zorder=3)
    for index in _told(values, steps):
        above = heights[index] - start > 0.45 * height or not steps
        shift = (3, 4) if above else (3, -8)
        note = form.format(values[index])
        axes.annotate(note, (weeks[index], heights[index]), shift, textcoords="offset points", fontsize=7, color=colour)


def _told(values: Sequence[float], all_of_them: bool) -> list[int]:
    """Which values of a curve are written beside it."""
    if all_of_them and len(values) <= 12:
        return list(range(len(values)))
    order = sorted(range(len(values)), key=lambda index: values[index])
    return sorted({0, len(values) - 1, order[0], order[-1]})


def _draw_marks(axes: Any, plan: _Plan, kind: str) -> None:
    for key, event in plan.events.get(kind, {}).items():
        x, y = plan.place[key]
        usual = MARKS[kind], COLOURS[kind]
        mark, colour = OUTCOME_MARKS.get(event["name"], usual) if kind == "outcome" else usual
        axes.plot([x], [y], mark, color=colour, ms=5.5, clip_on=False, zorder=4)
        gap = 0.09 * plan.per_inch
        at, side = (x - gap, "right") if key in plan.left else (x + gap, "left")
        axes.text(at, y, _label(event), fontsize=7.5, va="center", ha=side, color=colour)


def _draw_causes(axes: Any, plan: _Plan, graph: nx.DiGraph) -> None:
    """Draw arrows from causes to effects, in the colour of the cause."""
    for first, second, relation in graph.edges(data="relation"):
        if relation != "causes" or first not in plan.place or second not in plan.place:
            continue
        kind = graph.nodes[first]["kind"]
        start, end = plan.place[first], plan.place[second]
        if kind == "treatment":
            start = min(end[0], plan.end(graph.nodes[first])), start[1]
        bend = f"arc3,rad={0.18 if end[1] > start[1] else -0.18}"
        axes.annotate("", end, start, arrowprops={**ARROW, "connectionstyle": bend, "color": COLOURS[kind]}, zorder=1)
