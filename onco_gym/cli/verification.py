"""Commands about recorded episodes: record, verify."""

import argparse

import onco_gym
from onco_gym.cli.parser import Commands, UsageError
from onco_gym.cli.screen import console, make_table, progress_bar, write_figures, wrote
from onco_gym.interfaces.registry import find_environment


def register(commands: Commands) -> None:
    """Add the commands."""
    about = "Record what an agent decides and what is seen, episode by episode."
    parser = commands.add(record_command, about, "record clinician --env NSCLC -n 200 --out episodes.json", agents=True)
    parser.add_rollout(200)
    parser.add_out("FILE.json", "where to write the episodes")
    parser.add_quiet()

    about = "Score recorded episodes against the decisions that would have been best, and say why."
    parser = commands.add(verify_command, about, "verify episodes.json --html report.html", agents=True)
    parser.add_argument("episodes", metavar="EPISODES", help="a file that onco-gym record wrote")
    text = "let this agent treat the patients once more (see below), and count the decisions that it makes again"
    parser.add_argument("--agent", metavar="AGENT", help=text)
    text = "the environment of the episodes, if its card is a file of your own; by default the one that the episodes name"
    parser.add_argument("--env", metavar="ID", help=text)
    parser.add_decide("with --agent: when it decides; by default at decision points")
    parser.add_seed("the same draws of chance", high=2**31 - 1)
    parser.add_json()
    parser.add_html()
    parser.add_quiet()


def record_command(arguments: argparse.Namespace) -> None:
    """Let an agent treat patients, and write down what was decided and seen."""
    found = find_environment(arguments.env)
    if found.kind != "regimen":
        raise UsageError(f"{found.id}: episodes can be recorded only if an action is a regimen, as in onco_gym/NSCLC-v0")
    with progress_bar(quiet=arguments.quiet) as progress:
        engine = onco_gym.make_engine(found.card, split=arguments.split, decide=arguments.decide)
        agent = onco_gym.load_agent(engine, arguments.agent, arguments.seed)
        kept = onco_gym.record_episodes(engine, agent, arguments.n, arguments.seed, arguments.agent, progress)
        onco_gym.write_record(arguments.out, engine, kept)
    print(f"wrote {arguments.n:,} episodes of {arguments.agent} to {arguments.out}")


def verify_command(arguments: argparse.Namespace) -> None:
    """Score episodes against the decisions that would have been best."""
    with progress_bar(quiet=arguments.quiet) as progress:
        from onco_gym.agents import engine_of
        from onco_gym.verification.report import rows, to_json, write_report

        engine = engine_of(arguments.episodes, arguments.env)
        kept = onco_gym.read_record(arguments.episodes, engine)
        agent = onco_gym.load_agent(engine, arguments.agent, kept.seed or 0) if arguments.agent else None
        decides = engine.deciding(arguments.decide or "events")
        found = onco_gym.verify(decides, kept, agent, seed=arguments.seed, progress=progress)
        if arguments.html:
            progress("drawing", 0, 0)
            write_report(arguments.html, engine, found)
    screen = console()
    screen.print(make_table(f"{kept.agent} on {engine.card.id}; 90% intervals", ("", kept.agent), rows(found)))
    worst = int(found.regret.argmax())
    if found.reasons[worst]:
        screen.print(f"\nPatient {worst} lost most:", markup=False)
        for reason in found.reasons[worst][:3]:
            screen.print(f"- {reason.text}", markup=False)
    write_figures(arguments.json, to_json(engine, found))
    if arguments.html:
        wrote(arguments.html)
