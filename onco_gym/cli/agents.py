"""Commands on agents: train, export."""

import argparse
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from onco_gym.cli.common import UsageError, console, resolve


def train_command(arguments: argparse.Namespace) -> None:
    """Train a policy by PPO in JAX."""
    key, card = _policy_for(arguments.id, arguments.out)
    errors = console(stderr=True)
    columns = (TextColumn("{task.description:<40}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("compiling", total=arguments.steps)
        from onco_gym.agents import load_agent, ppo, save_mlp_onnx
        from onco_gym.agents.cloning import clone
        from onco_gym.interfaces.engine import make_engine

        def report(progress: ppo.Progress) -> None:
            bar.update(task, completed=progress.steps, description=f"return {progress.mean_return:.3f} while exploring")

        engine = make_engine(card, kind=gym.spec(key).kwargs.get("kind", "regimen"))
        settings, start = ppo.PpoSettings(steps=arguments.steps), None
        if arguments.imitate:
            bar.update(task, description=f"imitating {arguments.imitate}")
            start = clone(engine, load_agent(engine, arguments.imitate, arguments.seed), seed=arguments.seed)
            settings = replace(settings, rate=4e-4, entropy=0.004)  # smaller steps: there is something to lose
        agent = ppo.train(engine, settings, arguments.seed, report, start)
        save_mlp_onnx(arguments.out, engine, agent.layers)
    print(f"wrote {arguments.out} for {key}; evaluate it: onco-gym evaluate {arguments.out} --env {arguments.id}")


def export_command(arguments: argparse.Namespace) -> None:
    """Write a model of Stable-Baselines3 as an ONNX policy file."""
    key, card = _policy_for(arguments.env, arguments.out)
    from onco_gym.agents.loading import export
    from onco_gym.interfaces.engine import make_engine

    kind = gym.spec(key).kwargs.get("kind", "regimen")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", UserWarning)
        export(arguments.out, make_engine(card, kind=kind), arguments.model, arguments.vecnormalize)
    for text in dict.fromkeys(str(one.message) for one in heard if one.category is UserWarning):
        console(stderr=True).print(f"onco-gym: {text}", markup=False, soft_wrap=True)
    print(f"wrote {arguments.out} for {key}; on simulated patients it chooses what {arguments.model} chooses")


def _policy_for(environment: str, out: Path) -> tuple[str, str]:
    """The environment's id and card, if a policy for it can be written to ``out``."""
    key, card = resolve(environment)
    if "/mo-" in key:
        raise UsageError(f"{key} has a vector of rewards: expected an environment with one reward, whose weights you can choose")
    if out.suffix != ".onnx":
        raise UsageError(f"{str(out)!r}: a policy file ends in .onnx")
    return key, card
