"""The command that writes datasets."""

import argparse

from rich.progress import Progress

from onco_gym.cli.common import console, make_table, resolve
from onco_gym.interfaces.registry import NAMESPACE


def dataset_command(arguments: argparse.Namespace) -> None:
    """Write an agent's episodes as a Minari dataset."""
    key, card = resolve(arguments.id)
    errors = console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("compiling", total=None)
        from onco_gym.evaluation.dataset import write_dataset

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"{arguments.episodes} episodes")

        written = write_dataset(
            key,
            arguments.agent,
            arguments.episodes,
            arguments.seed,
            arguments.name,
            arguments.engine,
            arguments.address,
            progress,
            options={"card": card} if key == f"{NAMESPACE}/Card-v0" else None,
            root=arguments.root,
            overwrite=arguments.overwrite,
        )
    means = written.mean_return if isinstance(written.mean_return, list) else [written.mean_return]
    rows = [
        ("episodes", f"{written.episodes}"),
        ("steps", f"{written.steps}"),
        ("mean return", ", ".join(f"{value:.3f}" for value in means)),
        ("load it with", f"minari.load_dataset({written.dataset_id!r})"),
        ("files", str(written.path)),
    ]
    console().print(make_table(f"{key}, agent {arguments.agent}", ("", ""), rows))
