"""Cross-validation over trials: how well a card foretells trials that it was not fitted to.

One trial after the other is left out, the figures are fitted to the others, and the trial is simulated. Only arms whose drugs are
in other fitted trials, too, can be foretold: nothing else says how well a drug works. A fit from scratch takes many minutes, so
each begins at the fitted card and uses the derivatives there. The card pulls its figures only weakly.
"""

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

import numpy as np

from onco_gym.cards import Card
from onco_gym.cards.load import digest
from onco_gym.cards.protocols import parse_protocol
from onco_gym.cards.schema import Arm
from onco_gym.foundation.files import replacing
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.workers import connected, spread
from onco_gym.trials.arms import TrialError
from onco_gym.trials.calibration import Fit, robust, steady
from onco_gym.trials.parameters import fitted_parameters, with_figures
from onco_gym.trials.published import Reproduction, control_of, reproduce
from onco_gym.trials.targets import FOLLOW_UP, ArmPanel, ArmSeen, Vector

STEPS = 2
"""Steps towards the fit without a trial."""
STRENGTHS = 0.05, 0.5, 5.0
"""Strengths of damping that are tried in each step."""
DRAWS = 32
"""Sets of figures, drawn around the fit without a trial, that its predictions come from."""
LEVEL = 0.9
"""Confidence level of predictions."""
WHAT = "pfs", "os"
USUAL_ARM = 150
"""Patients of an arm whose number was not published."""


@dataclass(frozen=True, eq=False)
class Foretold:
    """A trial that was left out of the fit.

    Attributes:
        trial: its name.
        rows: its arms that can be foretold, as published and as simulated with figures that were fitted without it.
        unknown: how many other arms it has, with drugs that no other fitted trial has.
        medians: for each published median of the rows, whether the 90% prediction contains it. A prediction includes uncertain
            figures, what differs between trials, and the number of patients.
    """

    trial: str
    rows: tuple[Reproduction, ...]
    unknown: int
    medians: tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class _Fitted:
    """The end of a fit: the derivatives there, and the misses."""

    jacobian: Vector  # (targets, K)
    misses: Vector  # (targets,)


def cross_validate(
    card: Card,
    state: str | os.PathLike[str],
    n: int = 800,
    seed: int = 0,
    patients: int = 1000,
    progress: Progress = silent,
    workers: str = "local",
    address: str | None = None,
) -> list[Foretold]:
    """Foretell every fitted trial of a card from the others.

    What is found is kept in ``state``, and an interrupted run goes on from there.

    Args:
        card: a fitted card.
        state: the file to keep results in until all are found.
        n: patients screened for each arm in a fit.
        seed: same card, same seed, same result.
        patients: patients in each arm that is foretold.
        progress: told after every parameter and every trial.
        workers, address: where trials are foretold; see :func:`onco_gym.foundation.workers.spread`. The result is the same.

    Raises:
        TrialError: if the card has fewer than two trials to fit, or ``state`` belongs to something else.
    """
    fit, file = Fit(card, n, seed, workers, address), File(state)
    if len(fit.panel.trials) < 2:
        raise TrialError(f"the card {card.id} has {len(fit.panel.trials)} trial to fit, expected at least 2")
    stamp = {"card": digest(card), "n": n, "seed": seed}
    with connected(workers, address):
        kept = _read(file, stamp)
        if "jacobian" not in kept:
            base = fit.look(fit.position.x)
            jacobian = fit.jacobian(fit.position.x, base, progress)
            kept |= {"jacobian": jacobian.tolist(), "misses": base[2].tolist(), "without": {}}
            _keep(file, kept)
        fitted = _Fitted(np.array(kept["jacobian"]), np.array(kept["misses"]))
        left = [trial for trial in fit.panel.trials if trial not in kept["without"]]
        at_once = 1 if workers == "local" else 16
        for start in range(0, len(left), at_once):
            some = left[start : start + at_once]
            found = spread(functools.partial(_without, card, n, seed, fitted), some, workers, address)
            kept["without"] |= {trial: x.tolist() for trial, x in zip(some, found, strict=True)}
            _keep(file, kept)
            progress("trials left out", len(kept["without"]), len(fit.panel.trials))
        places = [(trial, np.array(kept["without"][trial])) for trial in fit.panel.trials]
        task = functools.partial(_foretell, card, n, seed, fitted, patients)
        foretold = spread(task, places, workers, address, progress, "trials foretold")
    file.unlink(missing_ok=True)
    return foretold


def _others(fit: Fit, trial: str) -> Vector:
    """(targets,) 1 for what other trials published, and for what is known of doses; 0 for what ``trial`` published."""
    arms = fit.panel.arms
    return np.array([float(one.what == "dose" or arms[one.arm].trial != trial) for one in fit.panel.targets])


def _without(card: Card, n: int, seed: int, fitted: _Fitted, trial: str) -> Vector:
    """(K,) where a fit settles without ``trial``. This runs in any process."""
    fit = Fit(card, n, seed)
    others, jacobian = _others(fit, trial), fitted.jacobian

    def loss(misses: Vector, x: Vector) -> float:
        return float((others * robust(misses)).sum() + 0.5 * np.sum((fit.pull * x) ** 2))

    x, misses = np.zeros(len(fit.pull)), fitted.misses
    for _ in range(STEPS):
        weight = others * steady(misses)
        normal = jacobian.T @ (weight[:, None] * jacobian) + np.diag(fit.pull**2)
        slope = jacobian.T @ (weight * misses) + fit.pull**2 * x
        tried = [(loss(misses, x), x, misses)]
        for strength in STRENGTHS:
            move = -np.linalg.solve(normal + strength * np.diag(np.diag(normal)), slope)
            there = x + np.clip(move, -1.5, 1.5)
            seen = fit.look(there)[2]
            tried.append((loss(seen, there), there, seen))
        _, x, misses = min(tried, key=lambda row: row[0])
    return x


def _foretell(card: Card, n: int, seed: int, fitted: _Fitted, patients: int, place: tuple[str, Vector]) -> Foretold:
    """Simulate a trial at the figures without it. This runs in any process."""
    trial, x = place
    fit = Fit(card, n, seed)
    own = card.model_copy(update={"arms": tuple(arm for arm in card.arms if arm.trial == trial)})
    known = _foretellable(card, trial)
    rows = [
        row if control_of(card, row.arm) in known else replace(row, pfs_hazard_ratio=None, os_hazard_ratio=None)
        for row in reproduce(with_figures(own, fit.figures(x)), patients, seed + 1)
        if row.arm in known
    ]
    weight = _others(fit, trial) * steady(fitted.misses)
    precision = fitted.jacobian.T @ (weight[:, None] * fitted.jacobian) + np.diag(fit.pull**2)
    spread = np.linalg.cholesky(np.linalg.inv(precision))
    rng, panel = np.random.default_rng([seed, 13]), ArmPanel(own, n, seed)
    drawn, seen = [], panel.look(fit.at(x)._replace(effects=np.zeros(2)))
    for _ in range(DRAWS):
        figures = fit.at(x + spread @ rng.standard_normal(len(x)))
        # This trial differs from the others as much as they do among themselves.
        seen = panel.look(figures._replace(effects=rng.standard_normal(2)))
        drawn.append([_median(one, arm, what, rng) for one, arm, what, _ in _published(panel, seen, known)])
    low, high = np.quantile(np.array(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    medians = [median for *_, median in _published(panel, seen, known)]
    inside = (low <= medians) & (medians <= high)
    return Foretold(trial, tuple(rows), len(own.arms) - len(known), tuple(inside.tolist()))


def _foretellable(card: Card, trial: str) -> list[Arm]:
    """The arms of a trial all of whose drugs are in other fitted trials, too: drugs as the fit knows them."""
    drugs = [(one, {str(path[1]) for path in one.paths}) for one in fitted_parameters(card) if one.paths[0][-2:-1] == ("kill",)]

    def given(arm: Arm) -> set[str]:
        sequence = f"{arm.prior} > {arm.protocol}" if arm.prior else arm.protocol
        names = {stage.regimen for stage in parse_protocol(sequence, [regimen.name for regimen in card.regimens])}
        return {one.name for one, regimens in drugs if regimens & names}

    elsewhere = [given(arm) for arm in card.arms if arm.use == "fit" and arm.trial != trial]
    return [arm for arm in card.arms if arm.trial == trial and given(arm) <= set().union(*elsewhere)]


def _published(panel: ArmPanel, seen: Sequence[ArmSeen], known: Sequence[Arm]) -> list[tuple[ArmSeen, Arm, str, float]]:
    """(as simulated, as published, "pfs" or "os", the published median), for every median of known arms within follow-up."""
    both = ((one, arm, what, getattr(arm, f"{what}_months")) for one, arm in zip(seen, panel.arms, strict=False) for what in WHAT)
    return [row for row in both if row[1] in known and row[3] is not None and row[3] < 0.85 * FOLLOW_UP[1]]


def _median(one: ArmSeen, arm: Arm, what: str, rng: np.random.Generator) -> float:
    """The median of as many patients as the arm had, drawn from those who were simulated."""
    times = one.progression_free if what == "pfs" else one.overall
    return float(np.median(rng.choice(times.months, arm.n or USUAL_ARM)))


def _keep(file: File, content: Mapping[str, Any]) -> None:
    with replacing(file) as temporary:
        temporary.write_text(json.dumps(content))


def _read(file: File, stamp: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier run has kept."""
    if not file.exists():
        return dict(stamp)
    try:
        content = json.loads(file.read_text())
        same = {name: content[name] for name in stamp} == stamp
        np.array(content["jacobian"], float), np.array(content["misses"], float), dict(content["without"])
    except (ValueError, KeyError, TypeError, OverflowError):
        raise TrialError(f"{file} is not the state of a cross-validation; remove it to start again") from None
    if not same:
        raise TrialError(f"{file} belongs to another card, seed or number of patients; remove it to start again")
    return dict(content)
