"""Renew the figures of docs/workflow.md: the benefit of testing, on every card. Part of ``make docs``."""

import sys
from collections.abc import Sequence

from rich.progress import track

from onco_gym.agents import Episodes, WorkflowAgent, rollout
from onco_gym.cards import load_card
from onco_gym.interfaces.engine import make_engine
from pages import CARDS, DOCS, paired, parser, renew, table

PAGE = DOCS / "workflow.md"
TESTING = ("indicated", "never", "everything")
PATIENTS, SEED = 4000, 7


def figures(found: dict[tuple[str, str], Episodes]) -> str:
    """Both tables."""
    means: list[tuple[object, ...]] = []
    apart: list[tuple[object, ...]] = []
    for name in CARDS:
        title = load_card(name).id
        runs = {testing: found[name, testing] for testing in TESTING}
        for testing, run in runs.items():
            numbers = f"{run.terms['outcome'].mean():.2f}", f"{run.returns.mean():.2f}"
            means.append((title, testing, *numbers, f"{run.cost_usd.mean():,.0f}", f"{run.carbon_kg.mean():,.0f}"))
        years = {testing: run.terms["outcome"] for testing, run in runs.items()}
        gained = paired(years["indicated"], years["never"], 3), paired(years["everything"], years["indicated"], 3)
        apart.append((title, *gained, paired(runs["everything"].returns, runs["indicated"].returns, 3)))
    head = ["card", "testing", "quality-adjusted years", "return", "USD of tests and scans", "kg CO2e"]
    pairs = ["card", "indicated - never, years", "everything - indicated, years", "everything - indicated, return"]
    return "\n\n".join([table(head, means), "Paired differences with 95% intervals:", table(pairs, apart)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser(__file__, __doc__).parse_args(arguments)
    found = {}
    for name in track(CARDS, "testing in the workflow"):
        engine = make_engine(name, kind="workflow")
        for testing in TESTING:
            found[name, testing] = rollout(engine, WorkflowAgent(engine.card, testing), PATIENTS, seed=SEED)
    renew(PAGE, __file__, {"testing": figures(found)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
