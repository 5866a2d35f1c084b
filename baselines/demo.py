"""The main job in a few minutes: train PPO on lung cancer, evaluate it beside random play and the guideline, write a page."""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from onco_gym.agents import load_agent
from onco_gym.evaluation import evaluate_all, write_report
from onco_gym.interfaces.engine import make_engine
from train import train

ENVIRONMENT = "onco_gym/NSCLC-v0"
SETTINGS = {"envs": 1024, "n_steps": 32, "batch_size": 4096, "n_epochs": 4, "learning_rate": 1e-3, "gamma": 0.995}


def main() -> int:
    """Train, evaluate, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_500_000, help="of training; by default 2500000")
    parser.add_argument("--patients", type=int, default=1000, help="of the evaluation; by default 1000")
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="by default runs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    policy, page, screen = arguments.out / "ppo.onnx", arguments.out / "report.html", Console()
    columns = (TextColumn("{task.description:<46}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen) as bar:
        task = bar.add_task("compiling", total=1.0)
        engine = make_engine("nsclc")
        settings = {**SETTINGS, "steps": arguments.steps, "ent_coef": 0.01, "reward_scale": 4.0}
        told = f"training PPO for {arguments.steps:,} steps"
        curve = train(
            ENVIRONMENT, "ppo", engine, settings, 0, policy, lambda share: bar.update(task, completed=share, description=told)
        )
        task = bar.add_task(f"evaluating on {arguments.patients:,} patients", total=None)
        names = (str(policy), "random", "guideline")
        found = evaluate_all(
            names,
            ENVIRONMENT,
            episodes=arguments.patients,
            fairness=names[:1],
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
        write_report(
            page, found, engine, load_agent(engine, str(policy)), curve, "Non-small-cell lung cancer: PPO after a few minutes"
        )
    for one in found:
        score, years = one.score, one.qalys
        screen.print(
            f"{Path(one.agent).name:<10} score {score.value:5.0f} [{score.low:.0f}, {score.high:.0f}]   "
            f"quality-adjusted years {years.value:.2f} [{years.low:.2f}, {years.high:.2f}]",
            highlight=False,
        )
    screen.print(f"Score: {found[0].reference.says}. The report is in {page}, the policy in {policy}.", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
