"""Train MaskablePPO on lung cancer from nothing, evaluate it, write a report, and submit the policy to a board."""

import argparse
import sys
import tomllib
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from onco_gym.agents import load_agent
from onco_gym.evaluation import evaluate_all, write_report
from onco_gym.evaluation.tables import compared
from onco_gym.foundation.progress import Progress as Reporter
from onco_gym.interfaces.engine import make_engine
from onco_gym.leaderboard import Manifest, read_board
from onco_gym.leaderboard.boards import board_folder
from onco_gym.leaderboard.exchange import import_folder
from onco_gym.leaderboard.pages.export import build_site
from onco_gym.leaderboard.publishing import Published
from onco_gym.leaderboard.seasons import find_secret
from onco_gym.leaderboard.store import Store
from onco_gym.leaderboard.submitting import submit_here
from train import train

SETTINGS = Path(__file__).parent / "hyperparameters.toml"
BOARD = "nsclc-2026"


def main() -> int:
    """Train, evaluate, report, submit."""
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
        last = bar.add_task(f"submitting to {BOARD}", total=None)
        told = submit(
            policy, arguments.out, lambda stage, done, of: bar.update(last, description=stage, completed=done, total=of or None)
        )
    screen.print(compared(found[0], found[-1]), highlight=False)
    for one in found:
        score, years = one.score, one.qalys
        screen.print(
            f"{one.agent:<10} score {score.value:5.0f} [{score.low:.0f}, {score.high:.0f}]   "
            f"quality-adjusted years {years.value:.2f} [{years.low:.2f}, {years.high:.2f}]",
            highlight=False,
        )
    screen.print(f"Score: {found[0].reference.says}. The report is in {page}, the policy in {policy}.", highlight=False)
    screen.print(told, highlight=False)
    return 0


def submit(policy: Path, out: Path, progress: Reporter) -> str:
    """Submit the policy to a board, as ``onco-gym submit`` does, and make the board's pages. Returns what became of it."""
    board, store = read_board(BOARD), Store(f"sqlite:///{out / 'leaderboard.sqlite'}")
    import_folder(store, board_folder(BOARD), board)
    manifest = Manifest(name="MaskablePPO of make demo", authors=["you"], training_data="training patients")
    entry = submit_here(
        store, board, manifest, {board.environments[0]: policy.read_bytes()}, "", find_secret(board, None), progress
    )
    source = Published(store, [board])
    build_site(out / "site", source, progress)
    rows = source.standings(BOARD).rows
    place = next((f"rank {row.place} of {len(rows)}" for row in rows if row.entry.id == entry.id), entry.reason)
    return f"On the board {BOARD} it has {place}. Open {out / 'site' / BOARD / 'index.html'} to see its row and its patients."


if __name__ == "__main__":
    sys.exit(main())
