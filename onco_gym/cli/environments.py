"""Commands about environments: list, show, play."""

import argparse
import math
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING

import onco_gym
from onco_gym.cli.parser import Commands, UsageError
from onco_gym.cli.screen import console, make_table, progress_bar, wrote
from onco_gym.foundation.units import WEEKS_PER_YEAR
from onco_gym.interfaces.registry import KINDS, NAMESPACE, OWN_CARD, environments, find_environment

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from onco_gym.interfaces.single import OncologyEnv

SECTIONS = ("variables", "regimens", "clones", "guideline", "arms")
"""The tables of a card, as ``show`` prints them."""


def register(commands: Commands) -> None:
    """Add the commands."""
    commands.add(list_command, "List the environments.", "list")

    parser = commands.add(show_command, "Show what a card says about its disease.", "show NSCLC --section guideline")
    parser.add_environment()
    parser.add_argument("--section", choices=SECTIONS, help="show only this table")
    parser.add_argument("--citation", action="store_true", help="print the sources of the card as BibTeX instead")

    about = "Treat a patient yourself, or watch an agent do it."
    parser = commands.add(play_command, about, "play NSCLC --seed 7 --plot journey.png", agents=True)
    parser.add_environment()
    parser.add_argument("--agent", metavar="AGENT", help="who decides (see below); by default you do")
    parser.add_seed("the same patient", default=None)
    parser.add_plot("also draw the journey", ".png")
    parser.add_argument("-q", "--quiet", action="store_true", help="with --agent: print only the last chart")


# ------------------------------------------------------------------------------------------------ list and show


def list_command(_: argparse.Namespace) -> None:
    """List the environments."""
    rows: list[tuple[object, ...]] = []
    for one in environments():
        card = onco_gym.load_card(one.card)
        years = f"{card.horizon_cycles * card.cycle_weeks / WEEKS_PER_YEAR:.1f}"
        action = KINDS[one.kind].action.format(regimens=len(card.regimens))
        reward = "vector" if one.multi_objective else "number"
        rows.append((one.id, card.title, action, reward, card.horizon_cycles, years, len(card.arms)))
    suffixes = ", ".join(kind.suffix for kind in KINDS.values() if kind.suffix)
    rows.append((f"{NAMESPACE}/{OWN_CARD}-v0", f"a card of your own: card=PATH; also with {suffixes} and mo-", *"-----"))
    numbers = ("cycles", "years", "arms")
    console().print(make_table("", ("id", "disease", "action", "reward", *numbers), rows, numbers))


def show_command(arguments: argparse.Namespace) -> None:
    """Show what a card says."""
    card, screen = onco_gym.load_card(find_environment(arguments.id).card), console()
    if arguments.citation:
        print(onco_gym.citation(card))
        return
    if not arguments.section:
        screen.print(card.title, style="bold", markup=False)
        screen.print(" ".join(card.summary.split()), "", sep="\n", markup=False)
    for name, table in zip(SECTIONS, _tables(card), strict=True):
        if arguments.section in (None, name):
            screen.print(table)


def _tables(card: "onco_gym.Card") -> "Iterable[Table]":
    """The tables of a card, in the order of SECTIONS."""
    rows: list[tuple[object, ...]]
    rows = [(v.name, v.tier, v.kind, ", ".join(v.parents), "protected" if v.protected else "") for v in card.variables]
    yield make_table("Variables", ("name", "tier", "kind", "parents", "protected"), rows)
    rows = []
    for regimen in card.regimens:
        kill = ", ".join(f"{name} {value:g}" for name, value in regimen.kill.items())
        harm = f"{1 - math.prod(1 - share for share in regimen.toxicity.values()):.0%}"  # in any organ
        rows.append((regimen.name, regimen.title, regimen.route, kill, harm, regimen.max_cycles or ""))
    columns = ("name", "title", "route", "log kill", "grade 3+", "max cycles")
    yield make_table("Regimens", columns, rows, columns[-2:])
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


# ------------------------------------------------------------------------------------------------ play


def play_command(arguments: argparse.Namespace) -> None:
    """Treat a patient."""
    if arguments.quiet and not arguments.agent:
        raise UsageError("--quiet needs --agent")
    found, screen = find_environment(arguments.id), console()
    if found.kind != "regimen" and not arguments.agent:
        raise UsageError(f"{found.id} cannot be played by hand, because its actions are more than a regimen: choose an --agent")
    seed = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    with progress_bar(quiet=arguments.quiet):
        import gymnasium as gym

        # All ids make such an environment.
        env: OncologyEnv = gym.make(found.id, card=found.card, render_mode="ansi").unwrapped  # type: ignore[assignment]
        agent = onco_gym.load_agent(env.engine, arguments.agent or "guideline", seed)
        observation, info = env.reset(seed=seed)
    screen.print(f"{env.engine.card.id}, seed {seed}", style="bold", markup=False)
    titles = [regimen.title for regimen in env.engine.card.regimens]
    ended = False
    while not ended:
        choice = agent.act(observation[None], info["action_mask"][None])[0]
        if not arguments.quiet:
            _chart(screen, env)
        if not arguments.agent:
            choice = _ask(screen, {i: title for i, title in enumerate(titles) if info["action_mask"][i]}, int(choice))
        if choice is None:
            break
        observation, _, terminated, truncated, info = env.step(choice)
        ended = terminated or truncated
    if ended:
        _chart(screen, env)
    if arguments.plot:
        env.save_picture(arguments.plot)
        wrote(arguments.plot)


def _chart(screen: "Console", env: "OncologyEnv") -> None:
    from rich.text import Text

    text = Text(f"\n{env.render()}\n")
    text.highlight_words(["progression", "death", "died", "grade 3+", "stopped for toxicity"], "red")
    screen.print(text, soft_wrap=True)


def _ask(screen: "Console", titles: dict[int, str], advised: int) -> int | None:
    """The regimen that the user wants, or None to quit."""
    rows = [(number, title, "guideline" if number == advised else "") for number, title in titles.items()]
    screen.print(make_table("", ("number", "can be given now", ""), rows, ("number",)))
    while True:
        try:
            answer = input("number, Enter for the guideline's choice, q to quit: ").strip()
        except (EOFError, UnicodeDecodeError, RuntimeError):  # RuntimeError if there is no standard input at all
            answer = "q"
        if answer.lower() in ("q", "quit"):
            screen.print()
            return None
        if not answer or answer in map(str, titles):
            return int(answer) if answer else advised
        screen.print(f"{answer!r} is not one of the numbers above", markup=False)
