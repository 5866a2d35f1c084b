"""Run a trial: arms side by side in one population, with intervals for chance and for uncertain figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.load import digest
from onco_gym.cards.scenarios import Params, params
from onco_gym.foundation.progress import Progress, silent
from onco_gym.trials.arms import Setting, TrialError
from onco_gym.trials.statistics import (
    FIGURES,
    LIMIT,
    ArmResult,
    Interval,
    Times,
    fast_log_hazard_ratio,
    hazard_ratio,
    simulated_arm,
)

RESAMPLES = 40
"""Bootstrap samples of the patients, for the uncertainty of chance."""
FEW = 400
"""Patients per arm for simulations with the figures of an ensemble."""
RATIOS = ("pfs_hazard_ratio", "os_hazard_ratio")
MULTIPLIED = np.array([name.endswith(("months", "ratio")) for name in (*FIGURES, *RATIOS)])
SHARES = np.array([name not in ("pfs_months", "os_months", "qalys", *RATIOS) for name in (*FIGURES, *RATIOS)])


Bounds = dict[str, tuple[float, float]]
"""Figures to intervals."""


@dataclass(frozen=True, eq=False)
class TrialResult:
    """The result of a trial.

    Attributes:
        card, digest: the card's id and fingerprint.
        setting: population and conduct of the trial.
        n, seed, months, independent: patients per arm, seed, follow-up, whether arms had patients of their own.
        arms: results, in the order given. The others are compared with the last.
        pfs_hazard_ratios, os_hazard_ratios: of each arm except the last, against the last.
        uncertainty: for each arm, figure to 95% interval that includes the uncertainty of the card's figures;
            empty without an ensemble.
        ratio_uncertainty: the same for the hazard ratios. :meth:`hazard_ratios` returns the ratios with the interval to show.
    """

    card: str
    digest: str
    setting: Setting
    n: int
    seed: int
    months: float
    independent: bool
    arms: tuple[ArmResult, ...]
    pfs_hazard_ratios: tuple[Interval, ...]
    os_hazard_ratios: tuple[Interval, ...]
    uncertainty: tuple[Bounds, ...]
    ratio_uncertainty: tuple[Bounds, ...]

    def hazard_ratios(self, endpoint: Literal["pfs", "os"]) -> tuple[Interval, ...]:
        """Hazard ratio of each arm except the last, against the last. :attr:`included` says what the intervals include."""
        name = f"{endpoint}_hazard_ratio"
        found: tuple[Interval, ...] = getattr(self, f"{name}s")
        pairs = zip(found, self.ratio_uncertainty, strict=True)
        return tuple(Interval(one.value, *wider.get(name, (one.low, one.high))) for one, wider in pairs)

    @property
    def included(self) -> str:
        """What the 95% intervals of the trial include, in words."""
        return "chance and uncertain figures of the card" if any(self.uncertainty) else "chance only"


def run_trial(
    card: Card,
    setting: Setting,
    protocols: Sequence[str],
    n: int = 1000,
    seed: int = 0,
    months: float = 60.0,
    independent: bool = False,
    ensemble: Sequence[Params] = (),
    progress: Progress = silent,
) -> TrialResult:
    """Run a trial.

    Args:
        card: a validated card.
        setting: population and conduct of the trial.
        protocols: one sequence of regimens per arm; the others are compared with the last.
        n: patients enrolled in each arm.
        seed: same seed, same trial.
        months: follow-up of every patient.
        independent: give every arm patients of its own, as randomisation does. By default arms share patients and chance,
            so that they differ only in treatment.
        ensemble: other sets of figures that fit as well (:class:`onco_gym.trials.ensemble.Ensemble`), for the intervals.
        progress: told after each simulated arm.

    Raises:
        TrialError: if the population, a regimen or a number is invalid.
    """
    if not protocols:
        raise TrialError("a trial needs at least one arm")
    if n < 2:
        raise TrialError(f"a trial needs at least two patients per arm, not {n}")

    total, done = len(protocols) * (2 + len(ensemble) if ensemble else 1), 0

    def results(figures: Params, patients: int) -> list[ArmResult]:
        nonlocal done
        rows = []
        for index, protocol in enumerate(protocols):
            own = seed + (index * 1_000_003 if independent else 0)
            rows.append(simulated_arm(card, figures, setting, protocol, patients, own, months))
            done += 1
            progress("arms", done, total)
        return rows

    arms = results(params(card), n)
    *others, last = arms
    exact = {
        "pfs_hazard_ratio": [hazard_ratio(arm.progression_free, last.progression_free) for arm in others],
        "os_hazard_ratio": [hazard_ratio(arm.overall, last.overall) for arm in others],
    }
    figures: list[Bounds] = [{} for _ in arms]
    ratios: list[Bounds] = [{} for _ in others]
    if ensemble:
        few = min(n, FEW)
        own, *members = (_points(results(one, few)) for one in (params(card), *ensemble))
        rng = np.random.default_rng([seed, 23])
        chance = np.stack([_points(_resampled(arms, independent, rng)) for _ in range(RESAMPLES)])
        spread = np.concatenate([_moved(own, member, chance) for member in members])
        figures, ratios = _bounds(arms, exact, spread)
    return TrialResult(
        card=card.id,
        digest=digest(card),
        setting=setting,
        n=n,
        seed=seed,
        months=months,
        independent=independent,
        arms=tuple(arms),
        pfs_hazard_ratios=tuple(exact["pfs_hazard_ratio"]),
        os_hazard_ratios=tuple(exact["os_hazard_ratio"]),
        uncertainty=tuple(figures),
        ratio_uncertainty=tuple(ratios),
    )


def _bounds(
    arms: Sequence[ArmResult], exact: Mapping[str, Sequence[Interval]], spread: NDArray[np.float64]
) -> tuple[list[Bounds], list[Bounds]]:
    """95% intervals of the figures of each arm, and of the hazard ratios of each but the last.

    Args:
        arms: the arms.
        exact: their hazard ratios, by name.
        spread: (draws, values) figures in the order of :func:`_points`.
    """
    spread = np.sort(spread, axis=0)
    low_high_own = np.stack([spread[int(0.025 * len(spread))], spread[int(0.975 * len(spread))], _points(arms)])
    figures: list[Bounds] = []
    ratios: list[Bounds] = [{} for _ in arms[:-1]]
    for i, rows in enumerate(low_high_own.reshape(3, len(arms), -1).transpose(1, 2, 0).tolist()):
        found = dict(zip((*FIGURES, *RATIOS), rows, strict=True))
        # Never narrower than chance: if few patients all respond, resampling them shows no spread.
        chance = arms[i].estimates()
        figures.append({name: (min(found[name][0], one.low), max(found[name][1], one.high)) for name, one in chance.items()})
        for name in RATIOS if i < len(ratios) else ():
            value, (low, high, own) = exact[name][i].value, found[name]
            if np.exp(-LIMIT) < value < np.exp(LIMIT):  # beyond, keep the interval of Cox regression
                # Resampled ratios have Breslow's ties, the ratio itself has Efron's. Rescale them to it.
                ratios[i][name] = low * value / own, high * value / own
    return figures, ratios


def _points(arms: Sequence[ArmResult]) -> NDArray[np.float64]:
    """Figures and hazard ratios of all arms in a row; the last arm's ratios, against itself, are 1."""
    values: list[float] = []
    for arm in arms:
        shares = [float(np.mean(getattr(arm, name))) for name in ("responded", "controlled", "severe", "stopped")]
        values += [_median(arm.progression_free), _median(arm.overall), *shares, float(arm.quality.mean())]
        for name in ("progression_free", "overall"):
            last = getattr(arms[-1], name)
            values.append(1.0 if arm is arms[-1] else float(np.exp(fast_log_hazard_ratio(getattr(arm, name), last))))
    return np.array(values)


def _moved(own: NDArray[np.float64], member: NDArray[np.float64], draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """(draws, values) moved as the figures move from the card's ``own`` (values,) to those of a ``member`` of an ensemble.

    All share patients and chance, so few patients suffice to show the difference. Medians and ratios move by a factor, shares and
    means by a shift. A median that only one of the two reaches is the member's.
    """
    factors, shares = (np.resize(flags, len(own)) for flags in (MULTIPLIED, SHARES))
    with np.errstate(divide="ignore", invalid="ignore"):
        by = np.where(factors, np.where(np.isfinite(own), member / own, np.nan), member - own)
        values = np.where(factors, draws * by, draws + by)
    values = np.where(shares, np.clip(values, 0, 1), values)
    return np.where(np.isnan(values) | ~np.isfinite(by), member, values)


def _resampled(arms: Sequence[ArmResult], independent: bool, rng: np.random.Generator) -> list[ArmResult]:
    """The arms with patients resampled. Arms that share patients draw the same ones."""
    first = rng.integers(0, arms[0].n, arms[0].n)
    rows = []
    for arm in arms:
        who = rng.integers(0, arm.n, arm.n) if independent else first
        changed = {name: getattr(arm, name)[who] for name in ("responded", "controlled", "severe", "stopped", "quality")}
        for name in ("progression_free", "overall"):
            times: Times = getattr(arm, name)
            changed[name] = Times(times.months[who], times.event[who])
        rows.append(replace(arm, **changed))
    return rows


def _median(times: Times) -> float:
    """The median if everybody is followed equally long; ``inf`` if not reached."""
    middle = np.argsort(times.months, kind="stable")[(len(times.months) - 1) // 2]
    return float(times.months[middle]) if times.event[middle] else np.inf


def as_json(result: TrialResult) -> dict[str, Any]:
    """A trial in plain numbers, including its curves. None means not reached."""
    grid = np.arange(0, result.months + 1e-9, 1.0)

    def number(value: float) -> float | None:
        return round(float(value), 4) if np.isfinite(value) else None

    def plain(estimate: Interval, wider: tuple[float, float] | None) -> dict[str, Any]:
        row: dict[str, Any] = {"value": number(estimate.value), "interval": [number(estimate.low), number(estimate.high)]}
        if wider is not None:
            row["interval_with_uncertain_figures"] = [number(bound) for bound in wider]
        return row

    arms = []
    for arm, wider in zip(result.arms, result.uncertainty, strict=True):
        figures = {name: plain(value, wider.get(name)) for name, value in arm.estimates().items()}
        times = {"pfs": arm.progression_free, "os": arm.overall}
        curves = {name: [number(value) for value in one.curve(grid)] for name, one in times.items()}
        arms.append({"protocol": arm.name, "n": arm.n, **figures, "curves": {"months": grid.tolist(), **curves}})
    comparisons = []
    for i, wider in enumerate(result.ratio_uncertainty):
        ratios = {name: plain(getattr(result, f"{name}s")[i], wider.get(name)) for name in RATIOS}
        comparisons.append({"arm": result.arms[i].name, "against": result.arms[-1].name, **ratios})
    setting = {**vars(result.setting), "scan_weeks": list(result.setting.scan_weeks) or None}
    asked = {name: getattr(result, name) for name in ("n", "seed", "months", "independent")}
    return {"card": result.card, "digest": result.digest, **setting, **asked, "arms": arms, "comparisons": comparisons}
