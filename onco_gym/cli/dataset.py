"""Commands about datasets: dataset."""

import argparse

import onco_gym
from onco_gym.cli.parser import Commands, workers_of
from onco_gym.cli.screen import console, make_table, progress_bar
from onco_gym.interfaces.registry import find_environment


def register(commands: Commands) -> None:
    """Add the commands."""
    about = "Write the episodes of an agent as a Minari dataset, for offline learning."
    example = "dataset clinician --env NSCLC -n 5000 --name oncology/nsclc/clinician-v0"
    parser = commands.add(dataset_command, about, example, agents=True)
    parser.add_agent()
    parser.add_episodes(5000)
    parser.add_seed("the same dataset")
    parser.add_argument("--name", metavar="NAME", help="name of the dataset; by default oncology/ENVIRONMENT/AGENT-v0")
    text = "folder of datasets; by default MINARI_DATASETS_PATH or ~/.minari/datasets"
    parser.add_argument("--root", metavar="DIR", help=text)
    parser.add_argument("--overwrite", action="store_true", help="replace a dataset of the same name")
    parser.add_workers()
    parser.add_quiet()


def dataset_command(arguments: argparse.Namespace) -> None:
    """Write the episodes of an agent as a Minari dataset."""
    found, where = find_environment(arguments.env), workers_of(arguments)
    with progress_bar(quiet=arguments.quiet) as progress:
        where |= {"root": arguments.root, "overwrite": arguments.overwrite, "options": {"card": found.card}}
        asked = (arguments.agent, arguments.n, arguments.seed, arguments.name)
        written = onco_gym.write_dataset(found.id, *asked, progress=progress, **where)
    means = written.mean_return if isinstance(written.mean_return, list) else [written.mean_return]
    rows = [
        ("episodes", f"{written.episodes}"),
        ("steps", f"{written.steps}"),
        ("mean return", ", ".join(f"{value:.3f}" for value in means)),
        ("load it with", f"minari.load_dataset({written.dataset_id!r})"),
        ("files", str(written.path)),
    ]
    console().print(make_table(f"{found.id}, agent {arguments.agent}", ("", ""), rows))
