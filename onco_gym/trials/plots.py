"""Pictures of trials: Kaplan-Meier curves with numbers at risk, and simulated against published figures."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onco_gym.cards.schema import Arm
from onco_gym.foundation.files import replacing
from onco_gym.trials.published import Reproduction
from onco_gym.trials.statistics import Interval, Times
from onco_gym.trials.trial import TrialResult

NOTE = "Simulated patients. Research software, not for treating patients."
COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#7b5ea7", "#b08900", "#3a3a3a")


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=110, layout="constrained")


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure to ``path``. The suffix sets the format."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix.lstrip(".") or "png")


def draw_curve(axes: Any, times: Times, months: float, label: str, colour: str, band: bool = True) -> None:
    """A Kaplan-Meier curve with its 95% band."""
    table = times.kaplan_meier.confidence_interval_survival_function_
    at = table.index.to_numpy()
    axes.step(at, times.curve(at), where="post", color=colour, lw=1.6, label=label)
    if band:
        axes.fill_between(at, *table.to_numpy().T, step="post", color=colour, alpha=0.15, lw=0)
    axes.set(ylim=(0, 1.02), xlim=(0, months), xlabel="months")


def kaplan_meier(result: TrialResult, title: str) -> Any:
    """Progression-free and overall survival of a trial's arms, with the numbers at risk below."""
    figure = _figure(12, 5.2 + 0.25 * len(result.arms))
    (top, below) = figure.subplots(2, 2, height_ratios=(4.2, 0.35 + 0.28 * len(result.arms)), squeeze=False)
    panels = (("Progression-free survival", "progression_free"), ("Overall survival", "overall"))
    both = result.hazard_ratios("pfs"), result.hazard_ratios("os")
    for axes, risk, (name, attribute), ratios in zip(top, below, panels, both, strict=True):
        step = max(6.0, 6.0 * np.ceil(result.months / 60))
        ticks = np.arange(0, result.months + 0.1, step)
        for index, arm in enumerate(result.arms):
            times: Times = getattr(arm, attribute)
            median = times.median().value
            shown = f"{median:.1f} months" if np.isfinite(median) else "not reached"
            label = f"{arm.name}: {shown}"
            if index < len(ratios) and np.isfinite(ratios[index].value):
                label += f"; HR {ratios[index]:.2f}"
            draw_curve(axes, times, result.months, label, COLOURS[index % len(COLOURS)])
            for tick in ticks:
                count = int((times.months >= tick).sum())
                risk.text(tick, -index, count, ha="center", va="center", fontsize=7, color=COLOURS[index % len(COLOURS)])
        axes.set(title=name, ylabel="share", xticks=ticks)
        axes.legend(fontsize=7, frameon=False, loc="upper right")
        axes.grid(alpha=0.2)
        risk.set(xlim=axes.get_xlim(), ylim=(-len(result.arms) + 0.3, 0.7), xticks=[], yticks=[])
        risk.set_title("at risk", fontsize=8, loc="left")
        for side in risk.spines.values():
            side.set_visible(False)
    included = f"95% intervals of hazard ratios (HR) include {result.included}. " if len(result.arms) > 1 else ""
    figure.suptitle(f"{title}\n{included}95% bands of curves include chance only.\n{NOTE}", fontsize=9)
    return figure


def against_published(rows: Sequence[Reproduction], title: str) -> Any:
    """Simulated against published: medians with intervals on log axes, response and grade 3+ rates."""
    figure = _figure(12, 10.5)
    panels = figure.subplots(2, 2).ravel()
    titles = {"pfs_months": "median PFS, months", "os_months": "median OS, months"}
    titles |= {"response": "response rate", "grade3": "grade 3+ rate"}
    found = [(row.arm, row.result.estimates()) for row in rows]
    for axes, (name, label) in zip(panels, titles.items(), strict=True):
        for arm, estimates in found:
            if getattr(arm, name) is not None:
                _cross(axes, arm, name, estimates[name])
        if name in ("pfs_months", "os_months"):
            axes.set(xscale="log", yscale="log")
            ticks = [1, 2, 3, 5, 10, 20, 40, 80]
            axes.set_xticks(ticks, ticks)
            axes.set_yticks(ticks, ticks)
            axes.minorticks_off()
            ends = np.array([1.0, 100.0])
            limits = 0.8 * ends, 1.25 * ends
        else:
            ends = np.array([0.0, 1.0])
            limits = ends - 0.08, ends + 0.08
        axes.plot(ends, ends, color="0.3", lw=0.8)
        for limit in limits:
            axes.plot(ends, limit, color="0.7", lw=0.7, ls="--")
        axes.set(title=label, xlim=ends, ylim=ends, xlabel="published", ylabel="simulated")
        axes.grid(alpha=0.15)
    for use, colour in (("fitted", COLOURS[0]), ("check, never fitted", COLOURS[1])):
        panels[0].plot([], [], "o", ms=4, color=colour, label=use)
    panels[0].legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle(f"{title}\n{NOTE}", fontsize=9)
    return figure


def _cross(axes: Any, arm: Arm, name: str, simulated: Interval) -> None:
    """A figure of an arm, with intervals across and up. Medians end at 90 months."""
    x = getattr(arm, name)
    y, low, high = np.minimum(simulated, 90.0)
    if name in ("response", "grade3"):
        half = 1.96 * np.sqrt(x * (1 - x) / arm.n) if arm.n else 0.0
        across = x - half, x + half
    else:
        across = getattr(arm, name.replace("months", "interval")) or (x, x)
    wide = [[max(x - across[0], 0)], [max(across[1] - x, 0)]]
    tall = [[max(y - low, 0)], [max(high - y, 0)]]
    colour = COLOURS[0] if arm.use == "fit" else COLOURS[1]
    axes.errorbar([x], [y], xerr=wide, yerr=tall, fmt="o", ms=4, color=colour, elinewidth=0.6, alpha=0.85)
    axes.annotate(arm.trial, (x, y), fontsize=4.5, alpha=0.6, xytext=(2, 2), textcoords="offset points")


def published_panels(rows: Sequence[Reproduction], trials: Sequence[str], title: str) -> Any:
    """Simulated curves of some trials, with the published medians and landmarks."""
    columns = 4
    chosen = [(trial, attribute) for trial in trials for attribute in ("progression_free", "overall")]
    figure = _figure(14, 3.1 * int(np.ceil(len(chosen) / columns)))
    panels = np.ravel(figure.subplots(int(np.ceil(len(chosen) / columns)), columns, squeeze=False))
    for axes, (trial, attribute) in zip(panels, chosen, strict=False):
        arms = [row for row in rows if row.arm.trial == trial]
        first = arms[0].arm.population, arms[0].arm.prior
        for index, row in enumerate(row for row in arms if (row.arm.population, row.arm.prior) == first):
            _panel_arm(axes, row, attribute, COLOURS[index % len(COLOURS)])
        axes.set_title(f"{trial}: {'PFS' if attribute == 'progression_free' else 'OS'}", fontsize=9)
        axes.legend(fontsize=5.5, frameon=False)
        axes.grid(alpha=0.2)
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)
    figure.suptitle(f"{title}: lines simulated, dots published medians and landmarks\n{NOTE}", fontsize=9)
    return figure


def _panel_arm(axes: Any, row: Reproduction, attribute: str, colour: str) -> None:
    arm, result = row.arm, row.result
    short = "pfs" if attribute == "progression_free" else "os"
    draw_curve(axes, getattr(result, attribute), 72.0, arm.protocol.split(">")[0].strip(), colour, band=False)
    months, interval = getattr(arm, f"{short}_months"), getattr(arm, f"{short}_interval")
    if months is not None and months <= 72:
        axes.plot([months], [0.5], "o", color=colour, ms=5, mec="k", mew=0.5)
        if interval:
            axes.plot(interval, [0.5, 0.5], color=colour, lw=1)
    for name, share in arm.landmarks.items():
        if name.startswith(short.upper()) and name[len(short) :].isdigit():
            axes.plot([float(name[len(short) :])], [share], "o", color=colour, ms=5, mec="k", mew=0.5)
