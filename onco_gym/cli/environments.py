"""Commands on environments and patients: list, show, play, rollout, cohort."""

import argparse
import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

import onco_gym
from onco_gym.cli.common import UsageError, console, make_table, resolve
from onco_gym.foundation.units import WEEKS_PER_YEAR
from onco_gym.interfaces.registry import NAMESPACE, registered_ids
from onco_gym.version import __version__

if TYPE_CHECKING:
    from onco_gym.agents import Episodes
    from onco_gym.interfaces.single import OncologyEnv

ACTIONS = {
    "regimen": "one of {} regimens",
    "dose": "an intensity per regimen",
    "workflow": "tests, evidence, regimen, next visit",
}
SECTIONS = ("variables", "regimens", "clones", "guideline", "arms")


def _make(text: str, **options: Any) -> "OncologyEnv":
    key, card = resolve(text)
    return gym.make(key, card=card, **options).unwrapped  # type: ignore[return-value] # every id of ours is one


def list_command(_: argparse.Namespace) -> None:
    """List the environments."""
    rows: list[tuple[object, ...]] = []
    for key in registered_ids():
        spec = gym.spec(key)
        card = onco_gym.load_card(spec.kwargs["card"])
        years = f"{card.horizon_cycles * card.cycle_weeks / WEEKS_PER_YEAR:.1f}"
        action = ACTIONS[spec.kwargs.get("kind", "regimen")].format(len(card.regimens))
        reward = "vector" if "/mo-" in key else "number"
        rows.append((key, card.title, action, reward, card.horizon_cycles, years, len(card.arms)))
    rows.append((f"{NAMESPACE}/Card-v0", "a card of your own: card=PATH; -Dose, -Workflow, mo- as above", *"-----"))
    numbers = ("cycles", "years", "arms")
    console().print(make_table("", ("id", "disease", "action", "reward", *numbers), rows, numbers))


def show_command(arguments: argparse.Namespace) -> None:
    """Show what a card says."""
    card, screen = onco_gym.load_card(resolve(arguments.id)[1]), console()
    if arguments.citation:
        print(onco_gym.citation(card))
        return
    if not arguments.section:
        screen.print(Text(card.title, "bold"), " ".join(card.summary.split()), "", sep="\n", markup=False)
    for name, table in zip(SECTIONS, _tables(card), strict=True):
        if arguments.section in (None, name):
            screen.print(table)


def _tables(card: "onco_gym.Card") -> Iterable[Table]:
    """The tables of a card, in the order of SECTIONS."""
    rows: list[tuple[object, ...]]
    rows = [(v.name, v.tier, v.kind, ", ".join(v.parents), "protected" if v.protected else "") for v in card.variables]
    yield make_table("Variables", ("name", "tier", "kind", "parents", "protected"), rows)
    rows = []
    for regimen in card.regimens:
        kill = ", ".join(f"{name} {value:g}" for name, value in regimen.kill.items())
        severe = f"{1 - np.prod([1 - share for share in regimen.toxicity.values()]):.0%}"
        rows.append((regimen.name, regimen.title, regimen.route, kill, severe, regimen.max_cycles or ""))
    yield make_table(
        "Regimens", ("name", "title", "route", "log kill", "grade 3+", "max cycles"), rows, ("grade 3+", "max cycles")
    )
    rows = []
    for clone in card.clones:
        escaped = ", ".join(f"{name} {share:.0%}" for name, share in clone.resistance.items())
        shares = [case.value for case in clone.log10_fraction]
        origin = f"{clone.acquired.origin}, {clone.acquired.per_cycle:g} per cycle" if clone.acquired else ""
        rows.append((clone.name, clone.title, escaped, " to ".join(f"{x:g}" for x in sorted({min(shares), max(shares)})), origin))
    yield make_table("Clones", ("name", "title", "kill escaped", "log10 share at diagnosis", "arises from"), rows)
    rows = [(",".join(map(str, r.lines)) or "any", r.when or "always", r.regimen, r.status, r.level) for r in card.guideline]
    yield make_table("Guideline, in order", ("lines", "when", "regimen", "status", "level"), rows)
    rows = []
    for use in ("fit", "check"):
        arms = [arm for arm in card.arms if arm.use == use]
        rows.append((use, len(arms), len({arm.trial for arm in arms}), sum(arm.n or 0 for arm in arms)))
    yield make_table("Published arms", ("used to", "arms", "trials", "patients"), rows, ("arms", "trials", "patients"))


def play_command(arguments: argparse.Namespace) -> None:
    """Treat a patient."""
    from onco_gym.agents import load_agent

    if arguments.quiet and not arguments.agent:
        raise UsageError("--quiet needs --agent")
    seed = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    env, screen = _make(arguments.id, render_mode="ansi"), console()
    card = env.engine.card
    if not isinstance(env.action_space, gym.spaces.Discrete):
        raise UsageError(f"{arguments.id} cannot be played by hand: its actions are more than a regimen; try {card.id}")
    agent = load_agent(env.engine, arguments.agent or "guideline", seed)
    screen.print(Text(f"{card.id}, seed {seed}", "bold"))
    observation, info = env.reset(seed=seed)
    ended = False
    while not ended:
        choice: int | None = int(agent.act(observation[None], info["action_mask"][None])[0])
        if not arguments.quiet:
            _chart(screen, env)
        if not arguments.agent:
            choice = _ask(screen, {i: r.title for i, r in enumerate(card.regimens) if info["action_mask"][i]}, choice)
        if choice is None:
            break
        observation, _, terminated, truncated, info = env.step(choice)
        ended = terminated or truncated
    if ended:
        _chart(screen, env)
    if arguments.picture:
        env.save_picture(arguments.picture)
        print(f"wrote {arguments.picture}")


def _chart(screen: Console, env: "OncologyEnv") -> None:
    text = Text(f"\n{env.render()}\n")
    text.highlight_words(["progression", "death", "died", "grade 3+", "stopped for toxicity"], "red")
    screen.print(text, soft_wrap=True)


def _ask(screen: Console, titles: dict[int, str], advised: int | None) -> int | None:
    """The regimen the user wants, or None to quit."""
    rows = [(number, title, "guideline" if number == advised else "") for number, title in titles.items()]
    screen.print(make_table("", ("number", "can be given now", ""), rows, ("number",)))
    while True:
        try:
            answer = input("number, Enter for the guideline's choice, q to quit: ").strip()
        except (EOFError, UnicodeDecodeError, RuntimeError):  # the last where there is no standard input at all
            answer = "q"
        if answer.lower() in ("q", "quit"):
            screen.print()
            return None
        if not answer or answer in map(str, titles):
            return int(answer) if answer else advised
        screen.print(f"{answer!r} is none of the numbers above", markup=False)


def rollout_command(arguments: argparse.Namespace) -> None:
    """Run an agent on many patients."""
    key, errors = resolve(arguments.id)[0], console(stderr=True)
    if arguments.cohort and not Path(arguments.cohort).is_file():
        raise UsageError(f"there is no cohort file {arguments.cohort!r}")
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("compiling", total=None)
        from onco_gym.agents import load_agent, rollout
        from onco_gym.foundation.files import replacing

        env = _make(arguments.id, cohort=arguments.cohort)
        agent = load_agent(env.engine, arguments.agent, arguments.seed)
        bar.update(task, total=env.engine.horizon, description=f"{arguments.n} patients")
        episodes = rollout(env.engine, agent, arguments.n, arguments.seed, on_cycle=lambda i, _: bar.update(task, completed=i))
    asked = {name: getattr(arguments, name) for name in ("agent", "seed", "cohort")}
    figures = {"version": __version__, "environment": key, **asked, **_figures(env, episodes)}
    if arguments.json:
        with replacing(arguments.json) as temporary:
            temporary.write_text(json.dumps(figures, indent=2, allow_nan=False) + "\n")
    console().print(make_table(f"{env.engine.card.title}, agent {arguments.agent}", ("", ""), _report(figures)))


def _figures(env: "OncologyEnv", episodes: "Episodes") -> dict[str, Any]:
    """What a rollout says, in plain numbers; None for what was not reached or lies beyond follow-up."""
    from onco_gym.knowledge.panel import VERDICTS

    def median(weeks: Any, happened: Any) -> float | None:
        return float(np.quantile(weeks, 0.5, method="inverted_cdf")) if happened.mean() >= 0.5 else None

    n, names, follow_up = len(episodes.weeks), env.action_names, env.engine.horizon * env.engine.scenario.cycle_weeks
    first = np.bincount(episodes.given[0], minlength=len(names)) / n
    years = {str(year): year * WEEKS_PER_YEAR for year in (1, 3, 5)}
    return {
        "card_digest": env.engine.scenario.digest,
        "patients": n,
        "follow_up_weeks": follow_up,
        "mean_return": float(episodes.returns.mean(dtype=float)),
        "mean_return_interval": _interval(episodes.returns),
        "mean_terms": {name: float(values.mean(dtype=float)) for name, values in episodes.terms.items()},
        "mean_outcome_interval": _interval(episodes.terms["outcome"]),
        "guideline_concordance": float((episodes.verdicts[episodes.verdicts >= 0] >= VERDICTS.index("later")).mean()),
        "contraindicated": float((episodes.verdicts[episodes.verdicts >= 0] == 0).mean()),
        "divergence": {name: one._asdict() for name, one in episodes.fairness.items()},
        "mean_carbon_kg": float(episodes.carbon_kg.mean(dtype=float)),
        "mean_cost_usd": float(episodes.cost_usd.mean(dtype=float)),
        "died": float(episodes.died.mean()),
        "median_weeks": median(episodes.weeks, episodes.died),
        "survival": {k: float((episodes.weeks >= t).mean()) if t <= follow_up else None for k, t in years.items()},
        "first_line_response": float((episodes.best_change <= -0.3).mean()),  # RECIST 1.1
        "median_progression_weeks": median(episodes.progression_weeks, episodes.progressed),
        "grade3": float(episodes.severe.mean()),
        "first_cycle": {names[index]: float(first[index]) for index in np.argsort(-first, kind="stable") if first[index]},
    }


def _interval(values: Any) -> list[float] | None:
    """95% interval of the mean."""
    if len(values) < 2:
        return None
    mean, half = float(values.mean(dtype=float)), 1.96 * float(values.std(ddof=1, dtype=float)) / len(values) ** 0.5
    return [mean - half, mean + half]


def _report(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """The figures in words."""
    times = (figures["median_weeks"], figures["median_progression_weeks"])
    medians = [f"{x:.0f} weeks ({x / WEEKS_PER_YEAR * 12:.1f} months)" if x is not None else "not reached" for x in times]

    def interval(name: str) -> str:
        return " (95% interval {:.3f} to {:.3f})".format(*figures[name]) if figures[name] else ""

    apart = max(figures["divergence"].items(), key=lambda item: item[1]["nats"] - item[1]["chance"])
    tested = figures["mean_cost_usd"] > 0
    return [
        ("patients", f"{figures['patients']}, followed for {figures['follow_up_weeks']:g} weeks"),
        ("quality-adjusted life", f"{figures['mean_terms']['outcome']:.3f} years{interval('mean_outcome_interval')}"),
        ("return, all four terms", f"{figures['mean_return']:.3f} QALY{interval('mean_return_interval')}"),
        ("median survival", medians[0]),
        *((f"{y}-year survival", "beyond follow-up" if x is None else f"{x:.1%}") for y, x in figures["survival"].items()),
        ("first-line response", f"{figures['first_line_response']:.1%}"),
        ("median time to progression or death", medians[1]),
        ("any grade 3+ event", f"{figures['grade3']:.1%}"),
        ("decisions within the guideline", f"{figures['guideline_concordance']:.1%}"),
        ("largest divergence between groups", "{} {nats:.4f} nats (by chance {chance:.4f})".format(apart[0], **apart[1])),
        ("carbon", f"{figures['mean_carbon_kg']:,.0f} kg CO2e a patient"),
        *([("tests", f"{figures['mean_cost_usd']:,.0f} USD a patient")] if tested else []),
        *((f"first cycle: {name}", f"{share:.1%}") for name, share in [*figures["first_cycle"].items()][:5]),
    ]


def cohort_command(arguments: argparse.Namespace) -> None:
    """Write a cohort."""
    from onco_gym.cards.checks import patient_vocabulary

    card = onco_gym.load_card(resolve(arguments.id)[1])
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
