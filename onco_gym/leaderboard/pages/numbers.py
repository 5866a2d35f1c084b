"""Figures as text, and the scales on which they are drawn."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from onco_gym.foundation.intervals import Interval
from onco_gym.foundation.units import WEEKS_PER_MONTH
from onco_gym.leaderboard.metrics import Metric


class Scale(NamedTuple):
    """Numbers from ``low`` to ``high``, on a line from ``start`` to ``end`` pixels. What lies outside is drawn at the end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a number lies, in pixels."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low or 1)
        return round(self.start + share * (self.end - self.start), 1)


def scale_of(intervals: Iterable[Interval], start: float, end: float, *marks: float) -> Scale:
    """A scale for all of these intervals and ``marks``, with a little room at both ends."""
    numbers = [number for one in intervals for number in one if math.isfinite(number)] + list(marks)
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    room = 0.04 * (high - low) or 1.0
    return Scale(low - room, high + room, start, end)


def number(value: float, digits: int = 1, sign: bool = False) -> str:
    """A number as text, with a true minus sign."""
    if not math.isfinite(value):
        return "not reached" if value > 0 else "–"
    text = f"{value:+,.{digits}f}" if sign else f"{value:,.{digits}f}"
    return (text.lstrip("+-") if not float(text.replace(",", "")) else text).replace("-", "−")


def value_text(metric: Metric, value: float) -> str:
    """A metric's value, without its unit."""
    return number(100 * value if metric.share else value, metric.digits)


def bounds_text(metric: Metric, found: Interval) -> str:
    """The interval of a metric; empty if it is not known."""
    if not math.isfinite(found.low) and not math.isfinite(found.high):
        return ""
    return f"{value_text(metric, found.low)} to {value_text(metric, found.high)}"


def months(weeks: float) -> str:
    """A time in months."""
    return f"{weeks / WEEKS_PER_MONTH:.0f}"


def time_marks(weeks: float) -> list[tuple[float, str]]:
    """(week, text) of the marks of a time axis: whole years, or months where time is short."""
    every = weeks / WEEKS_PER_MONTH
    step = next(step for step in (1, 2, 3, 6, 12, 24, 60, 120) if every <= 9 * step or step == 120)
    return [(month * WEEKS_PER_MONTH, str(month)) for month in range(0, int(every) + 1, step)]
