"""Measure the speed of onco_gym and its peers in one run. README.md explains what is measured and how to read it."""

import argparse
import contextlib
import functools
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
from rich.console import Console
from rich.progress import track

from fresh import ENV_ID, ENVIRONMENT, MEMORY, STARTUP, fresh  # isort: split

import contenders
from contenders import JUDGED, Contender, N, scan, single, vector
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.interfaces.origins import Seat
from onco_gym.version import __version__
from peers import gymnax_cartpole, icu_sepsis
from speed_report import COMPILE_SIZE, COMPILE_STEPS, Result, compare, judge, plot, show

EVERY: dict[str, Any] = {"decide": "cycles"}  # a step is a cycle; at decision points it would be several
ALONE: dict[str, Any] = {**EVERY, "terms": ("outcome",)}  # one reward, like the peers; no guideline, fairness or carbon terms
BEFORE = Path(__file__).with_name("before.json")
"""Figures of the version before, by ``--json``."""
SECONDS = 0.2  # minimum per contender and round


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    rounds: int
    sizes: tuple[int, ...]  # of the scaling curve
    memory_sizes: tuple[int, ...]  # the others are compared with the first
    memory_steps: int


FULL = Plan(9, sizes=tuple(4**power for power in range(9)), memory_sizes=(1, 1024, 16_384, 65_536), memory_steps=60)
QUICK = Plan(5, sizes=(1, N, 65_536), memory_sizes=(1024, 65_536), memory_steps=20)


def run(plan: Plan, gymnax_python: str | None, console: Console) -> Result:
    """Measure everything."""
    watched = functools.partial(track, console=console, transient=True)
    startup = [fresh(STARTUP) for _ in watched(range(3), "import, make and first reset")]
    memory = []
    for num_envs in watched(plan.memory_sizes, "memory"):
        memory.append(fresh(MEMORY, num_envs, COMPILE_STEPS if num_envs == COMPILE_SIZE else plan.memory_steps))
    engine, every = make_engine("nsclc", **ALONE), make_engine("nsclc", **EVERY)  # the engines that the environments share
    about: dict[str, Any] = {}
    with contextlib.ExitStack() as closing:
        to_make: list[tuple[Any, ...]] = [
            (single, contenders.OURS_SINGLE, ENV_ID, ALONE),
            (single, contenders.ALL_SINGLE, ENV_ID, EVERY),
            (vector, contenders.ALL_VECTOR, ENV_ID, N, EVERY),
            (scan, contenders.ALL_SCAN, every, N),
            (icu_sepsis,),
            (single, contenders.CARTPOLE, "CartPole-v1"),
            (vector, contenders.CARTPOLE_VECTOR, "CartPole-v1", 1024),
        ]
        for num_envs in plan.sizes:
            to_make.append((vector, f"onco_gym vector x{num_envs:,}", ENV_ID, num_envs, ALONE))
            to_make.append((scan, f"onco_gym scan x{num_envs:,}", engine, num_envs))
        to_make.append((gymnax_cartpole, gymnax_python, ENVIRONMENT, closing, about))
        made: list[Contender] = [make(*arguments) for make, *arguments in watched(to_make, "compiling")]
        # Those that are compared run back to back, so that both have the same noise.
        order = sorted(made, key=lambda one: JUDGED.index(one.name) if one.name in JUDGED else len(JUDGED))
        others = work_of_others()
        for _ in watched(range(plan.rounds), "rounds"):
            for contender in order:
                if contender.measure is not None:
                    contender.rates.append(contender.measure(SECONDS))
            order.reverse()
        busy = others()

    return Result(
        contenders={one.name: one for one in made},
        startup=dict(zip(("import", "make_reset", "step"), map(statistics.median, zip(*startup, strict=True)), strict=True)),
        memory=memory,
        numbers=numbers(engine) | {"gymnax_cartpole": about.get("numbers")},
        machine={
            "cpus": os.cpu_count(),
            "busy_with_others": busy,
            "platform": platform.platform(),
            "device": str(jax.devices()[0]),
            "python": platform.python_version(),
            "onco_gym": __version__,
            "jax": jax.__version__,
            "gymnasium": version("gymnasium"),
            "gymnax": about.get("gymnax"),
            "gymnax_jax": about.get("jax"),
        },
    )


def work_of_others() -> Callable[[], float | None]:
    """A function that returns the share of the CPUs used by other work since this call; None without psutil."""
    try:
        import psutil
    except ImportError:
        return lambda: None

    def ours() -> float:
        me = psutil.Process()
        return sum(one.cpu_times().user + one.cpu_times().system for one in [me, *me.children(recursive=True)])

    psutil.cpu_percent()  # the next call covers the time since this one
    before, start = ours(), time.perf_counter()

    def share() -> float:
        all_of_it = psutil.cpu_percent() / 100
        mine = (ours() - before) / (time.perf_counter() - start) / (os.cpu_count() or 1)
        return round(max(0.0, all_of_it - mine), 3)

    return share


def numbers(engine: Engine) -> dict[str, int | None]:
    """How many numbers make up a patient, and CartPole."""
    cartpole = gym.make("CartPole-v1")
    cartpole.reset(seed=0)
    journey = engine.admit(Seat.first(np.zeros(1, np.uint64)))[0].journey

    def count(tree: Any) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(tree))

    return {
        "journey": count(journey),
        "patient": count(journey.patient),
        "state": count(journey.state),
        "cartpole": int(np.size(cartpole.unwrapped.state)),  # type: ignore[attr-defined]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed of onco_gym and its peers; see benchmarks/README.md.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sizes; under 90 seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the scaling curve to FILE, a PNG")
    parser.add_argument("--gymnax-python", metavar="PATH", help="the Python of a virtual environment with gymnax")
    arguments = parser.parse_args()
    start = time.perf_counter()
    console = Console(width=None if sys.stdout.isatty() else 120)
    result = run(QUICK if arguments.quick else FULL, arguments.gymnax_python, console)
    ratios, targets = judge(result)
    show(result, ratios, targets, console)
    compare(result, ratios, json.loads(BEFORE.read_text()), console)
    console.print(f"{time.perf_counter() - start:.0f} seconds.")
    if arguments.json:
        speed = [
            {"name": one.name, "envs": one.envs, "median": one.median, "rates": one.rates, "missing": one.missing}
            for one in result.contenders.values()
        ]
        rest = {name: getattr(result, name) for name in ("startup", "memory", "numbers", "machine")}
        judged = {"targets": [asdict(one) for one in targets], "ratios": [asdict(one) for one in ratios]}
        arguments.json.write_text(json.dumps(judged | {"speed": speed} | rest, indent=2) + "\n")
    if arguments.plot:
        plot(result, arguments.plot)


if __name__ == "__main__":
    main()
