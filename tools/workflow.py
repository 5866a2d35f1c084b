"""Renew the figures of docs/workflow.md: what testing brings, on every card. Part of ``make docs``."""

import sys

import numpy as np
from build import ROOT, table
from numpy.typing import NDArray
from pareto import renew
from rich.progress import track

from onco_gym.agents import Episodes, WorkflowAgent, rollout
from onco_gym.cards import load_card
from onco_gym.interfaces.engine import make_engine

PAGE = ROOT / "docs" / "workflow.md"
CARDS, TESTING = ("nsclc", "breast", "colorectal", "melanoma"), ("indicated", "never", "everything")
PATIENTS, SEED = 4000, 7


def difference(one: NDArray[np.floating], other: NDArray[np.floating]) -> str:
    """The mean paired difference, with its 95% interval."""
    apart = one.astype(float) - other
    half = 1.96 * apart.std(ddof=1) / np.sqrt(len(apart))
    return f"{apart.mean():+.3f} ({apart.mean() - half:+.3f} to {apart.mean() + half:+.3f})"


def figures(found: dict[tuple[str, str], Episodes]) -> str:
    """Both tables."""
    means: list[tuple[object, ...]] = []
    apart: list[tuple[object, ...]] = []
    for name in CARDS:
        title = load_card(name).id.split("/")[-1].split("-")[0]
        runs = {testing: found[name, testing] for testing in TESTING}
        for testing, run in runs.items():
            numbers = f"{run.terms['outcome'].mean():.2f}", f"{run.returns.mean():.2f}"
            means.append((title, testing, *numbers, f"{run.cost_usd.mean():,.0f}", f"{run.carbon_kg.mean():,.0f}"))
        years = {testing: run.terms["outcome"] for testing, run in runs.items()}
        gained = difference(years["indicated"], years["never"]), difference(years["everything"], years["indicated"])
        apart.append((title, *gained, difference(runs["everything"].returns, runs["indicated"].returns)))
    head = ["card", "testing", "quality-adjusted years", "return", "USD of tests and scans", "kg CO2e"]
    pairs = ["card", "indicated - never, years", "everything - indicated, years", "everything - indicated, return"]
    return "\n".join([*table(head, means), "", "Paired differences with 95% intervals:", "", *table(pairs, apart)])


def main() -> int:
    """Write the page."""
    found = {}
    for name in track(CARDS, "testing in the workflow"):
        engine = make_engine(name, kind="workflow")
        for testing in TESTING:
            found[name, testing] = rollout(engine, WorkflowAgent(engine.card, testing), PATIENTS, seed=SEED)
    renew(PAGE, {"testing": figures(found)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
