"""A patient's journeys on one axis of time, as oncologists draw them: lanes by drug class, scans, and how it ended."""

import itertools
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from onco_gym.leaderboard.drugs import CLASSES, NONE
from onco_gym.leaderboard.explorations import Administration, Exploration, Explored, Track
from onco_gym.leaderboard.pages.numbers import Scale, months, number, time_marks
from onco_gym.leaderboard.pages.svg import arrow, boxes, cross, drawing, line, tag, text

WIDTH, LEFT, RIGHT = 960, 158, 934
"""Pixels: of the drawing, and where the axis of time begins and ends."""
HEAD, LANE, SCANS, GAP, WORTH = 57, 19, 80, 20, 80
"""Heights in pixels: above the lanes, of a lane, of the scans, between two journeys, and of the worth."""
LETTER = 5.9
"""Width of a letter in a lane, in pixels."""
RESPONSE, PROGRESSION = -0.3, 0.2
"""RECIST 1.1: change of the sum of diameters from the baseline, and from the smallest sum."""
PALE = 0.5
"""Share of a dose below which a cycle is drawn pale."""
MARKS = {
    "response": "M0-5l5 9h-10z",
    "progression": "M0 5l5-9h-10z",
    "stopped": "M-4-4h8v8h-8z",
    "toxicity": "M-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    "test": "M0-5l5 5l-5 5l-5-5z",
    "biomarker": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
}
"""Marks of events."""
LEGEND = {
    "response": "response",
    "progression": "progression",
    "toxicity": "grade 3+ toxicity",
    "stopped": "stopped for toxicity",
    "test": "test result",
    "biomarker": "finding",
}


def slug(drug_class: str) -> str:
    """The style of a drug class."""
    return f"c{list(CLASSES).index(drug_class)}"


def heading(exploration: Exploration, track: Track) -> str:
    """Whose journey it is, in words."""
    return {"entry": exploration.name, "guideline": "Guideline", "optimum": "Best found, in hindsight"}[track.who]


def ending(track: Track) -> str:
    """How a journey ended, in words."""
    how = f"died in month {months(track.weeks)}" if track.died else f"alive at the end of follow-up, month {months(track.weeks)}"
    return f"{how}; {number(track.quality_weeks, 0)} quality-adjusted weeks"


def journey_chart(exploration: Exploration, explored: Explored) -> Markup:
    """The journeys of a patient, below each other on one axis of time."""
    longest = max(track.weeks for track in explored.tracks)
    until = max(longest * 1.02, 8 * exploration.cycle_weeks)
    x = Scale(0, until, LEFT, RIGHT)
    used = {name for track in explored.tracks for one in track.given for name in exploration.treatments[one.regimen].classes}
    lanes = [name for name in CLASSES if name in used]
    seen = [scan.change for track in explored.tracks for scan in track.scans]
    changes = min(-0.45, *seen), min(max(0.4, *seen), 1.0)
    drawn, top = list[Markup](), 8.0
    for track in explored.tracks:
        drawn += _block(exploration, track, lanes, x, changes, top)
        top += HEAD + LANE * len(lanes) + SCANS + GAP
    drawn += _worth(explored.tracks, x, top)
    bottom = top + WORTH
    grid = [line(x(week), 8 + HEAD, x(week), bottom, "grid") for week, _ in time_marks(until)]
    axis = [text(x(week), bottom + 16, mark, "soft", "middle") for week, mark in time_marks(until)]
    axis.append(text(LEFT - 12, bottom + 16, "months", "soft", "end"))
    about = " ".join(f"{heading(exploration, track)}: {ending(track)}." for track in explored.tracks)
    cursor = tag("path", d=f"M{LEFT} {HEAD - 20}V{bottom:g}", class_="cursor")
    return drawing(
        WIDTH,
        bottom + 24,
        f"Journeys of patient {explored.number}",
        about,
        *grid,
        *drawn,
        *axis,
        cursor,
        role="group",
        class_="chart journey",
        data_left=LEFT,
        data_right=RIGHT,
        data_weeks=f"{until:.2f}",
    )


def _block(
    exploration: Exploration, track: Track, lanes: Sequence[str], x: Scale, changes: tuple[float, float], top: float
) -> Iterator[Markup]:
    """One journey: its head, a lane for each drug class, and the scans, whose ``changes`` lie between two shares."""
    first, below = top + HEAD, top + HEAD + LANE * len(lanes)
    bottom, end = below + SCANS, x(track.weeks)
    yield text(0, top + 13, heading(exploration, track), "name")
    yield text(RIGHT, top + 13, ending(track), "soft", "end")
    yield text(LEFT - 12, top + 35, "events", "soft", "end")
    yield text(LEFT - 12, top + 51, "decisions", "soft", "end")
    if track.died:
        yield tag("rect", x=end, y=first, width=max(x.end - end, 0), height=bottom - first, class_="after")
    for place, name in enumerate(lanes):
        y = first + LANE * place
        yield text(LEFT - 12, y + 13, name, "soft", "end")
        yield line(LEFT, y + LANE - 0.5, x.end, y + LANE - 0.5, "lane")
        given = [one for one in track.given if name in exploration.treatments[one.regimen].classes]
        for one, following in itertools.zip_longest(given, given[1:]):
            free = x(following.week) if following is not None else end
            first_lane = exploration.treatments[one.regimen].classes[0] == name
            yield _bar(exploration, track, one, name, x, y, free if first_lane else 0)
    yield from _scans(track, exploration, x, Scale(-changes[1], -changes[0], below + 12, bottom - 4))
    yield from _decisions(track, x, top + 47)
    yield from _events(track, x, top + 31, bottom)
    if track.died:
        yield line(end, top + 47, end, bottom, "end")
        yield tag("path", d=cross(end, top + 47, 5), class_="death")
    else:
        yield tag("path", d=arrow(end, first + LANE * len(lanes) / 2), class_="on")


def _bar(exploration: Exploration, track: Track, one: Administration, name: str, x: Scale, y: float, free: float) -> Markup:
    """A treatment in the lane of one of its classes. Its name is in it, or behind it where there is room up to ``free``."""
    cycle, treatment = exploration.cycle_weeks, exploration.treatments[one.regimen]
    week, last = one.week, min(one.week + cycle * len(one.doses), track.weeks)
    full, pale = list[tuple[float, float, float, float]](), list[tuple[float, float, float, float]]()
    for low, doses in itertools.groupby(one.doses, lambda dose: dose < PALE):
        after = min(week + cycle * len(list(doses)), track.weeks)
        gap = 1 if after == last else 0  # before the next treatment
        (pale if low else full).append((x(week), y + 2, max(x(after) - x(week) - gap, 1.0), LANE - 5))
        week = after
    begin, stop, wide = x(one.week), x(last), LETTER * len(treatment.label) + 8
    parts = [boxes(full, "full"), boxes(pale, "pale")]
    if free and stop - begin >= wide:
        parts.append(text(begin + 5, y + 12.5, treatment.label, "in"))
    elif free - stop >= wide:
        parts.append(text(stop + 4, y + 12.5, treatment.label, "beside"))
    words = f"{treatment.title}, weeks {one.week:.0f} to {last:.0f}"
    return tag("g", tag("title", words), *parts, class_=f"bar {slug(name)}")


def _scans(track: Track, exploration: Exploration, x: Scale, y: Scale) -> Iterator[Markup]:
    """The change of the sum of diameters since the start of each line; ``y`` is upside down, so that growth is at the top."""
    for change, words, class_ in (
        (PROGRESSION, "+20%", "recist grows"),
        (0.0, "0", "recist"),
        (RESPONSE, "−30%", "recist shrinks"),
    ):
        yield line(LEFT, y(-change), x.end, y(-change), class_)
        yield text(LEFT - 12, y(-change) + 3.5, words, "soft small", "end")
    yield text(0, y(0) + 3.5, "Sum of diameters", "soft")
    starts = list(_line_starts(track, exploration))
    for lines, line_of in itertools.groupby(track.scans, lambda scan: sum(start < scan.week for start in starts)):
        scans = list(line_of)  # a scan on the day of a start belongs to the line before
        points = [(x(one.week), y(-one.change)) for one in scans]
        path = [(x(starts[lines - 1]), y(0)), *points] if lines else points  # a line begins at its baseline
        yield tag("path", d="M" + "L".join(f"{a:g} {b:g}" for a, b in path), class_="sum")
        for scan, (a, b) in zip(scans, points, strict=True):
            words = f"week {scan.week:.0f}: {scan.mm:.0f} mm, {number(100 * scan.change, 0, sign=True)}%"
            yield tag("circle", tag("title", words), cx=a, cy=b, r=2.6, class_="scan")


def _line_starts(track: Track, exploration: Exploration) -> Iterator[float]:
    """The weeks in which lines begin: with another anticancer drug than before."""
    drugs = [one for one in track.given if NONE not in exploration.treatments[one.regimen].classes]
    for before, one in zip([None, *drugs], drugs, strict=False):
        if before is None or before.regimen != one.regimen:
            yield one.week


def _decisions(track: Track, x: Scale, y: float) -> Iterator[Markup]:
    yield line(LEFT, y, x(track.weeks), y, "rail")
    for place, one in enumerate(track.decisions, 1):
        inside = "inside" if one.verdict in ("later", "option", "preferred") else "outside"
        dot = tag("circle", tag("title", f"decision {place}, week {one.week:.0f}"), cx=x(one.week), cy=y, r=3.4, class_=inside)
        yield tag("a", dot, href=f"#{anchor(track, place)}")


def anchor(track: Track, place: int) -> str:
    """The permalink of a decision."""
    return f"decision-{place}" if track.who == "entry" else f"{track.who}-{place}"


def _events(track: Track, x: Scale, y: float, bottom: float) -> Iterator[Markup]:
    """A mark for every event; those of a week stand side by side. What was known at the first visit stands elsewhere."""
    free = 0.0
    for one in sorted(track.events, key=lambda one: (one.week, one.kind != "outcome")):
        kind = one.name if one.kind == "outcome" else one.kind
        if kind not in MARKS or (kind in ("test", "biomarker") and one.week == 0):
            continue
        at = max(x(one.week), free)
        free = at + 11
        if kind == "progression":
            yield line(x(one.week), y + 6, x(one.week), bottom, "progression-line")
        mark = tag("path", tag("title", f"week {one.week:.0f}: {one.label}"), d=MARKS[kind], class_=f"mark {kind}")
        yield tag("g", mark, transform=f"translate({at:g} {y:g})")


def _worth(tracks: Sequence[Track], x: Scale, top: float) -> Iterator[Markup]:
    """The reward so far, under each decider."""
    curves = {track.who: [(0.0, 0.0), *_gained(track)] for track in tracks}
    values = [value for points in curves.values() for _, value in points]
    y = Scale(-max(*values, 0.1), -min(values), top + 8, top + WORTH - 2)
    yield text(0, top + 18, "Reward so far", "soft")
    yield text(LEFT - 12, y(-max(values)) + 4, number(max(values), 1), "soft small", "end")
    yield text(LEFT - 12, y(0), "0", "soft small", "end")
    yield line(LEFT, y(0), x.end, y(0), "recist")
    for who, points in reversed(curves.items()):
        path = "M" + "L".join(f"{x(week):g} {y(-value):g}" for week, value in points)
        yield tag("path", d=path, class_=f"worth {who}")


def _gained(track: Track) -> Iterator[tuple[float, float]]:
    """(week, quality-adjusted life years so far) at the end of what each decision led to."""
    total = 0.0
    for one, following in itertools.zip_longest(track.decisions, track.decisions[1:]):
        total += sum(one.terms.values())
        yield (following.week if following is not None else track.weeks), total
