"""The command line, ``onco-gym``. What is slow to import (JAX, pydantic) is imported by the commands that need it."""

import argparse
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium as gym
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

import onco_gym
from onco_gym.registration import NAMESPACE, registered_ids
from onco_gym.version import __version__

if TYPE_CHECKING:
    from onco_gym.agents import Episodes
    from onco_gym.interfaces.single import OncologyEnv

WEEKS_PER_YEAR = 52.1775  # as in onco_gym.rewards.outcome, which would import JAX
SECTIONS = ("variables", "regimens", "clones", "guideline", "arms")


class UsageError(ValueError):
    """A command that cannot be carried out as it was given."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 nobody reads the output, 2 the user's error, 130 interrupted."""
    try:
        try:
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a sign shows "?" for it
            arguments = _parser().parse_args(argv)
            arguments.run(arguments)
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.split(".")[0] not in (NAMESPACE, "gymnasium"):
            raise  # neither the file system's, nor a CardError, CohortError, AgentError, UsageError, ...: a fault of ours
        message = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"onco-gym: {' '.join(message.split())}", file=sys.stderr)
        return 2
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser that shows an example, and whose errors main prints."""

    def __init__(self, example: str, **options: Any) -> None:
        epilog = f"example: onco-gym {example}\n\nResearch software, not for treating patients."
        super().__init__(epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("play NSCLC", prog="onco-gym", description="Simulated patients with cancer, treated by you or by an agent.")
    parser.add_argument("--version", action="version", version=f"onco-gym {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(run: Callable[[Any], None], about: str, example: str, subject: str = "") -> Callable[..., Any]:
        made = commands.add_parser(example.split()[0], help=about, description=about, example=example)
        made.set_defaults(run=run)
        if subject:
            made.add_argument("id", metavar=subject, help=f"{NAMESPACE}/NSCLC-v0, or NSCLC, or the path of a card (.toml)")
        return made.add_argument

    named = "random, guideline, or a regimen's name, which is then given every cycle"
    count, seed = partial(_whole, 1, 1_000_000), partial(_whole, 0, 2**64 - 1)
    command(_list, "List the environments.", "list")
    add = command(_show, "Show what a card says of its disease.", "show nsclc --section guideline", "CARD")
    add("--section", choices=SECTIONS, help="show this table only")
    add("--citation", action="store_true", help="print the card's sources as BibTeX instead")
    add = command(_play, "Treat a patient yourself, or watch an agent do it.", "play NSCLC --seed 7 --picture journey.png", "ID")
    add("--seed", type=seed, help="same seed, same patient; by default any")
    add("--agent", metavar="NAME", help=f"{named}; without it you choose")
    add("--quiet", action="store_true", help="with --agent: print the final chart only")
    add("--picture", type=_target, metavar="FILE.png", help="write a picture of the journey")
    example = "rollout NSCLC --agent guideline -n 1000 --json figures.json"
    add = command(_rollout, "Run an agent on many patients and say how they fared.", example, "ID")
    add("--agent", metavar="NAME", default="guideline", help=f"{named}; by default guideline")
    add("-n", type=count, default=1000, metavar="N", help="patients; by default 1000")
    add("--seed", type=seed, default=0, help="same seed, same patients, same chance; by default 0")
    add("--json", type=_target, metavar="FILE", help="also write all figures there")
    add("--cohort", metavar="FILE", help="draw the patients from this Parquet file")
    example = "cohort nsclc -n 500 --where 'EGFR_L858R and age > 70' --do insurance=medicaid --out cohort.parquet"
    add = command(_cohort, "Write a cohort of patients to a Parquet file.", example, "CARD")
    add("-n", type=count, default=1000, metavar="N", help="patients; by default 1000")
    add("--where", metavar="EXPR", help="only patients for whom this holds")
    add("--do", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="set variables; what depends on them follows")
    add("--seed", type=seed, default=0, help="same seed, same cohort; by default 0")
    add("--out", type=_target, required=True, metavar="FILE.parquet", help="where to write it")
    return parser


def _whole(low: int, high: int, text: str) -> int:
    if text.isdecimal() and len(text) < 25 and low <= int(text) <= high:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {low}..{high}")


def _target(text: str) -> Path:
    """A file that can be written; found out before the work, not after it."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in a folder that exists and can be written to")
    return path


def _resolve(text: str) -> tuple[str, str]:
    """(environment id, card name or path) of what the user calls an environment or a card."""
    known, ids = {}, registered_ids()
    for key in ids:
        card, short = str(gym.spec(key).kwargs["card"]), key.removeprefix(f"{NAMESPACE}/")
        known.update({name.lower(): (key, card) for name in (key, short, short.removesuffix("-v0"), card)})
    if text.endswith(".toml"):
        return f"{NAMESPACE}/Card-v0", text
    if text.lower() not in known:
        raise UsageError(f"there is no environment or card {text!r}: expected a path (.toml) or one of {', '.join(ids)}")
    return known[text.lower()]


def _make(text: str, **options: Any) -> "OncologyEnv":
    key, card = _resolve(text)
    return gym.make(key, card=card, **options).unwrapped  # type: ignore[return-value] # every id of ours is one


def _console(stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    fixed = "COLUMNS" in os.environ or (stream is not None and stream.isatty())
    return Console(stderr=stderr, highlight=False, width=None if fixed else 140)


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str] = ()) -> Table:
    """A table of plain text; ``numbers`` names the columns that stand to the right."""
    table = Table(title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.show_header = any(columns)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold", no_wrap=column == "id")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    return table


def _list(_: argparse.Namespace) -> None:
    from onco_gym.cards.scenario import scenario

    rows: list[tuple[object, ...]] = []
    for key in registered_ids():
        card = onco_gym.load_card(_resolve(key)[1])
        years = f"{card.horizon_cycles * card.cycle_weeks / WEEKS_PER_YEAR:.1f}"
        rows.append((key, card.title, len(scenario(card).fields), len(card.regimens), card.horizon_cycles, years, len(card.arms)))
    rows.append((f"{NAMESPACE}/Card-v0", "a card of your own: card=PATH", *"-----"))
    numbers = ("observed", "actions", "cycles", "years", "arms")
    _console().print(_table("", ("id", "disease", *numbers), rows, numbers))


def _show(arguments: argparse.Namespace) -> None:
    card, console = onco_gym.load_card(_resolve(arguments.id)[1]), _console()
    if arguments.citation:
        print(onco_gym.citation(card))
        return
    if not arguments.section:
        console.print(Text(card.title, "bold"), " ".join(card.summary.split()), "", sep="\n", markup=False)
    for name, table in zip(SECTIONS, _tables(card), strict=True):
        if arguments.section in (None, name):
            console.print(table)


def _tables(card: "onco_gym.Card") -> Iterable[Table]:
    """The tables of a card, in the order of SECTIONS."""
    rows: list[tuple[object, ...]]
    rows = [(v.name, v.tier, v.kind, ", ".join(v.parents), "protected" if v.protected else "") for v in card.variables]
    yield _table("Variables", ("name", "tier", "kind", "parents", "protected"), rows)
    rows = []
    for regimen in card.regimens:
        kill = ", ".join(f"{name} {value:g}" for name, value in regimen.kill.items())
        severe = f"{1 - np.prod([1 - share for share in regimen.toxicity.values()]):.0%}"
        rows.append((regimen.name, regimen.title, regimen.route, kill, severe, regimen.max_cycles or ""))
    yield _table("Regimens", ("name", "title", "route", "log kill", "grade 3+", "max cycles"), rows, ("grade 3+", "max cycles"))
    rows = []
    for clone in card.clones:
        escaped = ", ".join(f"{name} {share:.0%}" for name, share in clone.resistance.items())
        shares = [case.value for case in clone.log10_fraction]
        origin = f"{clone.acquired.origin}, {clone.acquired.per_cycle:g} per cycle" if clone.acquired else ""
        rows.append((clone.name, clone.title, escaped, " to ".join(f"{x:g}" for x in sorted({min(shares), max(shares)})), origin))
    yield _table("Clones", ("name", "title", "kill escaped", "log10 share at diagnosis", "arises from"), rows)
    rows = [(",".join(map(str, r.lines)) or "any", r.when or "always", r.regimen, r.status, r.level) for r in card.guideline]
    yield _table("Guideline, in order", ("lines", "when", "regimen", "status", "level"), rows)
    rows = []
    for use in ("fit", "check"):
        arms = [arm for arm in card.arms if arm.use == use]
        rows.append((use, len(arms), len({arm.trial for arm in arms}), sum(arm.n or 0 for arm in arms)))
    yield _table("Published arms", ("used to", "arms", "trials", "patients"), rows, ("arms", "trials", "patients"))


def _play(arguments: argparse.Namespace) -> None:
    from onco_gym.agents import make_agent

    if arguments.quiet and not arguments.agent:
        raise UsageError("--quiet needs --agent")
    seed = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    env, console = _make(arguments.id, render_mode="ansi"), _console()
    card = env.engine.card
    agent = make_agent(arguments.agent or "guideline", card, seed)
    console.print(Text(f"{card.id}, seed {seed}", "bold"))
    observation, info = env.reset(seed=seed)
    ended = False
    while not ended:
        choice: int | None = int(agent.act(observation[None], info["action_mask"][None])[0])
        if not arguments.quiet:
            _chart(console, env)
        if not arguments.agent:
            choice = _ask(console, {i: r.title for i, r in enumerate(card.regimens) if info["action_mask"][i]}, choice)
        if choice is None:
            break
        observation, _, terminated, truncated, info = env.step(choice)
        ended = terminated or truncated
    if ended:
        _chart(console, env)
    if arguments.picture:
        env.save_picture(arguments.picture)
        print(f"wrote {arguments.picture}")


def _chart(console: Console, env: "OncologyEnv") -> None:
    text = Text(f"\n{env.render()}\n")
    text.highlight_words(["progression", "death", "died", "grade 3+", "stopped for toxicity"], "red")
    console.print(text, soft_wrap=True)


def _ask(console: Console, titles: dict[int, str], advised: int | None) -> int | None:
    """The regimen the user wants, or None to quit."""
    rows = [(number, title, "guideline" if number == advised else "") for number, title in titles.items()]
    console.print(_table("", ("number", "can be given now", ""), rows, ("number",)))
    while True:
        try:
            answer = input("number, Enter for the guideline's choice, q to quit: ").strip()
        except (EOFError, UnicodeDecodeError, RuntimeError):  # the last where there is no standard input at all
            answer = "q"
        if answer.lower() in ("q", "quit"):
            console.print()
            return None
        if not answer or answer in map(str, titles):
            return int(answer) if answer else advised
        console.print(f"{answer!r} is none of the numbers above", markup=False)


def _rollout(arguments: argparse.Namespace) -> None:
    key, errors = _resolve(arguments.id)[0], _console(stderr=True)
    if arguments.cohort and not Path(arguments.cohort).is_file():
        raise UsageError(f"there is no cohort file {arguments.cohort!r}")
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("compiling", total=None)
        from onco_gym.agents import make_agent, rollout
        from onco_gym.files import replacing

        env = _make(arguments.id, cohort=arguments.cohort)
        agent = make_agent(arguments.agent, env.engine.card, arguments.seed)
        bar.update(task, total=env.engine.horizon, description=f"{arguments.n} patients")
        episodes = rollout(env.engine, agent, arguments.n, arguments.seed, on_cycle=lambda i, _: bar.update(task, completed=i))
    asked = {name: getattr(arguments, name) for name in ("agent", "seed", "cohort")}
    figures = {"version": __version__, "environment": key, **asked, **_figures(env, episodes)}
    if arguments.json:
        with replacing(arguments.json) as temporary:
            temporary.write_text(json.dumps(figures, indent=2, allow_nan=False) + "\n")
    _console().print(_table(f"{env.engine.card.title}, agent {arguments.agent}", ("", ""), _report(figures)))


def _figures(env: "OncologyEnv", episodes: "Episodes") -> dict[str, Any]:
    """What a rollout says, in plain numbers; None for what was not reached or lies beyond follow-up."""

    def median(weeks: Any, happened: Any) -> float | None:
        return float(np.quantile(weeks, 0.5, method="inverted_cdf")) if happened.mean() >= 0.5 else None

    n, names, follow_up = len(episodes.weeks), env.action_names, env.engine.horizon * env.engine.scenario.cycle_weeks
    mean = float(episodes.returns.mean(dtype=float))
    half = 1.96 * float(episodes.returns.std(ddof=1, dtype=float)) / n**0.5 if n > 1 else 0.0
    first = np.bincount(episodes.given[0], minlength=len(names)) / n
    years = {str(year): year * WEEKS_PER_YEAR for year in (1, 3, 5)}
    return {
        "card_digest": env.engine.scenario.digest,
        "patients": n,
        "follow_up_weeks": follow_up,
        "mean_return": mean,
        "mean_return_interval": [mean - half, mean + half] if n > 1 else None,
        "mean_terms": {name: float(values.mean(dtype=float)) for name, values in episodes.terms.items()},
        "died": float(episodes.died.mean()),
        "median_weeks": median(episodes.weeks, episodes.died),
        "survival": {k: float((episodes.weeks >= t).mean()) if t <= follow_up else None for k, t in years.items()},
        "first_line_response": float((episodes.best_change <= -0.3).mean()),  # RECIST 1.1
        "median_progression_weeks": median(episodes.progression_weeks, episodes.progressed),
        "grade3": float(episodes.severe.mean()),
        "first_cycle": {names[index]: float(first[index]) for index in np.argsort(-first, kind="stable") if first[index]},
    }


def _report(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """The figures in words."""
    times = (figures["median_weeks"], figures["median_progression_weeks"])
    medians = [f"{x:.0f} weeks ({x / WEEKS_PER_YEAR * 12:.1f} months)" if x is not None else "not reached" for x in times]
    interval = " (95% interval {:.3f} to {:.3f})".format(*figures["mean_return_interval"]) if figures["patients"] > 1 else ""
    return [
        ("patients", f"{figures['patients']}, followed for {figures['follow_up_weeks']:g} weeks"),
        ("mean return", f"{figures['mean_return']:.3f} QALY{interval}"),
        ("median survival", medians[0]),
        *((f"{y}-year survival", "beyond follow-up" if x is None else f"{x:.1%}") for y, x in figures["survival"].items()),
        ("first-line response", f"{figures['first_line_response']:.1%}"),
        ("median time to progression or death", medians[1]),
        ("any grade 3+ event", f"{figures['grade3']:.1%}"),
        *((f"first cycle: {name}", f"{share:.1%}") for name, share in [*figures["first_cycle"].items()][:5]),
    ]


def _cohort(arguments: argparse.Namespace) -> None:
    from onco_gym.cards.checks import patient_vocabulary

    card = onco_gym.load_card(_resolve(arguments.id)[1])
    levels, do = patient_vocabulary(card), dict[str, Any]()
    for text in arguments.do:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--do {text!r}: expected NAME=VALUE")
        do[name] = value
        if levels.get(name) is None:  # true, false or a number
            with suppress(ValueError):
                do[name] = value.lower() == "true" if value.lower() in ("true", "false") else float(value)
    cohort = onco_gym.CausalGenerator(card).sample(arguments.n, arguments.seed, arguments.where, do)
    cohort.write(arguments.out, card)
    print(f"wrote {len(cohort)} patients of {card.id} to {arguments.out}; {cohort.drawn} were drawn to find them")
