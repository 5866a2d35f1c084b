"""Measure how fast policies train: the JAX trainer and PPO of Stable-Baselines3, alternating in one run.

SB3 is measured the way most people start, with 8 single environments in a ``DummyVecEnv`` and its default settings, and with
``make_sb3`` and 1,024 patients. Compiling is not measured.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import gymnasium as gym
import torch
from rich.console import Console
from rich.table import Table
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

import onco_gym
from onco_gym.agents.ppo import PpoSettings, train
from onco_gym.interfaces.engine import make_engine

ENV_ID = "onco_gym/NSCLC-v0"


def sb3(model: PPO, steps: int) -> Callable[[], float]:
    """Steps per second of ``learn``."""
    model.learn(model.n_steps * model.n_envs)  # compiles

    def measure() -> float:
        start, before = time.perf_counter(), model.num_timesteps
        model.learn(steps, reset_num_timesteps=False)
        return (model.num_timesteps - before) / (time.perf_counter() - start)

    return measure


def jax_ppo(steps: int) -> Callable[[], float]:
    """Steps per second of the JAX trainer at its default settings, without its first round, which compiles."""
    engine, settings = make_engine("nsclc"), PpoSettings(steps=steps)

    def measure() -> float:
        seen: list[tuple[float, int]] = []
        train(engine, settings, progress=lambda _, done, __: seen.append((time.perf_counter(), done)))
        (start, first), (end, last) = seen[0], seen[-1]
        return (last - first) / (end - start)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; by default 3")
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps, to check that it runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    share = 10 if arguments.quick else 1
    singles = DummyVecEnv([lambda: gym.make(ENV_ID)] * 8)
    many = onco_gym.make_sb3(ENV_ID, n_envs=1024, seed=0, monitor=False)
    settings = {"n_steps": 32, "batch_size": 4096, "n_epochs": 4}
    contenders = {
        "SB3 PPO, 8 single environments, defaults": sb3(PPO("MlpPolicy", singles, device="cpu"), 16_384 // share),
        "SB3 PPO, make_sb3 x1,024": sb3(PPO("MlpPolicy", many, device="cpu", **settings), 262_144 // share),
        "JAX PPO x2,048": jax_ppo(1_048_576 // share),
    }
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(arguments.rounds):
        for name, measure in contenders.items():
            rates[name].append(measure())
    base = rates[next(iter(contenders))]
    table = Table("", "environment steps a second", "ratio", "by round", title=f"Training, onco_gym {onco_gym.__version__}")
    for name, found in rates.items():
        each = [one / other for one, other in zip(found, base, strict=True)]
        ratio = statistics.median(found) / statistics.median(base)
        table.add_row(name, f"{statistics.median(found):,.0f}", f"{ratio:.1f}", f"{min(each):.1f} to {max(each):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
