"""Intervals drawn as a dot with whiskers, for the cells of tables."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from onco_gym.foundation.intervals import Interval
from onco_gym.leaderboard.pages.numbers import Scale
from onco_gym.leaderboard.pages.svg import line, tag


def whisker(found: Interval, scale: Scale, marks: Sequence[tuple[float, str]] = (), height: float = 14) -> Markup:
    """A dot with its interval.

    Args:
        found: what is drawn; without a finite value nothing is.
        scale: from numbers to pixels.
        marks: (number, class) of thin lines behind it.
        height: in pixels.
    """
    middle = height / 2
    drawn = [line(scale(value), 0, scale(value), height, class_) for value, class_ in marks]
    if math.isfinite(found.value):
        if math.isfinite(found.low) and math.isfinite(found.high):
            drawn.append(line(scale(found.low), middle, scale(found.high), middle, "w"))
        drawn.append(tag("circle", cx=scale(found.value), cy=middle, r=3))
    width = scale.start + scale.end
    return tag("svg", *drawn, viewBox=f"0 0 {width:g} {height:g}", class_="whisker", aria_hidden="true")
