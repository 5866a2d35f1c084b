"""Scripts: everything needed to play episodes again, and the files that keep them.

A file of episodes is plain JSON, and nothing in it is ever executed::

    {"format": "onco_gym episodes 3",
     "stamp": {"environment": "onco_gym/NSCLC-v0", "card_digest": "...", "split": "test", "cohort_digest": "...",
               "weights": {"outcome": 1.0, ...}, "horizon": 60, "decide": "events", "version": "..."},
     "agent": "guideline",
     "seed": 0,
     "episodes": [{"row": 4711, "key": "9e3779b97f4a7c15", "actions": ["osimertinib", "osimertinib", ...]}, ...]}

``row`` and ``key`` are the episode's :class:`onco_gym.interfaces.engine.Origin`; keys are hexadecimal. An action is the name of
a regimen; in dosing and in the workflow it is a list of numbers. ``seed`` is null unless episode ``i`` is that of
``reset(seed=seed + i)``.
"""

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from onco_gym.agents.episodes import Episodes, play
from onco_gym.cards import Card
from onco_gym.foundation.files import replacing
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.words import did_you_mean, shown
from onco_gym.interfaces.arguments import EngineError
from onco_gym.interfaces.engine import OWN, Engine, make_engine
from onco_gym.interfaces.origins import Origin, key_words
from onco_gym.interfaces.registry import KINDS, UnknownEnvironmentError
from onco_gym.interfaces.stamp import Stamp, StampError
from onco_gym.patients import Cohort

FORMAT = "onco_gym episodes 3"
MOST = 1_000_000
"""Steps that a file may hold: the longest episode times the number of episodes."""
LONGEST_NAME = 200
"""Characters of an agent's name."""


class EpisodesError(ValueError):
    """Episodes that cannot be written, read or played again. The message says why."""


@dataclass(frozen=True, eq=False)
class Script:
    """Everything needed to play n episodes again. The longest has H steps.

    Attributes:
        stamp: what they were made with.
        origin: the patients and their chance.
        actions: (H, n, ...) what was done, -1 after the end.
        agent: the name of the agent, for reports.
        seed: episode ``i`` is that of ``reset(seed=seed + i)``; None if the patients were chosen in another way.
    """

    stamp: Stamp
    origin: Origin
    actions: NDArray[Any]
    agent: str
    seed: int | None

    def __len__(self) -> int:
        return self.actions.shape[1]

    @functools.cached_property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) steps of each episode."""
        return (self.actions.reshape(*self.actions.shape[:2], -1)[..., 0] >= 0).sum(0)

    def of(self, i: int) -> tuple[int, str, NDArray[Any]]:
        """Row, key and actions of episode ``i``, as :func:`onco_gym.journeys.from_actions` takes them."""
        return *self.origin.of(i), self.actions[: self.lengths[i], i]


def replay(engine: Engine, episodes: Episodes | Script, progress: Progress = silent) -> Episodes:
    """Play episodes again. On the same machine, the results are the same to the last bit.

    Args:
        engine: the environment that they were made with.
        episodes: from :func:`onco_gym.rollout` or :func:`read_episodes`.
        progress: called after every cycle.

    Raises:
        StampError: if they were made with something else.
        EpisodesError: if an episode has actions after its end, or does not end with its last action.
    """
    script = _script(episodes)
    script.stamp.check(engine.stamp)
    again, lengths = play(engine, _Reading(script.actions), script.origin, progress), script.lengths
    lasted = (again.given >= 0).sum(0)
    for i in np.flatnonzero(lasted != lengths)[:1]:
        found = f"ends after {lasted[i]} of them" if lasted[i] < lengths[i] else "does not end with the last of them"
        raise EpisodesError(f"episode {i} has {lengths[i]} actions, and {found}")
    return again


class _Reading:
    """An agent that reads out actions (H, n, ...) in order. After an episode's end it does whatever is possible."""

    def __init__(self, actions: NDArray[Any]) -> None:
        self._actions = iter(np.maximum(actions, np.zeros((), actions.dtype)))
        self._nothing = np.zeros_like(actions[0])

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[Any]:
        return next(self._actions, self._nothing)


# ------------------------------------------------------------------------------------------------ files


def write_episodes(
    path: str | os.PathLike[str], engine: Engine, episodes: Episodes | Script, agent: str = "agent", seed: int | None = None
) -> None:
    """Write what was done in episodes, whole or not at all, so that others can play them again.

    Args:
        path: the path of the JSON file; see the module.
        engine: the environment that they were made with.
        episodes: from :func:`onco_gym.rollout`. A script is written with its own agent and seed.
        agent: the name of the agent.
        seed: the seed of the rollout, if the episodes are from one.

    Raises:
        StampError: if the episodes were made with another engine.
        EpisodesError: if the patients are not those of the seed, or there are too many.
    """
    write_rows(path, engine, _script(episodes, agent, seed))


def read_episodes(path: str | os.PathLike[str], engine: Engine) -> Script:
    """Read what was done in episodes, for :func:`replay`.

    Args:
        path: the path of a file from :func:`write_episodes` or :func:`onco_gym.write_record`.
        engine: the environment that they were made with; :func:`engine_of` makes it from the file.

    Raises:
        EpisodesError: if the file is damaged, or the episodes were made with another card, cohort, weights or horizon.
    """
    return read_rows(path, engine)[0]


def read_stamp(path: str | os.PathLike[str]) -> Stamp:
    """What the episodes in a file were made with.

    Raises:
        EpisodesError: if it is not a file of episodes.
    """
    content = _content(path)
    with naming(path):
        return Stamp.from_json(content.get("stamp"))


def engine_of(
    path: str | os.PathLike[str],
    environment: str | os.PathLike[str] | Card | None = None,
    cohort: Cohort | str | os.PathLike[str] | None = None,
) -> Engine:
    """The engine that the episodes in a file were made with, reward weights and horizon included.

    Args:
        path: the path of the file.
        environment: as :func:`onco_gym.make_engine` takes it; needed for a card of your own.
        cohort: the patients, if they are not the default ones.

    Raises:
        EpisodesError: if it is not a file of episodes, or they were made with another card or cohort.
    """
    stamp = read_stamp(path)
    plain = stamp.environment.removesuffix("-v0")
    kind = next((name for name, entry in KINDS.items() if entry.suffix and plain.endswith(entry.suffix)), "regimen")
    with naming(path):
        split, made = "train" if stamp.split == OWN else stamp.split, (stamp.weights, stamp.horizon, kind, stamp.terms)
        engine = make_engine(environment or stamp.environment, cohort, *made, split=split, decide=stamp.decide)
        stamp.check(engine.stamp)
    return engine


# ------------------------------------------------------------------------------------------------ the one reader and writer


def write_rows(
    path: str | os.PathLike[str], engine: Engine, script: Script, beside: Sequence[Mapping[str, Any]] | None = None
) -> None:
    """Write a script and, with each of the n episodes, the further plain values in ``beside``."""
    script.stamp.check(engine.stamp)
    _check_size(script.actions.shape[:2])
    seed = int(script.seed) if isinstance(script.seed, np.integer) else script.seed
    _check_seed(engine, seed, script.origin)
    rows, plain = [], engine.kind.name == "regimen"
    for i in range(len(script)):
        row, key, actions = script.of(i)
        done = [engine.scenario.regimens[regimen] for regimen in actions] if plain else actions.tolist()
        rows.append({"row": row, "key": key, "actions": done, **(beside[i] if beside else {})})
    head = {"format": FORMAT, "stamp": script.stamp.to_json(), "agent": _checked_name(script.agent), "seed": seed}
    text = json.dumps({**head, "episodes": rows}, separators=(",", ":"), allow_nan=False)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_rows(path: str | os.PathLike[str], engine: Engine) -> tuple[Script, list[dict[str, Any]]]:
    """A script from its file, and the n episodes as the file holds them. Errors are as in :func:`read_episodes`."""
    content = _content(path)
    with naming(path):
        stamp = Stamp.from_json(content.get("stamp"))
        stamp.check(engine.stamp)
        rows = content.get("episodes")
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            raise EpisodesError("holds no episode: expected a list of objects")
        every = [_actions(engine, row.get("actions"), f"episode {i}") for i, row in enumerate(rows)]
        longest = max(map(len, every))
        _check_size((longest, len(rows)))
        actions = np.full((longest, len(rows), *every[0].shape[1:]), -1, every[0].dtype)
        for i, one in enumerate(every):
            actions[: len(one), i] = one
        who = [_whole(row.get("row"), len(engine.cohort) - 1, f"episode {i}: row") for i, row in enumerate(rows)]
        keys = [_key(row.get("key"), f"episode {i}") for i, row in enumerate(rows)]
        if len({len(key) for key in keys}) > 1:
            raise EpisodesError("some keys are open and some are sealed: expected keys of one length")
        origin = Origin(np.array(who, np.int32), np.stack(keys, 1))
        _check_seed(engine, content.get("seed"), origin)
        return Script(stamp, origin, actions, _checked_name(content.get("agent")), content.get("seed")), rows


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors about its content."""
    try:
        yield
    except (EpisodesError, EngineError, StampError, UnknownEnvironmentError) as error:
        raise EpisodesError(f"{path}: {error}") from None


def _script(episodes: Episodes | Script, agent: str = "agent", seed: int | None = None) -> Script:
    if isinstance(episodes, Script):
        return episodes
    return Script(episodes.stamp, episodes.origin, episodes.actions, agent, seed)


def _content(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise EpisodesError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise EpisodesError(f"{path}: is not a file of episodes: {error}") from None
    if not isinstance(content, dict):
        raise EpisodesError(f"{path}: is not a file of episodes: it holds {shown(content)}, expected an object")
    if content.get("format") != FORMAT:
        found = shown(content.get("format"))
        raise EpisodesError(f"{path}: is not a file of episodes: its format is {found}, expected {FORMAT!r}")
    return content


def _actions(engine: Engine, values: Any, where: str) -> NDArray[Any]:
    """(T, ...) the actions of one episode."""
    if not isinstance(values, list) or not 1 <= len(values) <= engine.horizon:
        found = f"{len(values):,} actions" if isinstance(values, list) else f"actions {shown(values)}"
        raise EpisodesError(f"{where} has {found}, expected a list of 1 to {engine.horizon}")
    if engine.kind.name == "regimen":
        index = {name: number for number, name in enumerate(engine.scenario.regimens)}
        for step, name in enumerate(values):
            if not isinstance(name, str) or name not in index:
                hint = did_you_mean(name, index) if isinstance(name, str) else ""
                raise EpisodesError(f"{where}, action {step + 1}: the card has no regimen {shown(name)}{hint}")
        values = [index[name] for name in values]
    elif any(not isinstance(step, list) or any(type(one) not in (int, float) for one in step) for step in values):
        raise EpisodesError(f"{where}: its actions are not lists of numbers")
    try:
        return engine.kind.checked(values, len(values))
    except InvalidAction as error:
        raise EpisodesError(f"{where}: {error}") from None
    except (ValueError, OverflowError):  # lists of different lengths, or huge numbers
        raise EpisodesError(f"{where}: its actions do not make an array of numbers") from None


def _whole(value: Any, most: int, what: str) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise EpisodesError(f"{what} is {shown(value)}, expected a whole number from 0 to {most}")
    return value


def _key(value: Any, where: str) -> NDArray[np.uint32]:
    try:
        return key_words(value)
    except EngineError as error:
        raise EpisodesError(f"{where}: {error}") from None


def _checked_name(agent: Any) -> str:
    if not isinstance(agent, str) or not agent.isprintable() or not 1 <= len(agent) <= LONGEST_NAME:
        raise EpisodesError(f"agent is {shown(agent)}, expected printable text of 1 to {LONGEST_NAME} characters")
    return agent


def _check_size(shape: Sequence[int]) -> None:
    if shape[0] * shape[1] > MOST:
        raise EpisodesError(f"{shape[1]:,} episodes of up to {shape[0]:,} steps are more than {MOST:,} steps")


def _check_seed(engine: Engine, seed: Any, origin: Origin) -> None:
    """Raise unless ``origin`` (n,) is what a rollout under ``seed`` begins with."""
    if seed is None:
        return
    n = len(origin.row)
    wanted = engine.origins(n, _whole(seed, 2**64 - n, "seed"))
    if not all(np.array_equal(one, other) for one, other in zip(wanted, origin, strict=True)):
        raise EpisodesError(f"the patients are not those of seed {seed}: expected null as their seed")
