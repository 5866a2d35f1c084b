"""Records: a file of episodes (:mod:`onco_gym.agents.scripts`) that also says what was seen.

In the file every episode has an ``"observed"`` object beside its actions, with a value for every cycle: ``alive``, ``scanned``,
``progressed`` (0 or 1), ``diameter_mm``, ``ctdna_log10``, and for each of the card's organ classes ``toxicity`` and ``severe``.
"""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Agent, EpisodesError, Script, rollout
from onco_gym.agents.scripts import naming, read_rows, write_rows
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.words import shown
from onco_gym.interfaces.engine import Engine
from onco_gym.verification.course import Cases, cases_at
from onco_gym.verification.reconstruction import Observed, watch

LARGEST = 1e9
"""Larger numbers are refused."""
COLUMNS = ("alive", "scanned", "diameter_mm", "progressed", "ctdna_log10", "toxicity", "severe")
"""The names of the fields of :class:`Observed` in the file, in order."""
FLAGS = ("alive", "scanned", "progressed", "severe")


@dataclass(frozen=True, eq=False)
class Record(Script):
    """Episodes of an agent, whole or claimed, in which an action is a regimen.

    ``actions`` (T, n) are the regimens that were given in every cycle: a pause where the choice could not be given. So records
    are replayed with ``decide="cycles"``, whenever the agent decided.

    Attributes:
        observed: what was seen, at the end of each cycle.
    """

    observed: Observed

    def who(self, engine: Engine) -> Cases:
        """The patients themselves."""
        return cases_at(engine, self.origin)


def record_episodes(
    engine: Engine, agent: Agent, n: int, seed: int = 0, name: str = "agent", progress: Progress = silent
) -> Record:
    """Let ``agent`` treat ``n`` patients, and keep what was given and seen.

    Raises:
        EpisodesError: if actions are not regimens.
    """
    _check_kind(engine)
    episodes, engine = rollout(engine, agent, n, seed, progress), engine.deciding("cycles")
    given = episodes.by_cycle()
    seen = watch(engine, cases_at(engine, episodes.origin), np.where(given >= 0, given, engine.scenario.holiday))
    return Record(engine.stamp, episodes.origin, given, name, seed, seen)


def write_record(path: str | os.PathLike[str], engine: Engine, record: Record) -> None:
    """Write a record as JSON, whole or not at all.

    Raises:
        StampError: if it was made with another engine.
        EpisodesError: if it holds too many cycles.
    """
    rounded = [
        part.astype(int) if name in FLAGS else np.round(part.astype(float), 3 if name == "ctdna_log10" else 2)
        for name, part in zip(COLUMNS, record.observed, strict=True)
    ]
    beside = []
    for i, length in enumerate(record.lengths):
        values = (part[:length, ..., i].tolist() for part in rounded)
        beside.append({"observed": dict(zip(COLUMNS, values, strict=True))})
    write_rows(path, engine.deciding("cycles"), record, beside)


def read_record(path: str | os.PathLike[str], engine: Engine) -> Record:
    """Read a record. :func:`onco_gym.verify` checks whether its actions explain what was seen.

    Args:
        path: the path of a file from :func:`write_record`.
        engine: the environment that it was made with; :func:`onco_gym.agents.engine_of` makes it from the file.

    Raises:
        EpisodesError: if the file is damaged, says nothing of what was seen, or was made with something else.
    """
    _check_kind(engine)
    script, rows = read_rows(path, engine := engine.deciding("cycles"))
    with naming(path):
        seen = _observed(engine, script, rows)
    return Record(script.stamp, script.origin, script.actions, script.agent, script.seed, seen)


def _check_kind(engine: Engine) -> None:
    if engine.kind.name != "regimen":
        raise EpisodesError(f"records need an environment whose actions are regimens, and {engine.id} is not one")


def _observed(engine: Engine, script: Script, rows: list[dict[str, Any]]) -> Observed:
    (longest, n), organs = script.actions.shape, len(engine.scenario.organs)
    every = {name: np.zeros((longest, n), np.float32) for name in COLUMNS}
    every |= {name: np.zeros((longest, organs, n), np.float32) for name in ("toxicity", "severe")}
    every |= {name: every[name].astype(bool) for name in FLAGS}
    for i, (row, length) in enumerate(zip(rows, script.lengths, strict=True)):
        seen = row.get("observed")
        if not isinstance(seen, dict):
            raise EpisodesError(f"episode {i} does not say what was seen: observed is {shown(seen)}, expected an object")
        for name, into in every.items():
            into[:length, ..., i] = _numbers(seen.get(name), (length, *into.shape[1:-1]), name in FLAGS, f"episode {i}: {name}")
    return Observed(*every.values())


def _numbers(values: Any, shape: tuple[int, ...], flag: bool, what: str) -> NDArray[Any]:
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError):  # lists of different lengths, or huge numbers
        found = np.empty(0)
    if found.shape != shape or found.dtype.kind not in "if" or not ((found >= -LARGEST) & (found <= LARGEST)).all():
        raise EpisodesError(f"{what} is invalid, expected {' x '.join(map(str, shape))} numbers from {-LARGEST:g} to {LARGEST:g}")
    if flag and not np.isin(found, (0, 1)).all():
        raise EpisodesError(f"{what} has other values than 0 and 1")
    return found
