"""Train and evaluate the baselines; every run is kept as a JSON file, and what is there already is not run again.

    python baselines/run.py                                   # everything: many hours on two cores
    python baselines/run.py --env NSCLC-v0 --algorithm ppo jax_ppo --seeds 2
    python baselines/table.py                                 # baselines/README.md and its figures, from the runs

Research software, not for treating patients.
"""

import argparse
import hashlib
import json
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from onco_gym.agents import load_agent, rollout
from onco_gym.agents.cloning import TRAINING
from onco_gym.cards.load import digest
from onco_gym.evaluation import evaluate
from onco_gym.foundation.files import replacing
from onco_gym.foundation.workers import spread
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.interfaces.registry import NAMESPACE
from onco_gym.version import __version__
from train import train

HERE = Path(__file__).parent
RUNS, POLICIES = HERE / "runs", HERE / "policies"
DISEASES = ("NSCLC", "Breast", "Colorectal", "Melanoma")
UNTRAINED = ("random", "constant", "guideline", "clinician")
REGIMENS = ("ppo", "maskable_ppo", "a2c", "dqn", "jax_ppo", "guided_ppo", "cloning", "cql")
DOSES = ("sac",)


@dataclass(frozen=True)
class Run:
    """One run: a policy, trained or not, and its evaluation."""

    environment: str  # without the namespace
    algorithm: str
    seed: int
    patients: int
    first_patient: int
    settings: Mapping[str, Any]
    tensorboard: str | None = None

    @property
    def file(self) -> Path:
        """Where it is kept."""
        return RUNS / self.environment / self.algorithm / f"{self.seed}.json"

    @property
    def policy(self) -> Path:
        """Where its policy is kept."""
        return POLICIES / self.environment / f"{self.algorithm}-{self.seed}.onnx"

    def engine(self) -> Engine:
        """The environment."""
        card, kind = self.environment.split("-")[0].lower(), "dose" if "-Dose-" in self.environment else "regimen"
        return make_engine(card, kind=kind)

    def stamp(self) -> str:
        """Of all that the result hangs on: settings, card, patients."""
        content = [self.settings, self.patients, self.first_patient, digest(self.engine().card)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def is_done(self) -> bool:
        """Whether a run with this stamp is kept."""
        try:
            return bool(json.loads(self.file.read_text())["stamp"] == self.stamp())
        except (FileNotFoundError, ValueError, KeyError):
            return False


def planned(environments: list[str], algorithms: list[str] | None, seeds: int | None, tensorboard: str | None) -> list[Run]:
    """Every run that is wanted, done or not."""
    table = tomllib.loads((HERE / "hyperparameters.toml").read_text())
    runs = []
    for environment in environments:
        fitting = (*UNTRAINED, *REGIMENS) if "-Dose-" not in environment else ("random", "constant", "guideline", *DOSES)
        for algorithm in fitting:
            if algorithms and algorithm not in algorithms:
                continue
            own = table.get(f"{NAMESPACE}/{environment}", {}).get(algorithm, {})
            settings = {**table["default"].get(algorithm, {}), **own}
            count = seeds or table["seeds"]["runs"]
            patients = table["seeds"]["patients"], table["seeds"]["first_patient"]
            for seed in range(1 if algorithm in UNTRAINED else count):
                runs.append(Run(environment, algorithm, seed, *patients, settings, tensorboard))
    return runs


def best_constant(engine: Engine) -> str:
    """The regimen that does best when given every cycle, to training patients."""
    names = [regimen.name for regimen in engine.card.regimens if regimen.active]
    mean = {}
    for name in names:
        try:
            agent = load_agent(engine, name)
        except ValueError:  # not every regimen can be dosed
            continue
        mean[name] = float(rollout(engine, agent, 1000, seed=TRAINING).returns.mean())
    return max(mean, key=mean.__getitem__)


def perform(run: Run, on_step: Any = lambda share: None) -> dict[str, Any]:
    """Train if need be, evaluate, write the run down."""
    engine, start = run.engine(), time.perf_counter()
    curve: list[tuple[int, float]] = []
    agent = best_constant(engine) if run.algorithm == "constant" else run.algorithm
    if run.algorithm not in UNTRAINED:
        env_id = f"{NAMESPACE}/{run.environment}"
        curve = train(env_id, run.algorithm, engine, run.settings, run.seed, run.policy, on_step, run.tensorboard)
        agent = str(run.policy)
    trained = time.perf_counter() - start
    found = evaluate(engine, agent, run.patients, run.first_patient, fairness=run.seed == 0)
    content = {
        "stamp": run.stamp(),
        "version": __version__,
        "environment": run.environment,
        "algorithm": run.algorithm,
        "seed": run.seed,
        "settings": dict(run.settings),
        "agent": Path(agent).name,
        "seconds": round(trained, 1),
        "curve": curve,
        "evaluation": {**found.to_json(), "agent": Path(agent).name},
        "returns": [round(float(value), 4) for value in found.runs.returns],
    }
    run.file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(run.file) as temporary:
        temporary.write_text(json.dumps(content) + "\n")
    return content


def main() -> None:
    """Run what is wanted and not yet there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [f"{disease}-v0" for disease in DISEASES] + [f"{disease}-Dose-v0" for disease in DISEASES]
    parser.add_argument(
        "--env", nargs="+", choices=every, default=every, metavar="ID", help=f"by default all: {', '.join(every)}"
    )
    known = (*UNTRAINED, *REGIMENS, *DOSES)
    parser.add_argument("--algorithm", nargs="+", choices=known, metavar="NAME", help=f"by default all: {', '.join(known)}")
    parser.add_argument("--seeds", type=int, help="runs of each; by default as in hyperparameters.toml")
    parser.add_argument("--tensorboard", metavar="DIR", help="write TensorBoard logs of the SB3 runs there")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="where to run; by default here")
    parser.add_argument("--address", help="of a Ray cluster; by default one is started here")
    arguments = parser.parse_args()
    runs = planned(arguments.env, arguments.algorithm, arguments.seeds, arguments.tensorboard)
    waiting = [run for run in runs if not run.is_done()]
    screen = Console()
    screen.print(f"{len(runs)} runs, {len(runs) - len(waiting)} of them done already")
    columns = (TextColumn("{task.description:<44}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen) as bar:
        whole = bar.add_task("all runs", total=len(waiting))
        if arguments.engine == "ray":
            spread(perform, waiting, "ray", arguments.address, lambda done, _: bar.update(whole, completed=done))
            return
        one = bar.add_task("", total=1.0)
        for number, run in enumerate(waiting):
            bar.update(one, description=f"{run.environment}, {run.algorithm}, seed {run.seed}", completed=0)
            content = perform(run, lambda share: bar.update(one, completed=share))
            mean = content["evaluation"]["return"]["value"]
            bar.console.print(
                f"{run.environment:<18} {run.algorithm:<13} {run.seed}  return {mean:.3f}  {content['seconds']:.0f} s"
            )
            bar.update(whole, completed=number + 1)


if __name__ == "__main__":
    main()
