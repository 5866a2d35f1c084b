"""Fit a card's figures to its published arms marked ``use = "fit"``. Arms marked ``check`` are never used here.

The fit is Gauss-Newton with a trust region and a robust loss. A miss is the distance of an arm's figure from its published value,
in units in which 1 is a miss that matters. Each parameter's distance from its start counts too. All evaluations share patients
and chance, so results differ only because figures differ. When a figure moves, arms that do not depend on it are not simulated
again.
"""

import functools
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card, load_card
from onco_gym.cards.load import digest
from onco_gym.cards.protocols import parse_protocol
from onco_gym.cards.scenarios import Params, params, scenario
from onco_gym.cards.schema import Arm
from onco_gym.foundation.files import replacing
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.units import WEEKS_PER_MONTH
from onco_gym.foundation.workers import connected, spread
from onco_gym.trials.arms import ArmCourse, Candidates, TrialError, cycles_of, recruit, simulate
from onco_gym.trials.parameters import Parameter, Path, differs, figures_at, fitted_parameters, reads, with_figures, write_figures
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
ROBUST = 2.0
"""Misses beyond this pull with constant strength, so one arm that the model cannot reach does not spoil the others."""
PULL = 0.30
"""Pull of each parameter towards its start, per unit."""
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


Before = tuple[Params, Sequence[ArmSeen]] | None
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

    def look(self, figures: Params, before: Before = None) -> list[ArmSeen]:
        """Simulate every arm under ``figures``, and one arm of each regimen with twice its kill.

        Arms that do not depend on what differs from ``before`` are not simulated again.
        """
        rows = []
        looks = [(arm, figures) for arm in range(len(self.arms))]
        looks += [(arm, self._with_twice(figures, regimen)) for regimen, arm in self._twice.items()]
        for index, (arm, used) in enumerate(looks):
            if before is not None and not differs(self._reads[arm], figures, before[0]):
                rows.append(before[1][index])
            else:
                rows.append(self._simulate(used, self._candidates[arm], self._months[arm]))
        return rows

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
        """(T,) simulated minus published, one per target, in units of :data:`MINDED`."""
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


def loss(misses: Vector, x: Vector) -> float:
    """Pseudo-Huber loss of the misses plus the pull towards the start."""
    return float(np.sum(ROBUST**2 * (np.sqrt(1 + (misses / ROBUST) ** 2) - 1)) + 0.5 * PULL**2 * np.sum(x**2))


@functools.lru_cache(maxsize=2)
def _panel(card: Card, n: int, seed: int) -> ArmPanel:
    """The panel of a fit, made once in each process."""
    return ArmPanel(card, n, seed)


def _misses(card: Card, n: int, seed: int, before: Before, figures: Params) -> Vector:
    """(T,) misses at ``figures``. This runs in any process."""
    panel = _panel(card, n, seed)
    return panel.misses(panel.look(figures, before))


@dataclass
class Position:
    """The state of a fit, which can be saved and resumed."""

    x: Vector
    round: int = 0
    damping: float = 1.0
    loss: float = float("inf")
    stalled: int = 0

    @property
    def done(self) -> bool:
        """Whether two rounds in a row brought no improvement."""
        return self.stalled >= 2


class Fit:
    """A fit in progress.

    Args:
        card: the card to start from.
        n: patients screened for each arm.
        seed: same card, same seed, same result.
        workers, address: where figures are tried; see :func:`onco_gym.foundation.workers.spread`. The result is the same.
    """

    def __init__(self, card: Card, n: int = 800, seed: int = 0, workers: str = "local", address: str | None = None) -> None:
        self.card, self.n, self.seed, self.workers, self.address = card, n, seed, workers, address
        self.panel = _panel(card, n, seed)
        if not self.panel.arms:
            raise TrialError(f"the card {card.id} has no published arms to fit")
        self.parameters = fitted_parameters(card)
        self.harm: dict[Path, float] = {}
        self.position = Position(np.zeros(len(self.parameters)))

    def figures(self, x: Vector) -> dict[Path, float]:
        """The card's figures at ``x``."""
        return {**self.harm, **figures_at(self.parameters, x)}

    def params(self, x: Vector) -> Params:
        """The simulator's arrays at ``x``."""
        return params(with_figures(self.card, self.figures(x)))

    def look(self, x: Vector) -> tuple[Params, list[ArmSeen], Vector]:
        """The figures at ``x``, the results of the arms, and the misses."""
        figures = self.params(x)
        seen = self.panel.look(figures)
        return figures, seen, self.panel.misses(seen)

    def jacobian(self, x: Vector, base: tuple[Params, list[ArmSeen], Vector], progress: Progress = silent) -> Vector:
        """(T, K) derivatives of the misses by finite differences towards the start, alternately wide and narrow."""
        width = 0.3 if self.position.round % 2 else 0.6
        moves = np.where(x > 0, -width, width)
        moved = self._try(list(x + np.diag(moves)), base[:2], progress, f"figures moved, round {self.position.round + 1}")
        return (np.stack(moved, axis=1) - base[2][:, None]) / moves

    def _try(self, places: Sequence[Vector], before: Before, progress: Progress, stage: str) -> list[Vector]:
        """The misses at each of several places. For ``before`` see :meth:`ArmPanel.look`."""
        look = functools.partial(_misses, self.card, self.n, self.seed, before)
        return spread(look, [self.params(x) for x in places], self.workers, self.address, progress, stage)

    def turn(self, progress: Progress = silent) -> None:
        """One round: toxicity by its closed form, then the best of several Gauss-Newton steps."""
        at = self.position
        x = at.x
        self._settle_harm(x)
        base = self.look(x)
        before = loss(base[2], x)
        jacobian = self.jacobian(x, base, progress)
        weight = 1 / np.sqrt(1 + (base[2] / ROBUST) ** 2)
        normal = jacobian.T @ (weight[:, None] * jacobian) + PULL**2 * np.eye(len(x))
        slope = jacobian.T @ (weight * base[2]) + PULL**2 * x
        strengths, places = [at.damping * factor for factor in (0.05, 0.2, 0.7, 2.0, 6.0, 20.0)], []
        for strength in strengths:
            move = -np.linalg.solve(normal + strength * np.diag(np.diag(normal) + 0.1), slope)
            places.append(np.clip(x + np.clip(move, -1.5, 1.5), -8, 8))
        losses = map(loss, self._try(places, None, progress, f"steps tried, round {at.round + 1}, loss {before:.1f}"), places)
        tried = list(zip(losses, strengths, places, strict=True))
        best = min(tried, key=lambda row: row[0])
        at.round += 1
        at.loss = min(before, best[0])
        if best[0] < before:
            at.x = best[2]
        at.damping = float(np.clip(best[1], 0.02, 20.0))
        at.stalled = at.stalled + 1 if best[0] > before - max(0.2, 0.005 * before) else 0

    def _settle_harm(self, x: Vector) -> None:
        """Set the shares of grade 3+ events and of stopping for each regimen, so that its arms show the published rates."""
        figures = with_figures(self.card, self.figures(x))
        seen = self.panel.look(params(figures))
        names = [regimen.name for regimen in figures.regimens]
        hazards, stops = defaultdict(list), defaultdict(list)  # by regimen, logarithms of what was published over what was seen
        for arm, one in zip(self.panel.arms, seen, strict=False):
            if one.enrolled < FEWEST:
                continue
            first = parse_protocol(arm.protocol, names)[0].regimen
            if arm.grade3 and one.grade3 > 0:
                wanted, had = (-np.log1p(-min(share, 0.97)) for share in (arm.grade3, one.grade3))
                hazards[first].append(np.log(wanted / had))
            if arm.discontinuation and one.discontinuation > 0:
                stops[first].append(np.log(arm.discontinuation / one.discontinuation))
        for regimen in figures.regimens:
            if regimen.name in hazards:
                factor = float(np.exp(np.clip(np.mean(hazards[regimen.name]), -1, 1)))
                for organ, share in regimen.toxicity.items():
                    self.harm["regimens", regimen.name, "toxicity", organ] = min(1 - (1 - share) ** factor, 0.98)
            if regimen.name in stops:
                factor = float(np.exp(np.clip(np.mean(stops[regimen.name]), -1, 1)))
                self.harm["regimens", regimen.name, "discontinuation"] = min(regimen.discontinuation * factor, 0.9)


# ------------------------------------------------------------------------------------------------ files


def calibrate(
    card: str | os.PathLike[str],
    output: str | os.PathLike[str],
    state: str | os.PathLike[str],
    n: int = 800,
    seed: int = 0,
    rounds: int = 12,
    progress: Progress = silent,
    workers: str = "local",
    address: str | None = None,
) -> Fit:
    """Fit a card and write it, with a record of what it was fitted on, to ``output``.

    After every round the position is written to ``state``, and an interrupted fit resumes from there. The same card and seed
    give the same result, interrupted or not.

    Args:
        card: a shipped card's name or a path.
        output: where to write the fitted card; may be the card itself.
        state: where to keep the position until the fit is done.
        n: patients screened for each arm.
        seed: seed of patients and chance.
        rounds: maximum number of rounds.
        progress: told whenever figures have been tried; the stage names the round.
        workers, address: where figures are tried; see :func:`onco_gym.foundation.workers.spread`. The result is the same.
    """
    fit = Fit(load_card(card), n, seed, workers, address)
    stamp = {"card": digest(fit.card), "n": n, "seed": seed}
    _resume(fit, File(state), stamp)
    with connected(workers, address):
        while not fit.position.done and fit.position.round < rounds:
            fit.turn(progress)
            _keep(fit, File(state), stamp)
    _write(fit, card, File(output))
    File(state).unlink(missing_ok=True)
    return fit


def _keep(fit: Fit, path: File, stamp: Mapping[str, Any]) -> None:
    content = {**stamp, **vars(fit.position), "x": fit.position.x.tolist(), "harm": list(fit.harm.items())}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content))


def _resume(fit: Fit, path: File, stamp: Mapping[str, Any]) -> None:
    if not path.exists():
        return
    try:
        content = json.loads(path.read_text())
        same = {name: content[name] for name in stamp} == stamp
        x, damping, lost = np.array(content["x"], float), float(content["damping"]), float(content["loss"])
        position = Position(x, int(content["round"]), damping, lost, int(content["stalled"]))
        harm = {tuple(key): float(value) for key, value in content["harm"]}
    except (ValueError, KeyError, TypeError, OverflowError):
        raise TrialError(f"{path} is not the state of a fit; remove it to start again") from None
    if not same or position.x.shape != fit.position.x.shape:
        raise TrialError(f"{path} belongs to a fit of another card, seed or number of patients; remove it to start again")
    fit.position, fit.harm = position, harm


def _write(fit: Fit, source: str | os.PathLike[str], target: File) -> None:
    """Write the card with its new figures, after validating it."""
    import tomlkit

    from onco_gym.cards.folder import card_files

    path = card_files().get(str(source), File(source))
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    write_figures(document, fit.figures(fit.position.x))
    table = tomlkit.table()
    table.add("trials", tomlkit.array(sorted({arm.trial for arm in fit.panel.arms})).multiline(True))  # type: ignore[arg-type]
    table.add("patients", fit.n)
    table.add("seed", fit.seed)
    table.add("rounds", fit.position.round)
    table.add("loss", float(f"{fit.position.loss:.4g}"))
    document["calibration"] = table
    checked = target.with_name(f".{target.stem}.checked.toml")
    try:
        checked.write_text(tomlkit.dumps(document), encoding="utf-8")
        load_card(checked)
        with replacing(target) as temporary:
            temporary.write_bytes(checked.read_bytes())
    finally:
        checked.unlink(missing_ok=True)


def moved(fit: Fit) -> list[tuple[Parameter, float]]:
    """Parameters and how far each moved in its own units, the farthest first."""
    return sorted(zip(fit.parameters, fit.position.x.tolist(), strict=True), key=lambda pair: -abs(pair[1]))
