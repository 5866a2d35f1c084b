"""Commands on episodes."""

import argparse
import json

import gymnasium as gym
from rich.progress import Progress

from onco_gym.cli.common import COLUMNS, UsageError, console, make_table, resolve


def record_command(arguments: argparse.Namespace) -> None:
    """Let an agent treat patients, and write down what was decided and seen."""
    key, card = resolve(arguments.env)
    if gym.spec(key).kwargs.get("kind", "regimen") != "regimen":
        raise UsageError(f"{key}: episodes are recorded where an action is a regimen, as in {key.split('-')[0]}-v0")
    errors = console(stderr=True)
    with errors.status("compiling"):
        from onco_gym.agents import load_agent
        from onco_gym.interfaces.engine import make_engine
        from onco_gym.verification import record_episodes, write_record

        engine = make_engine(card)
        agent = load_agent(engine, arguments.agent, arguments.seed)
        kept = record_episodes(engine, agent, arguments.episodes, arguments.seed, arguments.agent)
        write_record(arguments.out, engine, kept)
    console().print(f"wrote {arguments.episodes:,} episodes of {arguments.agent} to {arguments.out}", markup=False)


def verify_command(arguments: argparse.Namespace) -> None:
    """Score episodes against the decisions that would have been best."""
    errors = console(stderr=True)
    with Progress(*COLUMNS, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("compiling", total=None)
        from onco_gym.agents import load_agent
        from onco_gym.foundation.files import replacing
        from onco_gym.interfaces.engine import make_engine
        from onco_gym.verification import read_record, verify, write_report
        from onco_gym.verification.records import card_of
        from onco_gym.verification.report import rows, to_json

        engine = make_engine(resolve(arguments.card or card_of(arguments.episodes))[1])
        kept = read_record(arguments.episodes, engine)

        def progress(stage: str, done: int, of: int) -> None:
            bar.update(task, description=stage, completed=done - 1, total=of - 1)

        agent = load_agent(engine, arguments.agent, kept.seed) if arguments.agent else None
        found = verify(engine, kept, agent, seed=arguments.seed, on_stage=progress)
        if arguments.html:
            bar.update(task, description="drawing")
            write_report(arguments.html, engine, found)
        if arguments.json:
            with replacing(arguments.json) as temporary:
                temporary.write_text(json.dumps(to_json(engine, found), indent=2, allow_nan=False) + "\n")
    screen = console()
    screen.print(make_table(f"{kept.agent} on {engine.card.id}; 90% intervals", ("", kept.agent), rows(found)))
    worst = int(found.regret.argmax())
    if found.reasons[worst]:
        screen.print(f"\nMost was lost by patient {kept.patients[worst]}:", markup=False)
        for reason in found.reasons[worst][:3]:
            screen.print(f"- {reason.text}", markup=False)
    if arguments.html:
        screen.print(f"\nwrote {arguments.html}", markup=False)
