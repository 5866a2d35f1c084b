"""Commands that measure agents: rollout, evaluate, compare, yardstick."""

import argparse
import os
from typing import TYPE_CHECKING

import onco_gym
from onco_gym.cli.parser import Commands, UsageError, workers_of
from onco_gym.cli.screen import console, make_table, progress_bar, write_figures, wrote
from onco_gym.interfaces.registry import find_environment

if TYPE_CHECKING:
    from onco_gym.evaluation import Evaluation


def register(commands: Commands) -> None:
    """Add the commands."""
    about = "Run an agent on many patients and show how they fared."
    parser = commands.add(rollout_command, about, "rollout guideline --env NSCLC -n 1000 --json figures.json", agents=True)
    parser.add_rollout(1000)
    parser.add_argument("--cohort", metavar="FILE.parquet", help="draw the patients from this file")
    parser.add_json()
    parser.add_quiet()

    about = "Evaluate an agent beside the random and the guideline agent, with intervals."
    parser = commands.add(evaluate_command, about, "evaluate clinician --env NSCLC -n 2000 --html report.html", agents=True)
    parser.add_rollout(1000)
    text = "evaluate these agents too, on the same patients"
    parser.add_argument("--compare", nargs="+", action="extend", default=[], metavar="AGENT", help=text)
    text = "do not ask about the twins of patients, which takes longer than all the rest"
    parser.add_argument("--no-fairness", action="store_true", help=text)
    parser.add_json()
    parser.add_html()
    parser.add_workers()
    parser.add_quiet()

    about = "Compare two agents on the same patients: who fares better, where they part, and for whom it matters."
    parser = commands.add(compare_command, about, "compare policy.onnx guideline --env NSCLC -n 2000", agents=True)
    parser.add_agent(other=True)
    parser.add_treated(1000)
    parser.add_json()
    parser.add_quiet()

    about = "Measure the planner, which is 100 of the score, and keep the result beside the card. This takes minutes."
    parser = commands.add(yardstick_command, about, "yardstick NSCLC")
    parser.add_environment()
    parser.add_episodes(1536)
    parser.add_seed("the same patients and the same chance", default=10_000_000)
    text = "instead, train the network that tells verification which regimens to try"
    parser.add_argument("--network", action="store_true", help=text)
    parser.add_quiet()


def rollout_command(arguments: argparse.Namespace) -> None:
    """Run an agent on many patients."""
    found = find_environment(arguments.env)
    with progress_bar(quiet=arguments.quiet) as progress:
        from onco_gym.evaluation import summarise_rollout
        from onco_gym.evaluation.tables import rollout_rows

        asked = {"split": arguments.split, "decide": arguments.decide}
        engine = onco_gym.make_engine(found.card, arguments.cohort, kind=found.kind, **asked)
        agent = onco_gym.load_agent(engine, arguments.agent, arguments.seed)
        summary = summarise_rollout(engine, onco_gym.rollout(engine, agent, arguments.n, arguments.seed, progress))
    title = f"{engine.card.title}, agent {arguments.agent}, seed {arguments.seed}; 95% intervals"
    console().print(make_table(title, ("", ""), rollout_rows(summary)))
    asked = {name: getattr(arguments, name) for name in ("agent", "seed", "cohort")}
    write_figures(arguments.json, {**asked, **summary.to_json()})


def evaluate_command(arguments: argparse.Namespace) -> None:
    """Evaluate agents on the same patients."""
    found, where = find_environment(arguments.env), workers_of(arguments)
    asked = list(dict.fromkeys([arguments.agent, *arguments.compare]))
    with progress_bar(quiet=arguments.quiet) as progress:
        from onco_gym.evaluation import write_report
        from onco_gym.evaluation.figures import GUIDELINE, RANDOM

        engine = onco_gym.make_engine(found.card, kind=found.kind, split=arguments.split, decide=arguments.decide)
        named = list(dict.fromkeys([*asked, RANDOM, GUIDELINE]))
        fairness = [] if arguments.no_fairness else asked
        asked_for = (arguments.n, arguments.seed, fairness, arguments.split)
        first, *others = onco_gym.evaluate_all(engine, named, *asked_for, progress=progress, **where)
        if arguments.html:
            progress("drawing", 0, 0)
            agent = onco_gym.load_agent(engine, arguments.agent, arguments.seed)
            write_report(arguments.html, [first, *others], engine, agent)
    _print_evaluations([first, *others])
    rest = {"compared": [one.to_json() for one in others]} if others else {}
    write_figures(arguments.json, {**first.to_json(), **rest})
    if arguments.html:
        wrote(arguments.html)


def _print_evaluations(found: "list[Evaluation]") -> None:
    from onco_gym.evaluation.figures import GUIDELINE
    from onco_gym.evaluation.tables import compared, fairness_rows, rows

    screen, first = console(), found[0]
    title = f"{first.stamp.environment}, {first.episodes:,} {first.stamp.split} patients, seed {first.seed}; 95% intervals"
    beside = next((one for one in found[1:] if one.agent == GUIDELINE), None)
    if beside is not None:
        screen.print(f"{compared(first, beside)}\n")
    screen.print(make_table(title, ("", *(one.agent for one in found)), rows(found)))
    for one in found:
        if one.fairness is not None:
            title = f"Fairness of {one.agent}: {one.fairness.patients:,} patients and their twins"
            head = ("attribute", "effect", "nats, less chance", "decisions that change", "starts of a line that change")
            screen.print(make_table(title, head, fairness_rows(one)))


def compare_command(arguments: argparse.Namespace) -> None:
    """Compare two agents on the same patients."""
    found = find_environment(arguments.env)
    with progress_bar(quiet=arguments.quiet) as progress:
        from onco_gym.evaluation.tables import comparison_rows, parting_rows, subgroup_rows

        engine = onco_gym.make_engine(found.card, kind=found.kind, split=arguments.split, decide=arguments.decide)
        asked = (arguments.agent, arguments.other, arguments.n, arguments.seed)
        names = (os.path.basename(arguments.agent), os.path.basename(arguments.other))
        compared = onco_gym.compare(engine, *asked, names=names, progress=progress)
    screen, both = console(), f"{compared.first} and {compared.second}"
    title = f"{both} on the same {compared.patients:,} patients of {engine.id}, seed {arguments.seed}; 95% intervals"
    screen.print(make_table(title, ("", f"{compared.first} minus {compared.second}"), comparison_rows(compared)))
    head = ("line", compared.first, compared.second, "patients", "return", "weeks lived")
    screen.print(make_table("Where they part for the first time", head, parting_rows(compared, 12)))
    screen.print(make_table("For whom", ("patients who have", "number", "return"), subgroup_rows(compared)))
    write_figures(arguments.json, compared.to_json())


def yardstick_command(arguments: argparse.Namespace) -> None:
    """Measure how far the planner gets beyond the guideline, or train the network of a card. The result is kept beside it."""
    card = find_environment(arguments.id).card
    if card.endswith(".toml"):
        raise UsageError(f"{card}: yardsticks and networks are kept for shipped cards only; others are scored by the guideline")
    with progress_bar(quiet=arguments.quiet) as progress:
        from onco_gym.evaluation.yardsticks import measure, write_yardstick, yardstick_file
        from onco_gym.verification.amortised import network_file, train, write_network

        engine = onco_gym.make_engine(card, split="test", decide="cycles")
        if arguments.network:
            write_network(network_file(card), train(engine, progress=progress))
        else:
            found = measure(engine, arguments.n, arguments.seed, progress)
            write_yardstick(yardstick_file(card), found)
    if arguments.network:
        wrote(network_file(card))
        return
    print(
        f"{engine.id}: random {found.random:.3f}, guideline {found.guideline:.3f}, planner {found.planner:.3f}; the planner "
        f"gains {found.gain:.3f}; the score of the guideline is {100 / found.reach(found.random, found.guideline):.1f}"
    )
    wrote(yardstick_file(card))
