"""The arms that a fit looks at, and how far they are from what was published."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.protocols import parse_protocol
from onco_gym.cards.scenarios import Params, scenario
from onco_gym.cards.schema import Arm
from onco_gym.foundation.units import WEEKS_PER_MONTH
from onco_gym.trials.arms import ArmCourse, Candidates, cycles_of, recruit, simulate
from onco_gym.trials.parameters import differs, reads
from onco_gym.trials.published import control_of, landmark, setting_of, tail_of
from onco_gym.trials.statistics import RESPONSE, Times, fast_log_hazard_ratio

Vector = NDArray[np.float64]

FOLLOW_UP = 24.0, 75.0
"""Shortest and longest follow-up in the fit, in months."""
MINDED = {"pfs": 0.10, "os": 0.16, "share": 0.07, "ratio": 0.12, "tail": 0.04, "dose": 0.02}
"""The size of a miss that counts 1: log ratio of medians, difference of shares, log ratio of hazard ratios, excess share in the
tail, shortfall in the log ratio of mean PFS."""
DOUBLED = 0.06
"""Mean PFS must grow by at least this log ratio when all kill rates of a regimen are doubled."""
WEIGHT = {"pfs": 1.0, "os": 0.9, "response": 1.5, "landmark": 0.8, "plateau": 2.6, "ratio": 1.0}
EFFECTS = 0.10, 0.15
"""Standard deviation between trials of the same disease, on the log scale: of growth and of the hazard of death. It stands for
era, country and selection, which no card describes; our estimate, from pairs of published arms with one regimen."""
FEWEST = 40
"""An arm with fewer enrolled patients counts as unseen."""
UNSEEN = 6.0
"""The miss of an unseen arm. It is large, so that emptying an arm is not a way to fit it."""


@dataclass(frozen=True)
class Target:
    """One published figure of an arm: ``what`` is response, pfs, os, a landmark such as OS60, tail or pfs_ratio.

    ``dose`` is not a published figure. Its ``arm`` is the row of an arm with twice its kill, which must do better than ``than``.
    A pfs_ratio is one over the arm ``than``. A tail is seen ``at`` so many months.
    """

    arm: int
    what: str
    published: float
    minded: float
    than: int
    at: float = 0.0


@dataclass(frozen=True, eq=False)
class ArmSeen:
    """The results of an arm in one simulation."""

    enrolled: int
    response: float
    grade3: float
    discontinuation: float
    progression_free: Times
    overall: Times


class Figures(NamedTuple):
    """What a panel is simulated under: the card's figures, and what differs between trials."""

    params: Params
    effects: Vector  # (2 T,) of each trial on growth, then on the hazard of death, in units of :data:`EFFECTS`


Before = tuple[Figures, Sequence[ArmSeen]] | None
"""Figures that were simulated before, and the results."""


class ArmPanel:
    """The arms of a fit, with patients drawn once.

    Args:
        card: a validated card.
        n: patients screened for each.
        seed: same seed, same patients and chance.
    """

    def __init__(self, card: Card, n: int, seed: int) -> None:
        self.card, self.arms, self._layout = card, [arm for arm in card.arms if arm.use == "fit"], scenario(card)
        self._months = [_follow_up(arm) for arm in self.arms]
        # A fit has patients and chance of its own, so that a fitted card is not reported on those it was fitted to.
        self._candidates = [recruit(card, setting_of(arm), arm.protocol, n, 2**40 + seed) for arm in self.arms]
        self._reads = [reads(card, candidates) for candidates in self._candidates]
        self.trials = tuple(sorted({arm.trial for arm in self.arms}))
        self.targets = [target for index, arm in enumerate(self.arms) for target in self._targets(index, arm)]
        # One arm of each regimen is also run with twice its kill; its row follows those of the arms.
        names = self._layout.regimens
        first = [names.index(parse_protocol(arm.protocol, names)[0].regimen) for arm in self.arms]
        self._twice = {index: first.index(index) for index in sorted(set(first)) if card.regimens[index].kill}
        for row, than in enumerate(self._twice.values(), len(self.arms)):
            self.targets.append(Target(row, "dose", DOUBLED, MINDED["dose"], than))

    def _targets(self, index: int, arm: Arm) -> list[Target]:
        share = MINDED["share"]
        rows = [("response", arm.response, share / WEIGHT["response"])]
        rows += [("pfs", arm.pfs_months, MINDED["pfs"] / WEIGHT["pfs"]), ("os", arm.os_months, MINDED["os"] / WEIGHT["os"])]
        rows += [(name, value, share / WEIGHT[_kind(name)]) for name, value in arm.landmarks.items()]
        found = [Target(index, what, value, minded, index) for what, value, minded in rows if value is not None]
        if tail := tail_of(self.card, arm):
            found.append(Target(index, "tail", tail[1], MINDED["tail"], index, at=tail[0]))
        control = control_of(self.card, arm)
        if control in self.arms and arm.pfs_hazard_ratio:
            interval = arm.pfs_hazard_ratio_interval
            error = np.log(interval[1] / interval[0]) / 3.92 if interval else MINDED["ratio"]
            minded = max(float(error), MINDED["ratio"]) / WEIGHT["ratio"]
            found.append(Target(index, "pfs_ratio", arm.pfs_hazard_ratio, minded, self.arms.index(control)))
        return found

    def look(self, figures: Figures, before: Before = None) -> list[ArmSeen]:
        """Simulate every arm under ``figures``, and one arm of each regimen with twice its kill.

        Arms that do not depend on what differs from ``before`` are not simulated again.
        """
        rows = []
        looks = [(arm, figures.params) for arm in range(len(self.arms))]
        looks += [(arm, self._with_twice(figures.params, regimen)) for regimen, arm in self._twice.items()]
        for index, (arm, used) in enumerate(looks):
            if before is not None and not self._differs(arm, figures, before[0]):
                rows.append(before[1][index])
            else:
                rows.append(self._simulate(self._in_trial(arm, used, figures), self._candidates[arm], self._months[arm]))
        return rows

    def _differs(self, arm: int, one: Figures, other: Figures) -> bool:
        return differs(self._reads[arm], *(self._in_trial(arm, each.params, each) for each in (one, other)))

    def _in_trial(self, arm: int, params: Params, figures: Figures) -> Params:
        """``params`` with the effects of an arm's trial."""
        trial = self.trials.index(self.arms[arm].trial)
        growth, hazard = np.exp(np.array(EFFECTS) * figures.effects.reshape(2, -1)[:, trial]).astype(np.float32)
        return params._replace(growth=params.growth * growth, tumour_hazard=np.asarray(params.tumour_hazard * hazard))

    def _with_twice(self, figures: Params, regimen: int) -> Params:
        table = np.array(figures.regimens)
        table[[regimen, regimen + len(self._layout.regimens)], : len(self._layout.mechanisms)] *= 2
        return figures._replace(regimens=table)

    def _simulate(self, figures: Params, candidates: Candidates, months: float) -> ArmSeen:
        course = simulate(self._layout, figures, candidates, cycles_of(self.card, months))
        course = ArmCourse(*(values[course.enrolled] for values in course))
        if not len(course.best):
            nobody = Times(np.full(1, 0.05), np.ones(1, bool))
            return ArmSeen(0, 0.0, 0.0, 0.0, nobody, nobody)
        unit = self.card.cycle_weeks / WEEKS_PER_MONTH
        return ArmSeen(
            enrolled=len(course.best),
            response=float(np.mean(course.best <= RESPONSE)),
            grade3=float(np.mean(course.severe)),
            discontinuation=float(np.mean(course.stopped)),
            progression_free=_sorted(course.progression * unit, course.progressed),
            overall=_sorted(course.survival * unit, course.died),
        )

    def misses(self, seen: Sequence[ArmSeen]) -> Vector:
        """(number of targets,) simulated minus published, one per target, in units of :data:`MINDED`."""
        return np.array([self._miss(target, seen) for target in self.targets])

    def _miss(self, target: Target, seen: Sequence[ArmSeen]) -> float:
        one, other = seen[target.arm], seen[target.than]
        if min(one.enrolled, other.enrolled) < FEWEST:
            return UNSEEN
        match target.what:
            case "response":
                miss = one.response - target.published
            case "pfs" | "os":
                times = one.progression_free if target.what == "pfs" else one.overall
                if target.published > 0.85 * FOLLOW_UP[1]:  # beyond follow-up: compare the share left before its end
                    late = 0.8 * FOLLOW_UP[1]
                    share = float(np.mean(times.months > late)) - 0.5 ** (late / target.published)
                    return share * WEIGHT[target.what] / MINDED["share"]
                miss = _centre(times.months) - np.log(target.published)
            case "pfs_ratio":
                miss = fast_log_hazard_ratio(one.progression_free, other.progression_free) - np.log(target.published)
            case "dose":
                ratio = one.progression_free.months.mean() / other.progression_free.months.mean()
                miss = min(float(np.log(ratio)) - target.published, 0.0)
            case "tail":
                miss = max(float(np.mean(one.progression_free.months > target.at)) - target.published, 0.0)
            case name:
                miss = landmark(one.progression_free, one.overall, name) - target.published
        return float(miss / target.minded)


def _kind(name: str) -> str:
    """The kind of a landmark. Late survival is the point of immunotherapy, so it weighs more than other landmarks."""
    return "plateau" if name.startswith("OS") and float(name[2:]) >= 36 else "landmark"


def _follow_up(arm: Arm) -> float:
    """Months of follow-up that cover all published figures of an arm."""
    marks = [float(name.lstrip("PFOS")) for name in arm.landmarks]
    shown = max([4.1 * (arm.pfs_months or 0), 2.2 * (arm.os_months or 0), *(mark + 1 for mark in marks)])
    return float(np.clip(shown, *FOLLOW_UP))


def _sorted(months: Any, event: Any) -> Times:
    order = np.argsort(months)
    return Times(months[order].astype(float), event[order])


def _centre(months: Vector) -> float:
    """Mean log of the sorted times around the median: a log median that is smooth in the figures."""
    low, high = int((0.5 - 0.07) * len(months)), int(np.ceil((0.5 + 0.07) * len(months)))
    return float(np.log(np.maximum(months[low:high], 0.05)).mean())
