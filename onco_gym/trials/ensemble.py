"""Ensembles: sets of figures that fit the published arms about as well as the card's own.

Around the fitted card, the published figures pin some directions of parameter space and leave others free. Members are drawn
from the normal approximation of the fit (the inverse of its Gauss-Newton matrix) and simulated. A member is kept if it meets
almost as many published 95% intervals as the card's own figures.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as File

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.folder import kept_beside
from onco_gym.cards.scenarios import Params, params
from onco_gym.cards.schema import Arm
from onco_gym.foundation.files import replacing
from onco_gym.foundation.progress import Progress, silent
from onco_gym.trials.arms import TrialError
from onco_gym.trials.calibration import Fit, steady
from onco_gym.trials.parameters import Parameter, figures_at, fitted_parameters, with_figures
from onco_gym.trials.targets import ArmSeen

MEMBERS = 24
ALLOWED = 0.05
"""Share of the published intervals that a member may miss in addition to those that the card itself misses."""


class StaleError(TrialError):
    """The card's figures have changed since its ensemble was drawn."""


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Sets of figures around a card's own.

    Attributes:
        parameters: what varies.
        offsets: (members, parameters) distance of each member from the card, in the parameters' units.
    """

    parameters: tuple[Parameter, ...]
    offsets: NDArray[np.float64]

    def members(self, card: Card) -> list[Params]:
        """The simulator's arrays under each member."""
        return [params(with_figures(card, figures_at(self.parameters, row))) for row in self.offsets]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the ensemble as JSON."""
        rows = {one.name: [sum(one.start), *np.round(self.offsets[:, i], 3).tolist()] for i, one in enumerate(self.parameters)}
        File(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in rows.items())
            temporary.write_text("{\n" + lines + "\n}\n")


def ensemble_file(card: str | os.PathLike[str]) -> File:
    """The file of a card's ensemble, in ``ensembles`` beside the card."""
    return kept_beside(card, "ensembles", ".json")


def load_ensemble(card: Card, path: str | os.PathLike[str]) -> Ensemble | None:
    """The ensemble of a card, or None if it has none.

    Raises:
        StaleError: if the card's figures have changed since it was drawn.
        TrialError: if the file cannot be read.
    """
    file = File(path)
    if not file.exists():
        return None
    try:
        rows = {str(name): np.array(values, float) for name, values in json.loads(file.read_text()).items()}
        known = fitted_parameters(card)
        if {one.name: float(f"{sum(one.start):.6g}") for one in known} != {n: float(f"{v[0]:.6g}") for n, v in rows.items()}:
            raise StaleError(f"{file} was drawn around other figures; draw it again with onco-gym calibrate CARD --ensemble")
        offsets = np.stack([rows[one.name][1:] for one in known], axis=1)
    except StaleError:
        raise
    except (OSError, ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise TrialError(f"{file} is not an ensemble: {error}") from None
    if not offsets.size or not np.isfinite(offsets).all() or np.abs(offsets).max() > 50:
        raise TrialError(f"{file} is not an ensemble: its numbers are empty or out of range")
    return Ensemble(tuple(known), offsets)


def covered(arms: Sequence[Arm], seen: Sequence[ArmSeen]) -> float:
    """Share of the published 95% intervals of medians that contain the simulated figure."""
    hits = []
    for arm, one in zip(arms, seen, strict=False):  # those with twice the kill come last
        for interval, times in ((arm.pfs_interval, one.progression_free), (arm.os_interval, one.overall)):
            if interval and one.enrolled:
                hits.append(interval[0] <= times.months[(one.enrolled - 1) // 2] <= interval[1])
    return float(np.mean(hits)) if hits else 1.0


def draw_ensemble(
    card: Card,
    n: int = 400,
    seed: int = 0,
    members: int = MEMBERS,
    progress: Progress = silent,
    workers: str = "local",
    address: str | None = None,
) -> Ensemble:
    """Draw an ensemble around a fitted card.

    Args:
        card: a fitted card.
        n: patients screened for each arm.
        seed: same card, same seed, same ensemble.
        members: number of members.
        progress: told after every parameter and every member.
        workers, address: where each parameter is moved; see :func:`onco_gym.foundation.workers.spread`. Members are simulated
            in this process, one by one.
    """
    fit = Fit(card, n, seed, workers, address)
    centre = fit.position.x
    base = fit.look(centre)
    jacobian = fit.jacobian(centre, base, progress)
    precision = jacobian.T @ (steady(base[2])[:, None] * jacobian) + np.diag(np.maximum(fit.pull, 0.5) ** 2)
    spread = np.linalg.cholesky(np.linalg.inv(precision))
    own = np.arange(len(centre)) < len(fit.parameters)  # the card has no effects of trials
    floor = covered(fit.panel.arms, base[1]) - ALLOWED
    rng = np.random.default_rng([seed, 11])
    kept: list[NDArray[np.float64]] = []
    scale, tried, found = 1.0, 0, 0
    while len(kept) < members:
        offset = scale * own * (spread @ rng.standard_normal(len(centre)))
        tried += 1
        if scale < 0.05 or covered(fit.panel.arms, fit.look(offset)[1]) >= floor:
            kept.append(offset[own])
            found += 1
            progress("members of the ensemble", len(kept), members)
        if tried >= 12 and found < tried / 4:  # steps are too large: most draws leave the published intervals
            scale, tried, found = 0.7 * scale, 0, 0
    return Ensemble(tuple(fit.parameters), np.stack(kept))
