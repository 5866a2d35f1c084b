"""The report of speed.py: ratios, targets, tables and a picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import contenders
from contenders import Contender

COMPILE_SIZE, COMPILE_STEPS = 1024, 200  # in the process in which memory is measured


@dataclass(frozen=True)
class Ratio:
    """Our speed over a peer's: ratio of medians, smallest and largest ratio in a round, and ratio of the fastest rounds."""

    ours: str
    peer: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    fastest: float | None = None


@dataclass(frozen=True)
class Target:
    """A target for a figure, and whether it is met. None means that it could not be measured."""

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


def ratio(ours: Contender, peer: Contender) -> Ratio:
    if ours.median is None or peer.median is None:
        return Ratio(ours.name, peer.name)
    each = [one / other for one, other in zip(ours.rates, peer.rates, strict=True)]
    return Ratio(ours.name, peer.name, ours.median / peer.median, min(each), max(each), max(ours.rates) / max(peer.rates))


def judge(result: Result) -> tuple[list[Ratio], list[Target]]:
    """The ratios, and the targets with the measured values."""
    pairs = (
        (contenders.OURS_VECTOR, contenders.ICU),
        (contenders.OURS_SCAN, contenders.GYMNAX),
        (contenders.OURS_SINGLE, contenders.ICU),
        (contenders.OURS_SINGLE, contenders.CARTPOLE),
        (contenders.OURS_VECTOR, contenders.CARTPOLE_VECTOR),
        (contenders.OURS_VECTOR, contenders.OURS_SCAN),
        (contenders.MANY_VECTOR, contenders.OURS_VECTOR),
        (contenders.MANY_SCAN, contenders.OURS_SCAN),
        (contenders.ALL_VECTOR, contenders.OURS_VECTOR),
        (contenders.ALL_SCAN, contenders.OURS_SCAN),
        (contenders.ALL_SINGLE, contenders.OURS_SINGLE),
    )
    ratios = [ratio(result.contenders[ours], result.contenders[peer]) for ours, peer in pairs]

    def at_least(one: Ratio, least: float) -> Target:
        name, required = f"{one.ours} / {one.peer}", f">= {least:g}x"
        if one.value is None:
            return Target(name, required, "-", None, result.contenders[one.peer].missing)
        return Target(name, required, f"{one.value:.2f}x", one.value >= least, f"rounds {one.low:.2f} to {one.high:.2f}x")

    def below(name: str, value: float | None, limit: float, unit: str, note: str) -> Target:
        if value is None:
            return Target(name, f"< {limit:g} {unit}", "-", None, "this system does not report a peak")
        return Target(name, f"< {limit:g} {unit}", f"{value:.2f} {unit}", value < limit, note)

    by_size = {row["envs"]: row for row in result.memory}
    peak, compiled = by_size[65_536]["peak"], by_size[COMPILE_SIZE]["compiled_late"]
    begun = result.startup["make_reset"] + result.startup["step"]
    patient, cartpole = result.numbers["journey"] or 0, result.numbers["cartpole"] or 1
    thrice = "fresh process, median of 3"
    targets = [
        at_least(ratios[0], 25),
        at_least(ratios[1], 0.4),
        at_least(ratios[2], 0.5),
        at_least(ratios[5], 0.6),
        at_least(ratios[6], 1),
        at_least(ratios[7], 1),
        below("memory of 65,536 environments", peak and peak / 1e9, 2, "GB", "fresh process, peak resident"),
        Target(
            "compiled after step 3", "0", str(compiled), compiled == 0, f"fresh process, {COMPILE_STEPS} steps x{COMPILE_SIZE:,}"
        ),
        below("import onco_gym", result.startup["import"], 0.5, "s", thrice),
        below("gym.make, first reset, first step", begun, 5, "s", thrice),
        Target("patient / CartPole", ">= 20x", f"{patient / cartpole:.1f}x", patient >= 20 * cartpole, f"{patient} / {cartpole}"),
    ]
    return ratios, targets


def show(result: Result, ratios: list[Ratio], targets: list[Target], console: Console) -> None:
    """Print the tables, targets first."""
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


def compare(result: Result, ratios: list[Ratio], before: dict[str, Any], console: Console) -> None:
    """Print this version beside the one before, whose figures are in the JSON ``before``."""
    old, new = f"version {before['machine']['onco_gym']}", f"version {result.machine['onco_gym']}"
    table = right(Table("", old, new, "new / old", title="the version before, measured in another run"), 1)

    def add(name: str, then: float | None, now: float | None, form: str) -> None:
        if then and now:
            table.add_row(name, format(then, form), format(now, form), f"{now / then:.2f}")

    rates = {one["name"]: one for one in before["speed"]}
    quotients = {(one["ours"], one["peer"]): one["value"] for one in before["ratios"]}
    for name, contender in result.contenders.items():
        add(f"{name}, steps/s", rates.get(name, {}).get("median"), contender.median, ",.0f")
    for one in ratios:
        add(f"{one.ours} / {one.peer}", quotients.get((one.ours, one.peer)), one.value, ".2f")
    for name, label in (("import", "import"), ("make_reset", "make and first reset"), ("step", "first step")):
        add(f"{label}, s", before["startup"][name], result.startup[name], ".2f")
    peaks = {row["envs"]: row["peak"] for row in before["memory"]}
    for row in result.memory:
        if row["peak"] and peaks.get(row["envs"]):
            add(f"memory of {row['envs']:,}, MB", peaks[row["envs"]] / 1e6, row["peak"] / 1e6, ",.0f")
    console.print(table)


def megabytes(number: int | None) -> str:
    return "-" if number is None else f"{number / 1e6:,.0f}"


def right(table: Table, first: int) -> Table:
    """``table`` with the columns from ``first`` on right-aligned."""
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
        curve = [one for one in contenders if one.name == f"onco_gym {kind} x{one.envs:,}"]
        sizes = [one.envs for one in curve]
        (line,) = axes.plot(sizes, [one.median for one in curve], marker=marker, label=f"onco_gym {kind}")
        spread = [min(one.rates) for one in curve], [max(one.rates) for one in curve]
        axes.fill_between(sizes, *spread, alpha=0.2, color=line.get_color(), linewidth=0)
    for contender, marker in zip((one for one in contenders if one.envs == 1 and "single" in one.name), "Dv^<", strict=False):
        axes.plot(1, contender.median, marker, label=contender.name)
    for contender, marker in zip((one for one in contenders if one.envs > 1 and "onco_gym" not in one.name), "P*", strict=False):
        axes.plot(contender.envs, contender.median, marker, markersize=9, label=contender.name)
    axes.set(xscale="log", yscale="log", xlabel="environments", ylabel="environment steps per second")
    axes.set_title("Median over rounds; shaded: slowest to fastest round")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(file, dpi=150)
