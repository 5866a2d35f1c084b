"""How fast onco_gym is, beside its peers, in one run. README.md says what is measured and how to read it."""

import argparse
import contextlib
import io
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

ENVIRONMENT = os.environ.copy()  # for fresh processes and peers: as it is before onco_gym sets XLA_FLAGS
ENVIRONMENT.pop("JAX_COMPILATION_CACHE_DIR", None)  # a cache would hide what compiling costs

import gymnasium as gym  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: E402
from rich.table import Table  # noqa: E402

import onco_gym  # noqa: E402
from onco_gym.interfaces.engine import Engine, Seat, make_engine, stream_of  # noqa: E402
from onco_gym.simulator.chance import mix  # noqa: E402

ENV_ID = "onco_gym/NSCLC-v0"
N = 4096  # environments in the comparison with gymnax
SCAN_STEPS = 64  # a call; fewer for more than N environments, so that a call stays short
COMPILE_SIZE, COMPILE_STEPS = 1024, 200  # in the process that memory is measured in
ALONE = {"terms": ("outcome",)}  # as peers, one reward; the guideline, fairness and carbon terms are left out
OURS_SINGLE, OURS_VECTOR, OURS_SCAN = "onco_gym single", f"onco_gym vector x{N:,}", f"onco_gym scan x{N:,}"
ALL_SINGLE, ALL_VECTOR, ALL_SCAN = (f"{name}, four terms" for name in (OURS_SINGLE, OURS_VECTOR, OURS_SCAN))
ICU, CARTPOLE, CARTPOLE_VECTOR = "ICU-Sepsis single", "CartPole single", "CartPole vector x1,024"
GYMNAX = f"gymnax CartPole scan x{N:,}"


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    rounds: int
    seconds: float  # at least, per contender and round
    sizes: tuple[int, ...]  # of the scaling curve
    memory_sizes: tuple[int, ...]  # the first is what the others are compared with
    memory_steps: int


FULL = Plan(9, 0.2, sizes=tuple(4**power for power in range(9)), memory_sizes=(1, 1024, 16_384, 65_536), memory_steps=60)
QUICK = Plan(5, 0.2, sizes=(1, N, 65_536), memory_sizes=(1024, 65_536), memory_steps=20)


@dataclass
class Contender:
    """Something whose speed is measured. ``measure`` takes seconds to run for, and gives env-steps per second."""

    name: str
    envs: int
    measure: Callable[[float], float] | None = None
    missing: str = ""  # why there is nothing to measure
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        """Over the rounds."""
        return statistics.median(self.rates) if self.rates else None


@dataclass(frozen=True)
class Ratio:
    """Ours over a peer's: of the medians, the smallest and largest of a round, and of the fastest rounds of each."""

    ours: str
    peer: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    fastest: float | None = None


@dataclass(frozen=True)
class Target:
    """What is required of a figure, and whether it is met: None where it could not be measured."""

    name: str
    required: str
    measured: str
    met: bool | None
    note: str


@dataclass
class Result:
    """Everything a run measures."""

    contenders: dict[str, Contender]
    startup: dict[str, float]  # seconds
    memory: list[dict[str, Any]]  # bytes, by number of environments
    numbers: dict[str, int | None]
    machine: dict[str, Any]


# Contenders


def timed(seconds: float, work: Callable[[], int]) -> float:
    """Env-steps per second of ``work``, which returns how many it made, repeated for at least ``seconds``."""
    steps, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        steps += work()
    return steps / elapsed


def single(name: str, env_id: str, options: dict[str, Any] | None = None) -> Contender:
    """One environment stepped from Python; actions are drawn beforehand, the time of resets counts."""
    env = gym.make(env_id, **(options or {}))
    assert isinstance(env.action_space, gym.spaces.Discrete)
    actions = itertools.cycle(np.random.default_rng(0).integers(env.action_space.n, size=10_007).tolist())
    env.reset(seed=0)

    def work() -> int:
        for action in itertools.islice(actions, 100):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return 100

    timed(0.3, work)
    return Contender(name, 1, lambda seconds: timed(seconds, work))


def vector(name: str, env_id: str, num_envs: int, options: dict[str, Any] | None = None) -> Contender:
    """A vector environment stepped from Python with NumPy actions drawn beforehand; it resets itself."""
    env = gym.make_vec(env_id, num_envs=num_envs, vectorization_mode="vector_entry_point", **(options or {}))
    assert isinstance(env.single_action_space, gym.spaces.Discrete)
    actions = itertools.cycle(np.random.default_rng(0).integers(env.single_action_space.n, size=(31, num_envs)))
    env.reset(seed=0)

    def work() -> int:
        observation, *_ = env.step(next(actions))
        assert isinstance(observation, np.ndarray)
        return num_envs

    for _ in range(60 if num_envs <= N else 20):  # past the compiling of every size of readmission
        work()
    return Contender(name, num_envs, lambda seconds: timed(seconds, work))


def scan(name: str, engine: Engine, num_envs: int) -> Contender:
    """``Engine.step_autoreset`` in ``lax.scan``: nothing leaves the compiled function but a sum per step."""
    steps = max(1, min(SCAN_STEPS, SCAN_STEPS * N // num_envs))
    lanes = jnp.arange(num_envs, dtype=jnp.uint32)
    regimens = np.uint32(len(engine.scenario.regimens))

    def one(carry: Any, _: None) -> tuple[Any, jax.Array]:
        encounter, tally, seat, clock = carry
        action = (mix(lanes + clock * np.uint32(num_envs)) % regimens).astype(jnp.int32)
        encounter, tally, seat, observation, _mask, outcome = engine.step_autoreset(encounter, tally, seat, action)
        return (encounter, tally, seat, clock + np.uint32(1)), observation.sum() + outcome.reward.sum()

    rollout = jax.jit(lambda carry: jax.lax.scan(one, carry, None, steps), donate_argnums=0)
    seat = Seat(jnp.asarray(stream_of(np.arange(num_envs, dtype=np.uint64))), jnp.zeros(num_envs, jnp.uint32))
    carry: Any = (engine.admit(seat)[0], engine.tally(), seat, jnp.uint32(0))

    def work() -> int:
        nonlocal carry
        carry, sums = rollout(carry)
        if not np.isfinite(np.asarray(sums)).all():
            raise FloatingPointError("a sum is not finite")
        return num_envs * steps

    work()
    work()
    return Contender(name, num_envs, lambda seconds: timed(seconds, work))


def icu_sepsis() -> Contender:
    try:
        with quiet():
            import icu_sepsis  # type: ignore[import-untyped]  # noqa: F401 - registers
    except ImportError:
        return Contender(ICU, 1, missing="icu-sepsis is not installed")
    with quiet():
        return single(ICU, "Sepsis/ICU-Sepsis-v2")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the notices of the old gym package, which icu-sepsis imports."""
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def gymnax_cartpole(python: str | None, closing: contextlib.ExitStack, about: dict[str, Any]) -> Contender:
    """The peer in its own process, which ends with ``closing``; ``about`` gets what it says of itself."""
    if python is None:
        return Contender(GYMNAX, N, missing="not run: no --gymnax-python")
    script = str(Path(__file__).with_name("peer_gymnax.py"))
    try:
        process = subprocess.Popen(
            [python, script, str(N), str(SCAN_STEPS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=ENVIRONMENT,
        )
    except OSError as error:
        return Contender(GYMNAX, N, missing=f"cannot run {python}: {error.strerror}")
    closing.enter_context(process)  # closes its stdin, at which it ends
    assert process.stdin is not None
    assert process.stdout is not None
    ask, answers = process.stdin, process.stdout
    about |= json.loads(answers.readline() or '{"error": "peer_gymnax.py failed: run it by hand"}')
    if "error" in about:
        return Contender(GYMNAX, N, missing=about["error"])

    def measure(seconds: float) -> float:
        print(seconds, file=ask, flush=True)
        return float(json.loads(answers.readline())["rate"])

    return Contender(GYMNAX, N, measure)


# Fresh processes

STARTUP = f"""
import time
start = time.perf_counter()
import onco_gym
imported = time.perf_counter()
import gymnasium as gym
env = gym.make("{ENV_ID}")
env.reset(seed=0)
ready = time.perf_counter()
env.step(0)
stepped = time.perf_counter()
import json
print(json.dumps([imported - start, ready - imported, stepped - ready]))
"""

MEMORY = f"""
import json, pathlib, sys
import gymnasium as gym, numpy as np, onco_gym
num_envs, steps = int(sys.argv[1]), int(sys.argv[2])
envs = gym.make_vec("{ENV_ID}", num_envs=num_envs, vectorization_mode="vector_entry_point")
envs.reset(seed=0)
rng = np.random.default_rng(0)
for _ in range(steps):
    result = envs.step(rng.integers(envs.single_action_space.n, size=num_envs))
rss = peak = None
try:
    import psutil
    memory = psutil.Process().memory_info()
    rss, peak = memory.rss, getattr(memory, "peak_wset", None)
except ImportError:
    pass
status = pathlib.Path("/proc/self/status")
if status.exists():  # Linux, where psutil knows no peak, and ru_maxrss counts the memory of the parent too
    peak = next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps(dict(envs=num_envs, rss=rss, peak=peak, step_compiled=envs.engine.step._cache_size())))
"""


def fresh(program: str, *arguments: int) -> Any:
    """What ``program`` prints, as JSON, in a new process."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr}")
    return json.loads(done.stdout)


# The run


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
        engine, every = make_engine("nsclc", **ALONE), make_engine("nsclc")  # those that the environments share
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
        add(GYMNAX, gymnax_cartpole, gymnax_python, closing, about)

        judged = (
            OURS_SINGLE,
            ALL_SINGLE,
            ICU,
            OURS_VECTOR,
            ALL_VECTOR,
            OURS_SCAN,
            ALL_SCAN,
            GYMNAX,
        )  # back to back, so that they meet the same noise
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
            "onco_gym": onco_gym.__version__,
            "jax": jax.__version__,
            "gymnasium": version("gymnasium"),
            "gymnax": about.get("gymnax"),
            "gymnax_jax": about.get("jax"),
        },
    )


def work_of_others() -> Callable[[], float | None]:
    """A function that tells which share of the CPUs went to other work since this call; None without psutil."""
    try:
        import psutil
    except ImportError:
        return lambda: None

    def ours() -> float:
        me = psutil.Process()
        return sum(one.cpu_times().user + one.cpu_times().system for one in [me, *me.children(recursive=True)])

    psutil.cpu_percent()  # the next call tells of the time since this one
    before, start = ours(), time.perf_counter()

    def share() -> float:
        all_of_it = psutil.cpu_percent() / 100
        mine = (ours() - before) / (time.perf_counter() - start) / (os.cpu_count() or 1)
        return round(max(0.0, all_of_it - mine), 3)

    return share


def numbers(engine: Engine) -> dict[str, int | None]:
    """How many numbers a patient is made of, and how many CartPole."""
    cartpole = gym.make("CartPole-v1")
    cartpole.reset(seed=0)
    one = np.zeros(1, np.uint32)
    journey = engine.admit(Seat(one, one))[0].journey

    def count(tree: Any) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(tree))

    return {
        "journey": count(journey),
        "patient": count(journey.patient),
        "state": count(journey.state),
        "cartpole": int(np.size(cartpole.unwrapped.state)),  # type: ignore[attr-defined]
    }


def ratio(ours: Contender, peer: Contender) -> Ratio:
    if ours.median is None or peer.median is None:
        return Ratio(ours.name, peer.name)
    each = [one / other for one, other in zip(ours.rates, peer.rates, strict=True)]
    return Ratio(ours.name, peer.name, ours.median / peer.median, min(each), max(each), max(ours.rates) / max(peer.rates))


def judge(result: Result) -> tuple[list[Ratio], list[Target]]:
    """The ratios, and the targets with what was measured."""
    pairs = (
        (OURS_VECTOR, ICU),
        (OURS_SCAN, GYMNAX),
        (OURS_SINGLE, ICU),
        (OURS_SINGLE, CARTPOLE),
        (OURS_VECTOR, CARTPOLE_VECTOR),
        (OURS_SCAN, OURS_VECTOR),
        (ALL_VECTOR, OURS_VECTOR),
        (ALL_SCAN, OURS_SCAN),
        (ALL_SINGLE, OURS_SINGLE),
    )
    ratios = [ratio(result.contenders[ours], result.contenders[peer]) for ours, peer in pairs]

    def at_least(one: Ratio, least: float) -> Target:
        name, required = f"{one.ours} / {one.peer}", f">= {least:g}x"
        if one.value is None:
            return Target(name, required, "-", None, result.contenders[one.peer].missing)
        return Target(name, required, f"{one.value:.2f}x", one.value >= least, f"rounds {one.low:.2f} to {one.high:.2f}x")

    def below(name: str, value: float | None, limit: float, unit: str, note: str) -> Target:
        if value is None:
            return Target(name, f"< {limit:g} {unit}", "-", None, "this system tells no peak")
        return Target(name, f"< {limit:g} {unit}", f"{value:.2f} {unit}", value < limit, note)

    by_size = {row["envs"]: row for row in result.memory}
    peak, compiled = by_size[65_536]["peak"], by_size[COMPILE_SIZE]["step_compiled"]
    patient, cartpole = result.numbers["journey"] or 0, result.numbers["cartpole"] or 1
    thrice = "fresh process, median of 3"
    targets = [
        at_least(ratios[0], 20),
        at_least(ratios[1], 0.4),
        at_least(ratios[2], 0.5),
        at_least(ratios[6], 0.65),
        below("memory of 65,536 environments", peak and peak / 1e9, 2, "GB", "fresh process, peak resident"),
        Target("step compiled", "once", f"{compiled}x", compiled == 1, f"fresh process, {COMPILE_STEPS} steps x{COMPILE_SIZE:,}"),
        below("import onco_gym", result.startup["import"], 0.5, "s", thrice),
        below("gym.make + first reset", result.startup["make_reset"], 5, "s", thrice),
        Target("patient / CartPole", ">= 20x", f"{patient / cartpole:.1f}x", patient >= 20 * cartpole, f"{patient} / {cartpole}"),
    ]
    return ratios, targets


# What is shown


def show(result: Result, ratios: list[Ratio], targets: list[Target], console: Console) -> None:
    """Tables, the targets first."""
    table = Table("target", "required", "measured", "met", "note", title="targets")
    for target in targets:
        met = "not measured" if target.met is None else "[green]yes[/]" if target.met else "[bold red]no[/]"
        table.add_row(target.name, target.required, target.measured, met, target.note)
    console.print(table)

    table = right(Table("ours", "peer", "of medians", "smallest", "largest", "of fastest", title="ratios over the rounds"), 2)
    for one in ratios:
        values = one.value, one.low, one.high, one.fastest
        table.add_row(one.ours, one.peer, *("-" if value is None else f"{value:.2f}" for value in values))
    console.print(table)

    table = right(Table("", "steps/s, median", "slowest round", "fastest round", "µs per env-step", title="speed"), 1)
    for contender in result.contenders.values():
        if contender.median is None:
            table.add_row(contender.name, contender.missing)
        else:
            rates = contender.median, min(contender.rates), max(contender.rates)
            table.add_row(contender.name, *(f"{rate:,.0f}" for rate in rates), f"{1e6 / contender.median:.3f}")
    console.print(table)

    table = right(Table("environments", "MB in all", "peak MB", "bytes per environment", title="memory, vector environment"), 0)
    first = result.memory[0]
    for row in result.memory:
        if row["rss"] is None:
            table.add_row(f"{row['envs']:,}", "psutil is not installed", megabytes(row["peak"]))
        else:
            each = f"{(row['rss'] - first['rss']) / (row['envs'] - first['envs']):,.0f}" if row is not first else "-"
            table.add_row(f"{row['envs']:,}", megabytes(row["rss"]), megabytes(row["peak"]), each)
    console.print(table)

    startup, count = result.startup, result.numbers
    console.print(
        f"A fresh process: import {startup['import']:.2f} s, make and first reset {startup['make_reset']:.2f} s, "
        f"first step {startup['step']:.2f} s."
    )
    console.print(
        f"A patient is {count['journey']} numbers: {count['patient']} fixed, {count['state']} that change, and a key. "
        f"CartPole is {count['cartpole']}" + (f", in gymnax {count['gymnax_cartpole']}." if count["gymnax_cartpole"] else ".")
    )
    console.print(", ".join(f"{name} {value}" for name, value in result.machine.items() if value is not None))
    if (busy := result.machine["busy_with_others"] or 0) > 0.05:
        console.print(f"[bold yellow]Other work took {busy:.0%} of the CPUs during the rounds: read the figures with care.[/]")


def megabytes(number: int | None) -> str:
    return "-" if number is None else f"{number / 1e6:,.0f}"


def right(table: Table, first: int) -> Table:
    """``table`` with the columns from ``first`` on set to the right."""
    for column in table.columns[first:]:
        column.justify = "right"
    return table


def plot(result: Result, file: Path) -> None:
    """The scaling curve as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    contenders = [contender for contender in result.contenders.values() if contender.rates]
    for kind, marker in (("vector", "o"), ("scan", "s")):
        curve = [contender for contender in contenders if contender.name.startswith(f"onco_gym {kind}")]
        line = axes.plot(
            [one.envs for one in curve], [statistics.median(one.rates) for one in curve], marker=marker, label=f"onco_gym {kind}"
        )[0]
        spread = [min(one.rates) for one in curve], [max(one.rates) for one in curve]
        axes.fill_between([one.envs for one in curve], *spread, alpha=0.2, color=line.get_color(), linewidth=0)
    for contender, marker in zip((one for one in contenders if one.envs == 1 and "single" in one.name), "Dv^", strict=False):
        axes.plot(1, statistics.median(contender.rates), marker, label=contender.name)
    for contender, marker in zip((one for one in contenders if one.envs > 1 and "onco_gym" not in one.name), "P*", strict=False):
        axes.plot(contender.envs, statistics.median(contender.rates), marker, markersize=9, label=contender.name)
    axes.set(xscale="log", yscale="log", xlabel="environments", ylabel="environment steps per second")
    axes.set_title("Median over rounds; shaded: slowest to fastest round")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast onco_gym is, beside its peers; see benchmarks/README.md.")
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
