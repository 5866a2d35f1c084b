"""Train and evaluate the baselines. Every run is kept as a JSON file, and finished runs are not repeated.

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

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from onco_gym.agents import AgentError, load_agent, rollout
from onco_gym.agents.cloning import TRAINING
from onco_gym.evaluation import evaluate
from onco_gym.foundation.files import replacing
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.workers import WORKERS, spread
from onco_gym.interfaces import registry
from onco_gym.interfaces.decisions import LONGEST
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.version import __version__
from train import train

HERE = Path(__file__).parent
RUNS, POLICIES = HERE / "runs", HERE / "policies"
UNTRAINED = {"regimen": ("random", "constant", "guideline", "clinician"), "dose": ("random", "constant", "guideline")}
TRAINED = {
    "regimen": ("ppo", "maskable_ppo", "a2c", "dqn", "jax_ppo", "guided_ppo", "cloning", "cql"),
    "dose": ("sac",),
}
"""Baselines by kind of environment."""


def environments(kind: str) -> list[str]:
    """The environments of a kind, without the namespace. Lung cancer, the disease of the examples, comes first."""
    found = [one.id for one in registry.environments() if one.kind == kind and not one.multi_objective]
    return sorted((name.removeprefix(f"{registry.NAMESPACE}/") for name in found), key=lambda name: "NSCLC" not in name)


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
        """Where the run is kept."""
        return RUNS / self.environment / self.algorithm / f"{self.seed}.json"

    @property
    def policy(self) -> Path:
        """Where its policy is kept."""
        return POLICIES / self.environment / f"{self.algorithm}-{self.seed}.onnx"

    @property
    def trained(self) -> bool:
        """Whether there is a policy to train."""
        return self.algorithm in {name for names in TRAINED.values() for name in names}

    def engine(self) -> Engine:
        """The environment, with decisions where the policy is trained to make them."""
        return make_engine(self.environment, decide=self.settings.get("decide"))

    def stamp(self) -> str:
        """A hash of everything that the result depends on: settings, patients, and the card of the engine's own stamp."""
        stamp = self.engine().on("test").stamp
        patients = self.patients, self.first_patient, stamp.card_digest, stamp.cohort_digest
        content = [self.settings, *patients, stamp.decide, LONGEST]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def kept(self) -> dict[str, Any]:
        """What is kept of this run; empty if there is none."""
        try:
            found: dict[str, Any] = json.loads(self.file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found

    def is_done(self) -> bool:
        """Whether a run with this stamp is kept."""
        return self.kept().get("stamp") == self.stamp()


def planned(names: list[str], algorithms: list[str] | None, seeds: int | None, tensorboard: str | None = None) -> list[Run]:
    """All requested runs in these environments, done or not."""
    table = tomllib.loads((HERE / "hyperparameters.toml").read_text("utf-8"))
    patients = table["seeds"]["patients"], table["seeds"]["first_patient"]
    runs = []
    for name in names:
        found = registry.find_environment(name)
        for algorithm in (*UNTRAINED[found.kind], *TRAINED[found.kind]):
            if algorithms and algorithm not in algorithms:
                continue
            settings = {**table["default"].get(algorithm, {}), **table.get(found.id, {}).get(algorithm, {})}
            count = settings.pop("runs", table["seeds"]["runs"]) if algorithm in TRAINED[found.kind] else 1
            count = min(count, seeds or count)
            runs += [Run(name, algorithm, seed, *patients, settings, tensorboard) for seed in range(count)]
    return runs


def best_constant(engine: Engine) -> str:
    """The regimen that does best on training patients when it is given every cycle."""
    mean = {}
    for name in (regimen.name for regimen in engine.card.regimens if regimen.active):
        try:
            agent = load_agent(engine, name)
        except AgentError:  # not every regimen can be dosed
            continue
        mean[name] = float(rollout(engine, agent, 1000, seed=TRAINING).returns.mean())
    return max(mean, key=mean.__getitem__)


def perform(run: Run, progress: Progress = silent) -> dict[str, Any]:
    """Train unless a policy with these settings is kept, evaluate, and write the run."""
    engine, start = run.engine(), time.perf_counter()
    trainable = {name: value for name, value in run.settings.items() if name != "decide"}
    curve: list[tuple[int, float]] = []
    agent, kept = best_constant(engine) if run.algorithm == "constant" else run.algorithm, run.kept()
    if run.trained:
        agent = str(run.policy)
        if not (run.policy.exists() and kept.get("settings") == run.settings):
            curve, kept = train(engine, run.algorithm, trainable, run.seed, run.policy, progress, run.tensorboard), {}
    seconds = time.perf_counter() - start
    found = evaluate(engine, agent, run.patients, run.first_patient, fairness=run.seed == 0, name=Path(agent).name)
    figures = found.to_json()
    del figures["runs"]  # of each patient's figures only the return is kept
    content = {
        "stamp": run.stamp(),
        "version": __version__,
        "environment": run.environment,
        "algorithm": run.algorithm,
        "seed": run.seed,
        "settings": dict(run.settings),
        "agent": found.agent,
        "seconds": kept.get("seconds", round(seconds, 1)),
        "curve": kept.get("curve", curve),
        "evaluation": figures,
        "returns": [round(float(value), 4) for value in found.runs.returns],
    }
    run.file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(run.file) as temporary:
        temporary.write_text(json.dumps(content) + "\n")
    return content


def main() -> None:
    """Run all requested runs that are not done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [name for kind in TRAINED for name in environments(kind)]
    text = f"environments; by default all: {', '.join(every)}"
    parser.add_argument("--env", nargs="+", choices=every, default=every, metavar="ID", help=text)
    known = list(dict.fromkeys(name for kinds in (UNTRAINED, TRAINED) for names in kinds.values() for name in names))
    text = f"algorithms; by default all: {', '.join(known)}"
    parser.add_argument("--algorithm", nargs="+", choices=known, metavar="NAME", help=text)
    parser.add_argument("--seeds", type=int, help="runs per algorithm; by default as in hyperparameters.toml")
    parser.add_argument("--tensorboard", metavar="DIR", help="write TensorBoard logs of the SB3 runs there")
    parser.add_argument("--workers", choices=WORKERS, default="local", help="where to run; by default here")
    parser.add_argument("--address", metavar="HOST:PORT", help="address of a Ray cluster; by default one is started here")
    arguments = parser.parse_args()
    runs = planned(arguments.env, arguments.algorithm, arguments.seeds, arguments.tensorboard)
    waiting = [run for run in runs if not run.is_done()]
    screen = Console()
    screen.print(f"{len(runs)} runs, {len(runs) - len(waiting)} of them done already")
    columns = (TextColumn("{task.description:<44}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with rich.progress.Progress(*columns, console=screen) as bar:
        whole = bar.add_task("all runs", total=len(waiting))
        if arguments.workers != "local":
            spread(perform, waiting, arguments.workers, arguments.address, lambda _, done, __: bar.update(whole, completed=done))
            return
        one = bar.add_task("", total=None)
        for number, run in enumerate(waiting):
            bar.reset(one, description=f"{run.environment}, {run.algorithm}, seed {run.seed}", total=None)
            content = perform(run, lambda _, done, total: bar.update(one, completed=done, total=total))
            mean = content["evaluation"]["return"]["value"]
            name = f"{run.environment:<18} {run.algorithm:<13} {run.seed}"
            bar.console.print(f"{name}  return {mean:.3f}  {content['seconds']:.0f} s")
            bar.update(whole, completed=number + 1)


if __name__ == "__main__":
    main()
