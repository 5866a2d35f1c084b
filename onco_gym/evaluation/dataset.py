"""Write the episodes of an agent as a Minari dataset, for offline reinforcement learning.

Patients are rolled out in chunks of :data:`CHUNK`. Each chunk is a pure function of environment, agent and seed, so a dataset
does not depend on where its chunks were made. A longer dataset of the same seed begins with the shorter one.
"""

import contextlib
import functools
import importlib.util
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import load_agent, play
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.workers import connected, spread
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.origins import Seat
from onco_gym.interfaces.registry import NAMESPACE
from onco_gym.interfaces.single import MultiObjectiveEnv
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.rewards import TERMS
from onco_gym.version import __version__

CHUNK = 1000
"""Patients rolled out together. They share the tally behind the fairness term, so datasets depend on it."""
WAVE = 16
"""Chunks held in memory at a time."""
STAGING = ".onco_gym-staging-"
"""Prefix of the folders in which datasets are made."""


class DatasetError(ValueError):
    """A dataset that cannot be written; the message says what was expected."""


@dataclass(frozen=True)
class Written:
    """A dataset that was written: its folder and its contents."""

    path: Path
    dataset_id: str
    episodes: int
    steps: int
    mean_return: float | list[float]


def default_id(env_id: str, agent: str) -> str:
    """``oncology/nsclc/clinician-v0`` for the agent ``clinician`` in ``onco_gym/NSCLC-v0``."""
    name = env_id.removeprefix(f"{NAMESPACE}/").removesuffix("-v0").lower()
    return f"oncology/{name}/{re.sub(r'[^a-zA-Z0-9_-]+', '-', Path(agent).stem).strip('-') or 'agent'}-v0"


def write_dataset(
    env_id: str,
    agent: str = "clinician",
    episodes: int = 5000,
    seed: int = 0,
    dataset_id: str | None = None,
    workers: str = "local",
    address: str | None = None,
    progress: Progress = silent,
    *,
    options: Mapping[str, Any] | None = None,
    root: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Written:
    """Roll out an agent and write its episodes as a Minari dataset.

    Episode ``i`` is that of a single environment after ``reset(seed=seed + i)``. In addition to what every Minari dataset holds,
    ``infos`` has ``action_mask``, ``reward_terms``, ``carbon_kg`` and ``verdict`` for the reset and every step. A verdict is an
    index into ``verdicts`` in the metadata, and -1 at reset. If the agent gives probabilities, ``infos`` has ``probabilities``
    for every step.

    Args:
        env_id: id of a registered environment.
        agent: a name, a file, or an object of a module; see :func:`onco_gym.agents.load_agent`.
        episodes: number of episodes.
        seed: same seed, same dataset.
        dataset_id: Minari's id, such as ``oncology/nsclc/clinician-v0``; for the default see :func:`default_id`.
        workers: where the work is done; see :func:`onco_gym.foundation.workers.spread`.
        address: address of a running Ray cluster.
        progress: told after every chunk.
        options: further arguments of ``gym.make``, such as ``{"weights": {"fairness": 0}}``.
        root: folder of datasets; by default Minari's own, ``MINARI_DATASETS_PATH`` or ``~/.minari/datasets``.
        overwrite: replace a dataset of the same id.

    Raises:
        DatasetError: if the id is invalid or taken, the root cannot be written to, or Minari is not installed.
    """
    if episodes < 1:
        raise DatasetError(f"episodes is {episodes}, expected at least 1")
    name = dataset_id or default_id(env_id, agent)
    home, target = _place(name, root, overwrite)
    env = gym.make(env_id, **(options or {}))
    engine: Engine = env.unwrapped.engine  # type: ignore[attr-defined] # all ids have one
    load_agent(engine, agent, seed)  # fail early on unknown agents
    vector = isinstance(env.unwrapped, MultiObjectiveEnv)
    tasks = [
        Chunk(engine, vector, agent, (seed + first) % 2**64, min(CHUNK, episodes - first)) for first in range(0, episodes, CHUNK)
    ]
    returns: list[Any] = []
    description = (
        f"{episodes} episodes of the agent {agent!r} in {env_id}, seed {seed}. Simulated patients: research software, not for "
        "treating patients."
    )
    with _staging(home) as stage, connected(workers, address):
        dataset = None
        for first in range(0, len(tasks), WAVE):
            of_all = functools.partial(_of_all, progress, first, len(tasks))
            chunks = spread(roll, tasks[first : first + WAVE], workers, address, of_all, "chunks of episodes")
            buffers = [buffer for task, chunk in zip(tasks[first:], chunks, strict=False) for buffer in _buffers(task, chunk)]
            returns += [np.sum(buffer.rewards, axis=0, dtype=float) for buffer in buffers]
            with _rooted(stage):
                if dataset is None:
                    dataset = _create(name, buffers, env, agent, description)
                else:
                    dataset.update_dataset_from_buffer(buffers)
        assert dataset is not None
        mean, steps = np.mean(returns, axis=0).tolist(), int(dataset.total_steps)
        dataset.storage.update_metadata(
            {
                "agent": agent,
                "seed": seed,
                "card": engine.card.id,
                "card_digest": engine.scenario.digest,
                "onco_gym_version": __version__,
                "reward_weights": engine.weights,
                "reward_terms": list(TERMS),
                "verdicts": list(VERDICTS),
                "mean_return": mean,
            }
        )
        _move(stage, target, home, name, overwrite)
    return Written(target / "data", name, episodes, steps, mean)


def _of_all(progress: Progress, before: int, total: int, stage: str, done: int, _: int) -> None:
    """Report progress within a wave as progress of the whole."""
    progress(stage, before + done, total)


class Chunk(NamedTuple):
    """The task of :func:`roll`."""

    engine: Engine
    vector: bool  # whether the reward is the vector of terms
    agent: str
    seed: int
    patients: int


def roll(task: Chunk) -> dict[str, NDArray[Any]]:
    """Roll out one chunk. Arrays hold the steps of one patient after another; ``lengths`` (patients,) has their numbers.

    All :data:`CHUNK` patients are rolled out even if fewer are wanted, so the compiled function and the tally stay the same.
    """
    engine = task.engine
    seeds = np.uint64(task.seed) + np.arange(CHUNK, dtype=np.uint64)  # after the last of all seeds comes the first
    run = play(engine, load_agent(engine, task.agent, task.seed), engine.draw(Seat.first(seeds)), keep_steps=True)
    steps = run.steps
    assert steps is not None
    lengths = steps.lengths[: task.patients]
    terms = np.moveaxis(steps.terms, 1, -1)

    def flat(values: NDArray[Any]) -> NDArray[Any]:
        taken = np.swapaxes(values, 0, 1)[: task.patients]
        return taken[np.arange(len(values)) < (lengths + len(values) - len(steps.rewards))[:, None]]

    def after_reset(values: NDArray[Any], at_reset: int = 0) -> NDArray[Any]:
        return flat(np.concatenate([np.full_like(values[:1], at_reset), values]))

    last = np.zeros(int(lengths.sum()), bool)
    last[np.cumsum(lengths) - 1] = True
    died = np.repeat(run.died[: task.patients], lengths)
    arrays = {
        "lengths": lengths,
        "observations": flat(steps.observations),
        "actions": flat(run.actions).astype(engine.kind.space.dtype),
        "rewards": flat(terms if task.vector else steps.rewards),
        "terminations": last & died,
        "truncations": last & ~died,
        "action_mask": flat(steps.masks),
        "reward_terms": after_reset(terms),
        "carbon_kg": after_reset(steps.carbon_kg),
        "verdict": after_reset(run.verdicts.astype(np.int8), -1),
    }
    if steps.probabilities is not None:
        arrays["probabilities"] = flat(steps.probabilities)
    return arrays


def _buffers(task: Chunk, chunk: Mapping[str, NDArray[Any]]) -> Iterator[Any]:
    """Minari's buffers, one per episode."""
    from minari.data_collector import EpisodeBuffer

    lengths = chunk["lengths"]

    def cut(values: NDArray[Any]) -> Sequence[NDArray[Any]]:
        more = (len(values) - int(lengths.sum())) // len(lengths)  # 1 if the reset is included
        return np.split(values, np.cumsum(lengths + more)[:-1])

    parts = {name: cut(values) for name, values in chunk.items() if name != "lengths"}
    for index in range(len(lengths)):
        one = {name: values[index] for name, values in parts.items()}
        main: dict[str, Any] = {
            name: one.pop(name) for name in ("observations", "actions", "rewards", "terminations", "truncations")
        }
        terms = dict(zip(TERMS, one.pop("reward_terms").T, strict=True))
        yield EpisodeBuffer(seed=(task.seed + index) % 2**64, infos={**one, "reward_terms": terms}, **main)


def _create(name: str, buffers: list[Any], env: gym.Env[Any, Any], agent: str, description: str) -> Any:
    from minari import create_dataset_from_buffers

    return create_dataset_from_buffers(
        name,
        buffers,
        env=env,
        eval_env=env,
        algorithm_name=agent,
        author="onco_gym",
        author_email="",
        code_permalink="",
        description=description,
        requirements=[f"onco_gym=={__version__}"],
        data_format="hdf5",
    )


# ------------------------------------------------------------------------------------------------ files


@contextlib.contextmanager
def _rooted(root: Path) -> Iterator[None]:
    """Let Minari use ``root``. It reads its folder from the environment at every call."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(root)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before


def _place(name: str, root: str | os.PathLike[str] | None, overwrite: bool) -> tuple[Path, Path]:
    """(folder of datasets, folder of this one), after checking that it can be written."""
    try:
        from minari.dataset.minari_dataset import parse_dataset_id
        from minari.namespace import validate_namespace
        from minari.storage import get_dataset_path

        if importlib.util.find_spec("h5py") is None:  # Minari's own extra
            raise ImportError
    except ImportError:
        raise DatasetError('datasets need Minari: pip install "onco_gym[offline]"') from None
    try:
        parse_dataset_id(name)
        if "/" in name:
            validate_namespace(name.rpartition("/")[0])
    except (ValueError, TypeError):
        raise DatasetError(f"{name!r} is not the name of a dataset: expected one like oncology/nsclc/clinician-v0") from None
    home = (Path(root) if root is not None else get_dataset_path()).absolute()  # Minari joins relative paths twice
    target = home / name
    if target.exists() and not (target / "data" / "metadata.json").is_file():
        raise DatasetError(f"{target} exists and is not a dataset; it was left alone")
    if target.exists() and not overwrite:
        raise DatasetError(f"the dataset {name} already exists in {home}: choose another name, or overwrite it")
    for folder in (home, target.parent):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise DatasetError(f"no dataset can be written to {folder}: {there} is not a writable folder")
    return home, target


@contextlib.contextmanager
def _staging(home: Path) -> Iterator[Path]:
    """A hidden folder beside the datasets, in which a dataset is made before it is moved into place."""
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=STAGING, dir=home, ignore_cleanup_errors=True) as stage:
        yield Path(stage)


def _move(stage: Path, target: Path, home: Path, name: str, overwrite: bool) -> None:
    from minari.namespace import create_namespace, list_local_namespaces

    namespace = name.rpartition("/")[0]
    with _rooted(home):
        if namespace and namespace not in list_local_namespaces():
            create_namespace(namespace)
    old = stage / ".replaced"
    try:
        if target.exists():
            if not overwrite:
                raise DatasetError(f"another run has written the dataset {name} in {home} in the meantime; it was left alone")
            target.rename(old)
        (stage / name).rename(target)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)
