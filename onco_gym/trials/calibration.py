"""Fit a card's figures to its published arms marked ``use = "fit"``. Arms marked ``check`` are never used here.

The fit is Gauss-Newton with a trust region and a robust loss. A miss is the distance of an arm's figure from its published value,
in units in which 1 is a miss that matters. Each parameter's distance from its start counts too. Trials contradict each other, so
each has an effect of its own on growth and on the hazard of death. These effects are shrunk to zero and stay out of the card.

All evaluations share patients and chance, so results differ only because figures differ. When a figure moves, arms that do not
depend on it are not simulated again.
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

from onco_gym.cards import Card, load_card
from onco_gym.cards.load import digest
from onco_gym.cards.protocols import parse_protocol
from onco_gym.cards.scenarios import params
from onco_gym.foundation.files import replacing
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.workers import connected, spread
from onco_gym.trials.arms import TrialError
from onco_gym.trials.parameters import Parameter, Path, figures_at, fitted_parameters, with_figures, write_figures
from onco_gym.trials.targets import EFFECTS, FEWEST, ArmPanel, ArmSeen, Before, Figures, Vector

ROBUST = 2.0
"""Misses beyond this pull with constant strength, so one arm that the model cannot reach does not spoil the others."""
PULL = 0.30
"""Pull of each parameter towards its start, per unit. Effects of trials are pulled to zero with 1, as their unit is a standard
deviation."""


def robust(misses: Vector) -> Vector:
    """Pseudo-Huber loss of each miss."""
    found: Vector = ROBUST**2 * (np.sqrt(1 + (misses / ROBUST) ** 2) - 1)
    return found


def steady(misses: Vector) -> Vector:
    """The weight of each miss in a Gauss-Newton step: large ones pull less."""
    found: Vector = 1 / np.sqrt(1 + (misses / ROBUST) ** 2)
    return found


@functools.lru_cache(maxsize=2)
def _panel(card: Card, n: int, seed: int) -> ArmPanel:
    """The panel of a fit, made once in each process."""
    return ArmPanel(card, n, seed)


def _misses(card: Card, n: int, seed: int, before: Before, figures: Figures) -> Vector:
    """(targets,) misses at ``figures``. This runs in any process."""
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
        effects = 2 * len(self.panel.trials)
        self.pull = np.concatenate([np.full(len(self.parameters), PULL), np.ones(effects)])
        self.position = Position(np.zeros(len(self.pull)))

    def figures(self, x: Vector) -> dict[Path, float]:
        """The card's figures at ``x`` (K,): a number for each parameter, then the effects of the trials."""
        return {**self.harm, **figures_at(self.parameters, x[: len(self.parameters)])}

    def at(self, x: Vector) -> Figures:
        """What the arms are simulated under at ``x``."""
        return Figures(params(with_figures(self.card, self.figures(x))), x[len(self.parameters) :])

    def effects(self) -> dict[str, tuple[float, float]]:
        """The effects of each trial: the factors on growth and on the hazard of death. The card has neither."""
        units = self.position.x[len(self.parameters) :].reshape(2, -1)
        growth, hazard = np.exp(np.array(EFFECTS)[:, None] * units).tolist()
        return dict(zip(self.panel.trials, zip(growth, hazard, strict=True), strict=True))

    def loss(self, misses: Vector, x: Vector) -> float:
        """The loss of the misses plus the pull towards the start."""
        return float(robust(misses).sum() + 0.5 * np.sum((self.pull * x) ** 2))

    def look(self, x: Vector) -> tuple[Figures, list[ArmSeen], Vector]:
        """The figures at ``x``, the results of the arms, and the misses."""
        figures = self.at(x)
        seen = self.panel.look(figures)
        return figures, seen, self.panel.misses(seen)

    def jacobian(self, x: Vector, base: tuple[Figures, list[ArmSeen], Vector], progress: Progress = silent) -> Vector:
        """(targets, K) derivatives of the misses by finite differences towards the start, alternately wide and narrow."""
        width = 0.3 if self.position.round % 2 else 0.6
        moves = np.where(x > 0, -width, width)
        moved = self._try(list(x + np.diag(moves)), base[:2], progress, f"figures moved, round {self.position.round + 1}")
        return (np.stack(moved, axis=1) - base[2][:, None]) / moves

    def _try(self, places: Sequence[Vector], before: Before, progress: Progress, stage: str) -> list[Vector]:
        """The misses at each of several places. For ``before`` see :meth:`ArmPanel.look`."""
        look = functools.partial(_misses, self.card, self.n, self.seed, before)
        return spread(look, [self.at(x) for x in places], self.workers, self.address, progress, stage)

    def turn(self, progress: Progress = silent) -> None:
        """One round: toxicity by its closed form, then the best of several Gauss-Newton steps."""
        at = self.position
        x = at.x
        self._settle_harm(x)
        base = self.look(x)
        before = self.loss(base[2], x)
        jacobian = self.jacobian(x, base, progress)
        weight = steady(base[2])
        normal = jacobian.T @ (weight[:, None] * jacobian) + np.diag(self.pull**2)
        slope = jacobian.T @ (weight * base[2]) + self.pull**2 * x
        strengths, places = [at.damping * factor for factor in (0.05, 0.2, 0.7, 2.0, 6.0, 20.0)], []
        for strength in strengths:
            move = -np.linalg.solve(normal + strength * np.diag(np.diag(normal) + 0.1), slope)
            places.append(np.clip(x + np.clip(move, -1.5, 1.5), -8, 8))
        losses = map(
            self.loss, self._try(places, None, progress, f"steps tried, round {at.round + 1}, loss {before:.1f}"), places
        )
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
        seen = self.look(x)[1]
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
    found = zip(fit.parameters, fit.position.x[: len(fit.parameters)].tolist(), strict=True)
    return sorted(found, key=lambda pair: -abs(pair[1]))
