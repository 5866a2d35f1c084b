"""Simulate the published arms of a card and compare them with what was published."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Params, params
from onco_gym.cards.schema import Arm
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.workers import spread
from onco_gym.trials.arms import Setting
from onco_gym.trials.statistics import ArmResult, Interval, Times, hazard_ratio, simulated_arm

FOLLOW_UP = 84.0
"""Months of follow-up in simulations of published arms."""
LATEST = 72.0
"""Tails are not compared beyond this many months."""


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A published arm and its simulation.

    Attributes:
        arm: as published.
        result: as simulated.
        pfs_hazard_ratio, os_hazard_ratio: simulated, if one is published.
        tail: see :func:`tail_of`.
    """

    arm: Arm
    result: ArmResult
    pfs_hazard_ratio: Interval | None
    os_hazard_ratio: Interval | None
    tail: tuple[float, float] | None

    @functools.cached_property
    def figures(self) -> dict[str, tuple[float | None, float]]:
        """(simulated, published) for everything that was published; simulated is None for a ratio without a control arm."""
        ratios = {"pfs_hazard_ratio": self.pfs_hazard_ratio, "os_hazard_ratio": self.os_hazard_ratio}
        found = {name: one.value if one else None for name, one in (self.result.estimates() | ratios).items()}
        published = {name: getattr(self.arm, name, None) for name in found}
        both = {name: (found[name], value) for name, value in published.items() if value is not None}
        return both | {name: (simulated, value) for name, value, simulated in self.landmarks()}

    def landmarks(self) -> Iterator[tuple[str, float, float]]:
        """(name, published, simulated) for each published landmark."""
        for name, published in self.arm.landmarks.items():
            yield name, published, landmark(self.result.progression_free, self.result.overall, name)

    def texts(self) -> tuple[str, ...]:
        """Response, PFS, OS, grade 3+, PFS hazard ratio and landmarks: simulated / published, empty if not published."""
        forms = {"response": ".0%", "pfs_months": ".1f", "os_months": ".1f", "grade3": ".0%", "pfs_hazard_ratio": ".2f"}
        marks = ", ".join(f"{name} {side_by_side(seen, published, '.0%')}" for name, published, seen in self.landmarks())
        return *(side_by_side(*self.figures.get(name, (None, 0.0)), form) for name, form in forms.items()), marks


@dataclass(frozen=True)
class Figure:
    """How well one kind of figure is reproduced: ``value`` over ``count`` arms, against the ``target``."""

    title: str
    value: float
    count: int
    target: float
    at_most: bool

    @property
    def reached(self) -> bool:
        """Whether the target is met."""
        return self.count > 0 and (self.value <= self.target if self.at_most else self.value >= self.target)

    @property
    def wanted(self) -> str:
        """The target in words."""
        return f"{'at most' if self.at_most else 'at least'} {self.target:.0%}"


def side_by_side(simulated: float | None, published: float, form: str) -> str:
    """``"5.1 / 5.3"``: simulated / published, or nothing if there is nothing to compare."""
    if simulated is None:
        return ""
    return f"{format(simulated, form) if simulated < 1e6 else 'not reached'} / {format(published, form)}"


def setting_of(arm: Arm) -> Setting:
    """The population and conduct of a published arm."""
    return Setting(arm.population, arm.prior, arm.scan_weeks)


def control_of(card: Card, arm: Arm) -> Arm | None:
    """The control arm that a published arm was compared with."""
    if arm.control:
        return None
    same = (arm.trial, arm.population, arm.prior)
    return next((other for other in card.arms if other.control and (other.trial, other.population, other.prior) == same), None)


def tail_of(card: Card, arm: Arm) -> tuple[float, float] | None:
    """How far a curve must have fallen: (months, share free of progression), or None if that is not known.

    At four medians, published curves without immunotherapy lie near or below the exponential curve of the same median. A
    fatter tail needs a published landmark beyond two medians.
    """
    first = arm.protocol.split(">")[0].split("(")[0].strip()
    kill = next(regimen.kill for regimen in card.regimens if regimen.name == first)
    immune = any(mechanism.kind == "immune" and mechanism.name in kill for mechanism in card.mechanisms)
    if immune or not kill or not arm.pfs_months:
        return None
    if any(name.startswith("PFS") and float(name[3:]) > 2 * arm.pfs_months for name in arm.landmarks):
        return None
    months = min(4 * arm.pfs_months, LATEST)
    return months, 0.5 ** (months / arm.pfs_months)


def landmark(progression_free: Times, overall: Times, name: str) -> float:
    """Share at a landmark such as ``OS60`` (alive at 60 months) or ``PFS24``."""
    times, months = (overall, name[2:]) if name.startswith("OS") else (progression_free, name[3:])
    return float(np.mean(times.months > float(months)))


def reproduce(
    card: Card,
    n: int = 1000,
    seed: int = 0,
    arms: Sequence[Arm] | None = None,
    progress: Progress = silent,
    workers: str = "local",
    address: str | None = None,
) -> list[Reproduction]:
    """Simulate published arms of a card with ``n`` patients each. Arms of a trial share patients and chance.

    Args:
        card: a validated card.
        n: patients enrolled in each arm.
        seed: same seed, same result.
        arms: arms of the card; by default all.
        progress: told after each arm.
        workers, address: where the arms are simulated; see :func:`onco_gym.foundation.workers.spread`. The result is the same.
    """
    chosen = list(card.arms if arms is None else arms)
    found = spread(
        functools.partial(_simulated, card, params(card), n, seed), chosen, workers, address, progress, "published arms"
    )
    results = {id(arm): result for arm, result in zip(chosen, found, strict=True)}
    rows = []
    for arm, result in zip(chosen, found, strict=True):
        control = control_of(card, arm)
        other = results.get(id(control)) if control else None
        pfs = hazard_ratio(result.progression_free, other.progression_free) if other and arm.pfs_hazard_ratio else None
        overall = hazard_ratio(result.overall, other.overall) if other and arm.os_hazard_ratio else None
        rows.append(Reproduction(arm, result, pfs, overall, tail_of(card, arm)))
    return rows


def _simulated(card: Card, figures: Params, n: int, seed: int, arm: Arm) -> ArmResult:
    """Simulate one arm. This runs in any process."""
    return simulated_arm(card, figures, setting_of(arm), arm.protocol, n, seed, FOLLOW_UP)


def relative_error(simulated: float, published: float) -> float | None:
    """Simulated over published median, minus 1. None if the published one lies beyond follow-up."""
    if published > 0.95 * FOLLOW_UP:
        return None
    return (simulated if math.isfinite(simulated) else FOLLOW_UP) / published - 1


def accuracy(rows: Sequence[Reproduction], use: str) -> list[Figure]:
    """How well arms are reproduced, against the targets we set ourselves.

    Args:
        rows: the arms.
        use: ``"fit"`` or ``"check"``: only arms of this use; ``"foretold"``: all of them, which were left out of the fit.
    """
    rows = [row for row in rows if use in (row.arm.use, "foretold")]
    column = ("fit", "check", "foretold").index(use)

    def pairs(name: str) -> Iterator[tuple[Any, float]]:
        return (row.figures[name] for row in rows if name in row.figures)

    def errors(name: str) -> list[float]:
        found = (relative_error(*pair) for pair in pairs(name))
        return [abs(error) for error in found if error is not None]

    def apart(name: str) -> list[float]:
        return [abs(simulated - published) for simulated, published in pairs(name)]

    def inside(kind: str) -> list[bool]:
        found = ((getattr(row.arm, f"{kind}_interval"), getattr(row, kind)) for row in rows)
        return [interval[0] <= simulated.value <= interval[1] for interval, simulated in found if interval and simulated]

    tails = [float(np.mean(row.result.progression_free.months > row.tail[0])) - row.tail[1] for row in rows if row.tail]
    marks = [abs(simulated - published) for row in rows for _, published, simulated in row.landmarks()]

    def median(title: str, errors: Sequence[float], *targets: float) -> Figure:
        return Figure(title, float(np.median(errors)) if errors else math.nan, len(errors), targets[column], True)

    def share(title: str, good: Sequence[bool], *targets: float) -> Figure:
        return Figure(title, float(np.mean(good)) if good else math.nan, len(good), targets[column], False)

    def within(limit: float, errors: Sequence[float]) -> list[bool]:
        return [error <= limit for error in errors]

    return [
        median("median PFS, median absolute relative error", errors("pfs_months"), 0.10, 0.20, 0.15),
        median("median OS, median absolute relative error", errors("os_months"), 0.15, 0.25, 0.13),
        share("response rate, share of arms within 8 points", within(0.08, apart("response")), 0.80, 0.60, 0.70),
        share("grade 3+ rate, share of arms within 10 points", within(0.10, apart("grade3")), 0.70, 0.50, 0.50),
        share("PFS hazard ratio, share inside the published 95% interval", inside("pfs_hazard_ratio"), 0.75, 0.60, 0.70),
        share("OS hazard ratio, share inside the published 95% interval", inside("os_hazard_ratio"), 0.60, 0.60, 0.60),
        share("landmarks, share within 8 points", within(0.08, marks), 0.70, 0.50, 0.50),
        share("tails, share at most 5 points above exponential", within(0.05, tails), 0.80, 0.60, 0.60),
    ]


def as_rows(rows: Sequence[Reproduction]) -> list[dict[str, Any]]:
    """Simulated and published figures in plain numbers. None means not reached, or that there is no control arm."""
    plain = []
    for row in rows:
        found = {name: getattr(row.arm, name) for name in ("trial", "population", "prior", "protocol", "use")}
        for name, (simulated, published) in row.figures.items():
            seen = round(simulated, 4) if simulated is not None and math.isfinite(simulated) else None
            found[name] = {"simulated": seen, "published": published}
        plain.append(found)
    return plain
