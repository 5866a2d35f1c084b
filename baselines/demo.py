"""Train MaskablePPO on lung cancer from nothing, evaluate it beside random play and the guideline, and write a report."""

import argparse
import sys
import tomllib
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from onco_gym.agents import load_agent
from onco_gym.evaluation import evaluate_all, write_report
from onco_gym.evaluation.report import compared
from onco_gym.interfaces.engine import make_engine
from train import train

SETTINGS = Path(__file__).parent / "hyperparameters.toml"


def main() -> int:
    """Train, evaluate, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=6_000_000, help="cycles of treatment in training; by default 6000000")
    parser.add_argument("--patients", type=int, default=10_000, help="patients in the evaluation; by default 10000")
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="folder for the results; by default runs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    policy, page, screen = arguments.out / "maskable_ppo.onnx", arguments.out / "report.html", Console()
    columns = (TextColumn("{task.description:<46}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen) as bar:
        task = bar.add_task(f"training MaskablePPO for {arguments.cycles:,} cycles", total=None)
        engine, settings = make_engine("NSCLC"), tomllib.loads(SETTINGS.read_text("utf-8"))["default"]["maskable_ppo"]
        settings["cycles"] = arguments.cycles
        curve = train(engine, "maskable_ppo", settings, 0, policy, lambda _, done, of: bar.update(task, completed=done, total=of))
        other = bar.add_task(f"evaluating on {arguments.patients:,} patients", total=None)
        agents = {policy.name: str(policy), "random": "random", "guideline": "guideline"}
        found = evaluate_all(
            engine,
            agents,
            arguments.patients,
            fairness=[policy.name],
            progress=lambda _, done, of: bar.update(other, completed=done, total=of),
        )
        title = "Non-small-cell lung cancer: MaskablePPO after a few minutes"
        write_report(page, found, engine, load_agent(engine, str(policy)), curve, title)
    screen.print(compared(found[0], found[-1]), highlight=False)
    for one in found:
        score, years = one.score, one.qalys
        screen.print(
            f"{one.agent:<10} score {score.value:5.0f} [{score.low:.0f}, {score.high:.0f}]   "
            f"quality-adjusted years {years.value:.2f} [{years.low:.2f}, {years.high:.2f}]",
            highlight=False,
        )
    screen.print(f"Score: {found[0].reference.says}. The report is in {page}, the policy in {policy}.", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
