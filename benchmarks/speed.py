"""Measure the speed of onco_gym and its peers in one run. README.md explains what is measured and how to read it."""

import argparse
import contextlib
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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fresh import ENV_ID, ENVIRONMENT, MEMORY, STARTUP, fresh  # isort: split

from contenders import (
    ALL_SCAN,
    ALL_SINGLE,
    ALL_VECTOR,
    CARTPOLE,
    CARTPOLE_VECTOR,
    GYMNAX,
    ICU,
    OURS_SCAN,
    OURS_SINGLE,
    OURS_VECTOR,
    Contender,
    N,
    scan,
    single,
    vector,
)
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.interfaces.origins import Seat
from onco_gym.version import __version__
from peers import gymnax_cartpole, icu_sepsis
from speed_report import COMPILE_SIZE, COMPILE_STEPS, Result, judge, plot, show

ALONE = {"terms": ("outcome",)}  # one reward, like the peers; without the guideline, fairness and carbon terms


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    rounds: int
    seconds: float  # minimum per contender and round
    sizes: tuple[int, ...]  # of the scaling curve
    memory_sizes: tuple[int, ...]  # the others are compared with the first
    memory_steps: int


FULL = Plan(9, 0.2, sizes=tuple(4**power for power in range(9)), memory_sizes=(1, 1024, 16_384, 65_536), memory_steps=60)
QUICK = Plan(5, 0.2, sizes=(1, N, 65_536), memory_sizes=(1024, 65_536), memory_steps=20)


def run(plan: Plan, gymnax_python: str | None, console: Console) -> Result:
    """Measure everything."""
    with contextlib.ExitStack() as closing:
        columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        bar = closing.enter_context(Progress(*columns, console=console, transient=True))
        measured = 8 + 2 * len(plan.sizes)
        task = bar.add_task("", total=3 + len(plan.memory_sizes) + measured + plan.rounds * measured)

        def doing(what: str) -> None:
            bar.update(task, description=what)

        startup = []
        doing("import, make and first reset")
        for _ in range(3):
            startup.append(fresh(STARTUP))
            bar.advance(task)
        memory = []
        for num_envs in plan.memory_sizes:
            doing(f"memory of {num_envs:,} environments")
            memory.append(fresh(MEMORY, num_envs, COMPILE_STEPS if num_envs == COMPILE_SIZE else plan.memory_steps))
            bar.advance(task)

        contenders: dict[str, Contender] = {}

        def add(name: str, make: Callable[..., Contender], *arguments: Any) -> None:
            doing(f"compiling {name}")
            contenders[name] = make(*arguments)
            bar.advance(task)

        about: dict[str, Any] = {}
        engine, every = make_engine("nsclc", **ALONE), make_engine("nsclc")  # the engines that the environments share
        add(OURS_SINGLE, single, OURS_SINGLE, ENV_ID, ALONE)
        add(ALL_SINGLE, single, ALL_SINGLE, ENV_ID)
        add(ALL_VECTOR, vector, ALL_VECTOR, ENV_ID, N)
        add(ALL_SCAN, scan, ALL_SCAN, every, N)
        add(ICU, icu_sepsis)
        add(CARTPOLE, single, CARTPOLE, "CartPole-v1")
        add(CARTPOLE_VECTOR, vector, CARTPOLE_VECTOR, "CartPole-v1", 1024)
        for num_envs in plan.sizes:
            add(name := f"onco_gym vector x{num_envs:,}", vector, name, ENV_ID, num_envs, ALONE)
            add(name := f"onco_gym scan x{num_envs:,}", scan, name, engine, num_envs)
        add(GYMNAX, gymnax_cartpole, gymnax_python, ENVIRONMENT, closing, about)

        # Those that are compared run back to back, so that both have the same noise.
        judged = (OURS_SINGLE, ALL_SINGLE, ICU, OURS_VECTOR, ALL_VECTOR, OURS_SCAN, ALL_SCAN, GYMNAX)
        order = sorted(contenders.values(), key=lambda one: judged.index(one.name) if one.name in judged else len(judged))
        others = work_of_others()
        for turn in range(plan.rounds):
            doing(f"round {turn + 1} of {plan.rounds}")
            for contender in order:
                if contender.measure is not None:
                    contender.rates.append(contender.measure(plan.seconds))
                bar.advance(task)
            order.reverse()
        busy = others()

    return Result(
        contenders=contenders,
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
