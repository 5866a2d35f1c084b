"""Make baselines/README.md and its figures from the runs that are kept in baselines/runs."""

import argparse
import functools
import json
import operator
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from onco_gym.evaluation import Interval
from onco_gym.evaluation.statistics import bootstrap_interval, interquartile_mean, performance_profile, scores_over_seeds
from onco_gym.evaluation.yardsticks import Yardstick, yardstick
from onco_gym.foundation.files import replacing
from onco_gym.interfaces.engine import make_engine
from run import HERE, RUNS, environments

mpl.use("Agg")
import matplotlib.pyplot as plt

FIGURES, PAGE = HERE / "figures", HERE / "README.md"
NAMES = {
    "random": "random",
    "constant": "best constant regimen",
    "guideline": "guideline",
    "clinician": "clinician",
    "cloning": "behaviour cloning of the clinician",
    "cql": "CQL (d3rlpy, offline)",
    "dqn": "DQN (SB3)",
    "a2c": "A2C (SB3)",
    "ppo": "PPO (SB3)",
    "maskable_ppo": "MaskablePPO (sb3-contrib)",
    "jax_ppo": "PPO (JAX)",
    "guided_ppo": "PPO (JAX) from the guideline",
    "sac": "SAC (SB3), shown the guideline",
}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Entry:
    """All runs of an algorithm in an environment."""

    algorithm: str
    runs: list[dict[str, Any]]
    score: Interval  # 0 random, 100 planner (or guideline without a yardstick), over seeds and patients
    by_seed: list[float]

    def figure(self, *path: str) -> float:
        """The mean over runs of a figure of their evaluations."""
        values = [functools.reduce(operator.getitem, path, run["evaluation"]) for run in self.runs]
        return float("nan") if None in values else float(np.mean(values))


def read() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Runs by environment and algorithm, in the order of their seeds."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted(RUNS.glob("*/*/*.json"), key=lambda one: (one.parts[-3], one.parts[-2], int(one.stem))):
        run = json.loads(file.read_text())
        found[run["environment"]][run["algorithm"]].append(run)
    return found


def entries(algorithms: dict[str, list[dict[str, Any]]], known: Yardstick | None) -> list[Entry]:
    """The entries of one environment, the best last. Intervals resample seeds and patients. Patients are the same for all."""
    returns = {name: [run["returns"] for run in runs] for name, runs in algorithms.items()}
    reach = known.reach(float(np.mean(returns["random"])), float(np.mean(returns["guideline"]))) if known else 1.0
    scores = scores_over_seeds(returns, "random", "guideline", reach)
    rows = [Entry(name, runs, *scores[name]) for name, runs in algorithms.items()]
    return sorted(rows, key=lambda row: row.score.value)


def table(rows: list[Entry]) -> str:
    """The table of one environment."""
    outcomes = ("return", "QALYs", "median survival, months", "in the acceptability region", "kg CO2e")
    head = ("", "score", "runs", *outcomes, "training, s")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in reversed(rows):
        score = row.score
        cells = (
            NAMES[row.algorithm] + (f" ({row.runs[0]['agent']})" if row.algorithm == "constant" else ""),
            f"{score.value:.0f} [{score.low:.0f}, {score.high:.0f}]",
            str(len(row.runs)),
            f"{row.figure('return', 'value'):.2f}",
            f"{row.figure('qalys', 'value'):.2f}",
            _number(row.figure("median_survival_months", "value"), ".1f"),
            f"{row.figure('concordance', 'value'):.0%}",
            f"{row.figure('carbon_kg', 'value'):,.0f}",
            _number(float(np.mean([run["seconds"] for run in row.runs])) if row.runs[0]["settings"] else float("nan"), ".0f"),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _number(value: float, form: str) -> str:
    return format(value, form) if np.isfinite(value) else ""


def draw_scores(every: dict[str, list[Entry]], path: Path) -> None:
    """Scores and their intervals, one panel per environment."""
    rows_of_panels = -(-len(every) // 2)
    figure, panels = plt.subplots(rows_of_panels, 2, figsize=(11, 3.6 * rows_of_panels), squeeze=False, layout="constrained")
    for axes in panels.flat[len(every) :]:
        axes.set_axis_off()
    for axes, (environment, rows) in zip(panels.flat, every.items(), strict=False):
        shown = [row for row in rows if row.score.value > -150]
        places = np.arange(len(shown))
        values = np.array([[row.score.value, row.score.low, row.score.high] for row in shown])
        axes.errorbar(values[:, 0], places, xerr=[values[:, 0] - values[:, 1], values[:, 2] - values[:, 0]], fmt="o", capsize=3)
        for place, row in zip(places, shown, strict=True):
            axes.plot(row.by_seed, [place] * len(row.by_seed), "|", color="0.5", markersize=5)
        for row in rows:
            if row.algorithm == "guideline":
                axes.axvline(row.score.value, color="0.7", linewidth=1, zorder=0)
        axes.set_yticks(places, [NAMES[row.algorithm] for row in shown])
        axes.set(title=environment, xlabel="score (0 random, 100 planner)")
    _save(figure, path)


def draw_curves(found: dict[str, dict[str, list[dict[str, Any]]]], path: Path) -> None:
    """Learning curves, one panel per environment and one line per run."""
    figure, panels = plt.subplots(1, len(found), figsize=(4.1 * len(found), 3.4), squeeze=False, layout="constrained")
    for axes, (environment, algorithms) in zip(panels[0], found.items(), strict=True):
        learned = [name for name in NAMES if any(run["curve"] for run in algorithms.get(name, []))]
        for colour, name in enumerate(learned):
            for number, run in enumerate(algorithms[name]):
                curve = np.array(run["curve"])
                axes.plot(*curve.T, color=f"C{colour}", linewidth=1, alpha=0.8, label=NAMES[name] if number == 0 else None)
        axes.axhline(np.mean(algorithms["guideline"][0]["returns"]), color="0.5", linestyle="--", linewidth=1, label="guideline")
        axes.set(title=environment, xlabel="environment steps", ylabel="return while exploring", xscale="log")
        axes.legend(fontsize=7)
    _save(figure, path)


def draw_profiles(scores: dict[str, Floats], path: Path) -> None:
    """Performance profiles of algorithms that were run in every plain environment."""
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    thresholds = np.linspace(-20, 160, 181)
    for name, values in scores.items():
        profile = performance_profile(values, thresholds)
        axes.plot(thresholds, profile.share, label=NAMES[name])
        axes.fill_between(thresholds, profile.low, profile.high, alpha=0.15)
    axes.set(xlabel="score", ylabel="share of runs above it")
    axes.legend(fontsize=8)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png", metadata={"Software": None})
    plt.close(figure)


def scored(found: Mapping[str, dict[str, list[dict[str, Any]]]]) -> dict[str, list[Entry]]:
    """The entries of every environment. Environments whose actions are regimens come first."""
    plain = [name for name in environments("regimen") if name in found]
    every = {}
    for name in (*plain, *(name for name in found if name not in plain)):
        every[name] = entries(found[name], yardstick(make_engine(name)))
    return every


def together(every: Mapping[str, list[Entry]]) -> dict[str, Floats]:
    """(seeds, environments) scores of the algorithms that were run in every environment, without random and guideline."""
    scores = {}
    for algorithm in NAMES:
        rows = [row for entries in every.values() for row in entries if row.algorithm == algorithm]
        if len(rows) == len(every) and algorithm not in ("random", "guideline"):
            fewest = min(len(row.by_seed) for row in rows)
            scores[algorithm] = np.array([row.by_seed[:fewest] for row in rows]).T
    return scores


def page(every: Mapping[str, list[Entry]], scores: Mapping[str, Floats], profiled: bool) -> str:
    """The text of baselines/README.md."""
    lines = ["| | interquartile mean of the score | 95% interval |", "|---|---|---|"]
    for name, values in sorted(scores.items(), key=lambda pair: -float(interquartile_mean(pair[1]))):
        interval = bootstrap_interval(values, interquartile_mean)
        lines.append(f"| {NAMES[name]} | {interval.value:.0f} | {interval.low:.0f} to {interval.high:.0f} |")
    parts = [f"## {name}\n\n{table(rows)}" for name, rows in every.items()]
    picture = "\n\n![Performance profiles](figures/profiles.png)" if profiled else ""
    text = (HERE / "page.md").read_text("utf-8")
    return text.format(together="\n".join(lines) + picture, tables="\n\n".join(parts))


def main() -> None:
    """Write the page and the figures."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = {name: runs for name, runs in read().items() if {"random", "guideline"} <= set(runs)}
    if not found:
        sys.exit("there are no runs: python baselines/run.py")
    every = scored(found)
    plain = {name: every[name] for name in environments("regimen") if name in every}
    draw_scores(plain, FIGURES / "scores.png")
    draw_curves({name: found[name] for name in plain}, FIGURES / "curves.png")
    scores = together(plain)
    profiled = {name: values for name, values in scores.items() if len(values) > 1}
    if profiled:
        draw_profiles(profiled, FIGURES / "profiles.png")
    with replacing(PAGE) as temporary:
        temporary.write_text(page(every, scores, bool(profiled)), encoding="utf-8")
    print(f"{sum(len(runs) for one in found.values() for runs in one.values())} runs: {PAGE.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
