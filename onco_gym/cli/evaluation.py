"""Commands on evaluations."""

import argparse
import json

import gymnasium as gym
from rich.progress import Progress

from onco_gym.cli.common import COLUMNS, UsageError, console, make_table, resolve


def evaluate_command(arguments: argparse.Namespace) -> None:
    """Evaluate agents on the same patients."""
    key, card = resolve(arguments.env)
    if arguments.address and arguments.engine == "local":
        raise UsageError("--address needs --engine ray")
    kind = gym.spec(key).kwargs.get("kind", "regimen")
    asked = list(dict.fromkeys([arguments.agent, *arguments.compare]))
    errors = console(stderr=True)
    with Progress(*COLUMNS, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("compiling", total=None)
        from onco_gym.evaluation import REFERENCE, evaluate_all, write_report
        from onco_gym.evaluation.figures import RANDOM, make_named
        from onco_gym.evaluation.tables import fairness_rows, rows
        from onco_gym.foundation.files import replacing

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"{arguments.episodes} patients")

        named = list(dict.fromkeys([*asked, RANDOM, REFERENCE]))
        environment = card if card.endswith(".toml") else key
        fairness = [] if arguments.no_fairness else asked
        found = evaluate_all(
            named, environment, kind, arguments.episodes, arguments.seed, fairness, arguments.engine, arguments.address, progress
        )
        if arguments.html:
            bar.update(task, description="drawing")
            engine, agent = make_named(arguments.agent, environment, kind, arguments.seed)
            write_report(arguments.html, found, engine, agent)
    if arguments.json:
        figures = found[0].to_json()
        if len(found) > 1:
            figures["compared"] = [one.to_json() for one in found[1:]]
        with replacing(arguments.json) as temporary:
            temporary.write_text(json.dumps(figures, indent=2, allow_nan=False) + "\n")
    screen = console()
    title = f"{key if environment == key else card}, {arguments.episodes:,} patients, seed {arguments.seed}; 95% intervals"
    screen.print(make_table(title, ("", *named), rows(found)))
    for one in found:
        if one.fairness is not None:
            title = f"Fairness of {one.agent}: {one.fairness.patients:,} patients and their twins"
            head = ("attribute", "effect", "nats, less chance", "decisions that change", "starts of a line that change")
            screen.print(make_table(title, head, fairness_rows(one)))
    if arguments.html:
        screen.print(f"wrote {arguments.html}", markup=False)


def yardstick_command(arguments: argparse.Namespace) -> None:
    """Measure how far the planner gets beyond the guideline, or train the network of a card; the result is kept beside it."""
    card = resolve(arguments.id)[1]
    if card.endswith(".toml"):
        raise UsageError(f"{card}: yardsticks and networks are kept for shipped cards only; others are scored by the guideline")
    errors = console(stderr=True)
    with Progress(*COLUMNS, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("compiling", total=None)
        from onco_gym.evaluation.yardsticks import measure, write_yardstick, yardstick_file
        from onco_gym.interfaces.engine import make_engine
        from onco_gym.verification.amortised import network_file, train, write_network

        engine = make_engine(card)
        if arguments.network:
            network = train(engine, on_stage=lambda stage, share: bar.update(task, description=stage, completed=share, total=1.0))
            write_network(network_file(card), network)
            said = f"wrote {network_file(card)}"
        else:

            def progress(done: int, of: int) -> None:
                bar.update(task, description="patients", completed=done, total=of)

            found = measure(engine, arguments.episodes, arguments.seed, progress)
            write_yardstick(yardstick_file(card), found)
            value, low, high = found.gain
            said = (
                f"{arguments.id}: random {found.random:.3f}, guideline {found.guideline:.3f}, planner {found.planner:.3f}; the "
                f"planner gains {value:.3f} [{low:.3f}, {high:.3f}]; the guideline's score is {100 / found.reach:.1f}"
            )
    console().print(said, markup=False, soft_wrap=True)
