"""A cohort in two drawings: who lived how long on what (a swimmer plot), and how far tumours shrank (a waterfall plot)."""

import collections
import itertools
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from onco_gym.leaderboard.explorations import Exploration, Fate
from onco_gym.leaderboard.pages.numbers import Scale, months, time_marks
from onco_gym.leaderboard.pages.svg import arrow, boxes, cross, drawing, line, tag, text, triangle
from onco_gym.leaderboard.pages.timelines import PROGRESSION, RESPONSE, slug

WIDTH, LEFT, RIGHT, TOP, ROW = 560, 34, 540, 6, 8
"""Pixels: of the drawings, and of a patient's lane."""


def swimmer(exploration: Exploration, links: Mapping[int, str]) -> Markup:
    """A lane for each patient, the longest life on top; ``links`` lead to the journeys of some of them."""
    fates = sorted(exploration.cohort, key=lambda fate: (-fate.weeks, fate.number))
    x = Scale(0, exploration.follow_up_weeks, LEFT, RIGHT)
    bottom, marks, dots = TOP + ROW * len(fates), collections.defaultdict[str, str](str), list[Markup]()
    for place, fate in enumerate(fates):
        end, y = x(fate.weeks), TOP + ROW * (place + 0.5)
        if fate.progression is not None:
            marks["mark progression"] += triangle(x(fate.progression), y)
        if fate.died:
            marks["death thin"] += cross(end + 5, y, 2.2)
        else:
            marks["on"] += arrow(end + 1, y, 3.5)
        if fate.number in links:
            dot = tag("circle", tag("title", f"the journey of patient {fate.number}"), cx=LEFT - 10, cy=y, r=3.2)
            dots.append(tag("a", dot, href=links[fate.number], class_="more"))
    times = time_marks(exploration.follow_up_weeks)
    alive = sum(not fate.died for fate in fates)
    return drawing(
        WIDTH,
        bottom + 38,
        "Swimmer plot",
        f"{len(fates)} patients; {alive} were alive at the end of follow-up, month {months(exploration.follow_up_weeks)}.",
        *[line(x(week), 0, x(week), bottom, "grid") for week, _ in times],
        *_lanes(exploration, fates, x),
        *[tag("path", d=path, class_=name) for name, path in marks.items()],
        *dots,
        *[text(x(week), bottom + 16, mark, "soft", "middle") for week, mark in times],
        text(RIGHT, bottom + 32, "months since the first visit", "soft", "end"),
        role="group",
    )


def _lanes(exploration: Exploration, fates: Sequence[Fate], x: Scale) -> Iterator[Markup]:
    """What patients were given, in one path for each class and width of a line. A combination shares the lane."""
    lines: dict[tuple[str, int], str] = collections.defaultdict(str)
    for place, fate in enumerate(fates):
        for classes, spans in itertools.groupby(fate.spans, lambda span: exploration.treatments[span[0]].classes):
            several = list(spans)
            start, end = several[0][1], several[-1][1] + several[-1][2]
            left, right = x(start * exploration.cycle_weeks), x(min(end * exploration.cycle_weeks, fate.weeks))
            for part, name in enumerate(classes):
                y = TOP + ROW * place + 1 + (ROW - 2) * (part + 0.5) / len(classes)
                lines[name, len(classes)] += f"M{left:g} {y:g}h{max(right - left, 0.5):.3g}"
    for (name, parts), path in lines.items():
        yield tag("path", d=path, class_=f"given {slug(name)}", stroke_width=f"{(ROW - 2) / parts:g}")


def waterfall(exploration: Exploration) -> Markup:
    """A bar for each patient: the best change of the sum of diameters in the first line."""
    fates = sorted(exploration.cohort, key=lambda fate: (-fate.change, fate.number))
    height, wide = 300, (RIGHT - LEFT - 14) / len(fates)
    y = Scale(-0.6, 1.0, 14, height - 10)  # upside down
    drawn = []
    for change, words, class_ in ((PROGRESSION, "+20%", "recist grows"), (RESPONSE, "−30%", "recist shrinks")):
        drawn += [line(LEFT + 14, y(-change), RIGHT, y(-change), class_), text(LEFT + 8, y(-change) + 4, words, "soft", "end")]
    drawn += [text(LEFT + 8, y(-mark) + 4, words, "soft", "end") for mark, words in ((0.0, "0"), (-1.0, "−100%"))]
    bars: dict[str, list[tuple[float, float, float, float]]] = collections.defaultdict(list)
    for place, fate in enumerate(fates):
        top, below = sorted((y(0), y(-fate.change)))
        bars[_response(fate)].append((LEFT + 14.6 + place * wide, top, wide - 1.2, max(below - top, 1.0)))
    drawn += [boxes(places, name) for name, places in bars.items()]
    drawn.append(line(LEFT + 14, y(0), RIGHT, y(0), "axis"))
    counted = collections.Counter(_response(fate) for fate in fates)
    about = f"Of {len(fates)} patients, {counted['response']} responded and {counted['growth']} had growth of 20% or more."
    return drawing(WIDTH, height, "Waterfall plot", about, *drawn)


def _response(fate: Fate) -> str:
    return "response" if fate.change <= RESPONSE else "growth" if fate.change >= PROGRESSION else "stable"
