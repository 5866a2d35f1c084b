"""Simulate the published arms of a card and compare them with what was published."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Params
from onco_gym.cards.scenarios import params as params_of
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

    def landmarks(self) -> Iterator[tuple[str, float, float]]:
        """(name, published, simulated) for each published landmark."""
        for name, published in self.arm.landmarks.items():
            yield name, published, landmark(self.result.progression_free, self.result.overall, name)

    def texts(self) -> tuple[str, ...]:
        """Response, PFS, OS, grade 3+, PFS hazard ratio and landmarks: simulated / published, empty if not published."""
        arm, result = self.arm, self.result
        return (
            side_by_side(result.response.value, arm.response, ".0%"),
            side_by_side(result.progression_free.median().value, arm.pfs_months, ".1f"),
            side_by_side(result.overall.median().value, arm.os_months, ".1f"),
            side_by_side(result.grade3.value, arm.grade3, ".0%"),
            side_by_side(self.pfs_hazard_ratio.value, arm.pfs_hazard_ratio, ".2f") if self.pfs_hazard_ratio else "",
            ", ".join(f"{name} {side_by_side(seen, published, '.0%')}" for name, published, seen in self.landmarks()),
        )


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


def side_by_side(simulated: float, published: float | None, form: str) -> str:
    """``"5.1 / 5.3"``: simulated / published, or nothing if it was not published."""
    if published is None:
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
    params: Params | None = None,
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
        params: figures to use instead of the card's own.
        arms: arms of the card; by default all.
        progress: told after each arm.
        workers, address: where the arms are simulated; see :func:`onco_gym.foundation.workers.spread`. The result is the same.
    """
    figures = params_of(card) if params is None else params
    chosen = list(card.arms if arms is None else arms)
    found = spread(partial(_simulated, card, figures, n, seed), chosen, workers, address, progress, "published arms")
    results = {id(arm): result for arm, result in zip(chosen, found, strict=True)}
    rows = []
    for arm in chosen:
        control, result = control_of(card, arm), results[id(arm)]
        other = results.get(id(control)) if control else None
        pfs = overall = None
        if other and arm.pfs_hazard_ratio is not None:
            pfs = hazard_ratio(result.progression_free, other.progression_free)
        if other and arm.os_hazard_ratio is not None:
            overall = hazard_ratio(result.overall, other.overall)
        rows.append(Reproduction(arm, result, pfs, overall, tail_of(card, arm)))
    return rows


def _simulated(card: Card, figures: Params, n: int, seed: int, arm: Arm) -> ArmResult:
    """Simulate one arm. This runs in any process."""
    return simulated_arm(card, figures, setting_of(arm), arm.protocol, n, seed, FOLLOW_UP)


def relative_error(published: float | None, times: Times) -> float | None:
    """Simulated over published median, minus 1. None if no median is published or it lies beyond follow-up."""
    if published is None or published > 0.95 * FOLLOW_UP:
        return None
    median = times.median().value
    return (median if math.isfinite(median) else FOLLOW_UP) / published - 1


def accuracy(rows: Sequence[Reproduction], use: str) -> list[Figure]:
    """How well the arms of one ``use`` (``"fit"`` or ``"check"``) are reproduced, against the targets we set ourselves."""
    rows = [row for row in rows if row.arm.use == use]
    fitted = use == "fit"

    def medians(name: str, attribute: str) -> list[float]:
        errors = [relative_error(getattr(row.arm, name), getattr(row.result, attribute)) for row in rows]
        return [abs(error) for error in errors if error is not None]

    def shares(name: str) -> list[float]:
        pairs = [(getattr(row.arm, name), getattr(row.result, name).value) for row in rows]
        return [abs(simulated - published) for published, simulated in pairs if published is not None]

    def inside(kind: str) -> list[bool]:
        found = []
        for row in rows:
            interval, simulated = getattr(row.arm, f"{kind}_interval"), getattr(row, kind)
            if interval and simulated:
                found.append(interval[0] <= simulated.value <= interval[1])
        return found

    tails = [max(float(np.mean(row.result.progression_free.months > row.tail[0])) - row.tail[1], 0.0) for row in rows if row.tail]
    marks = [abs(simulated - published) for row in rows for _, published, simulated in row.landmarks()]
    pfs, overall = medians("pfs_months", "progression_free"), medians("os_months", "overall")

    def median(title: str, errors: Sequence[float], target: float) -> Figure:
        return Figure(title, float(np.median(errors)) if errors else math.nan, len(errors), target, True)

    def share(title: str, good: Sequence[bool], target: float) -> Figure:
        return Figure(title, float(np.mean(good)) if good else math.nan, len(good), target, False)

    def within(limit: float, errors: Sequence[float]) -> list[bool]:
        return [error <= limit for error in errors]

    return [
        median("median PFS, median absolute relative error", pfs, 0.10 if fitted else 0.20),
        median("median OS, median absolute relative error", overall, 0.15 if fitted else 0.25),
        share("response rate, share of arms within 8 points", within(0.08, shares("response")), 0.80 if fitted else 0.60),
        share("grade 3+ rate, share of arms within 10 points", within(0.10, shares("grade3")), 0.70 if fitted else 0.50),
        share("PFS hazard ratio, share inside the published 95% interval", inside("pfs_hazard_ratio"), 0.75 if fitted else 0.60),
        share("OS hazard ratio, share inside the published 95% interval", inside("os_hazard_ratio"), 0.60),
        share("landmarks, share within 8 points", within(0.08, marks), 0.70 if fitted else 0.50),
        share("tails, share at most 5 points above exponential", within(0.05, tails), 0.80 if fitted else 0.60),
    ]


def as_rows(rows: Sequence[Reproduction]) -> list[dict[str, Any]]:
    """Simulated and published figures in plain numbers. None means not published or not reached."""

    def pair(simulated: float | None, published: float | None) -> dict[str, float | None]:
        seen = round(simulated, 4) if simulated is not None and math.isfinite(simulated) else None
        return {"simulated": seen, "published": published}

    plain = []
    for row in rows:
        arm, result = row.arm, row.result
        figures = {
            "response": pair(result.response.value, arm.response),
            "pfs_months": pair(result.progression_free.median().value, arm.pfs_months),
            "os_months": pair(result.overall.median().value, arm.os_months),
            "grade3": pair(result.grade3.value, arm.grade3),
            "discontinuation": pair(result.discontinuation.value, arm.discontinuation),
            "pfs_hazard_ratio": pair(row.pfs_hazard_ratio.value if row.pfs_hazard_ratio else None, arm.pfs_hazard_ratio),
            "os_hazard_ratio": pair(row.os_hazard_ratio.value if row.os_hazard_ratio else None, arm.os_hazard_ratio),
            **{name: pair(simulated, published) for name, published, simulated in row.landmarks()},
        }
        place = {"trial": arm.trial, "population": arm.population, "prior": arm.prior, "protocol": arm.protocol, "use": arm.use}
        plain.append({**place, **{name: value for name, value in figures.items() if value["published"] is not None}})
    return plain
