"""Episodes as a file: which patients, what was decided, what was seen. Plain JSON; nothing in it is ever executed."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Agent, rollout
from onco_gym.cards.load import digest
from onco_gym.foundation.files import replacing
from onco_gym.interfaces.engine import Engine
from onco_gym.verification.course import Cases, Sequence, cases
from onco_gym.verification.reconstruction import Observed, watch

FORMAT = "onco_gym episodes 1"
MOST = 1_000_000
"""Cycles that a file may hold in all."""


class RecordError(ValueError):
    """A file of episodes that cannot be read, or does not belong to the card."""


@dataclass(frozen=True, eq=False)
class Record:
    """Episodes of an agent, whole or claimed.

    Attributes:
        agent: who decided, for reports.
        seed: patient ``i`` is the one that an environment admits under ``reset(seed=seed + i)``.
        patients: (n,) which ``i``.
        decisions: (T, n) int32 the regimen of every cycle, -1 after the end.
        observed: what was seen, at the end of each cycle.
    """

    agent: str
    seed: int
    patients: NDArray[np.int64]
    decisions: Sequence
    observed: Observed

    def who(self, engine: Engine) -> Cases:
        """The patients themselves."""
        every = cases(engine, int(self.patients.max()) + 1, self.seed)
        return every.take(self.patients)


def record_episodes(engine: Engine, agent: Agent, n: int, seed: int = 0, name: str = "agent") -> Record:
    """Let ``agent`` treat ``n`` patients, and keep what was decided and seen."""
    episodes = rollout(engine, agent, n, seed)
    decided = np.where(episodes.given >= 0, episodes.given, engine.scenario.holiday)
    return Record(name, seed, np.arange(n), episodes.given, watch(engine, cases(engine, n, seed), decided))


def write_record(path: str | os.PathLike[str], engine: Engine, kept: Record) -> None:
    """Write episodes, whole or not at all."""
    names, seen = engine.scenario.regimens, kept.observed
    rows = []
    for i, patient in enumerate(kept.patients):
        length = int((kept.decisions[:, i] >= 0).sum())
        at = slice(0, length)
        rows.append(
            {
                "patient": int(patient),
                "decisions": [names[r] for r in kept.decisions[at, i]],
                "alive": seen.alive[at, i].astype(int).tolist(),
                "scanned": seen.scanned[at, i].astype(int).tolist(),
                "diameter_mm": np.round(seen.diameter[at, i].astype(float), 2).tolist(),
                "progressed": seen.progressed[at, i].astype(int).tolist(),
                "ctdna_log10": np.round(seen.ctdna[at, i].astype(float), 3).tolist(),
                "toxicity": np.round(seen.toxicity[at, :, i].astype(float), 2).tolist(),
                "severe": seen.severe[at, :, i].astype(int).tolist(),
            }
        )
    head = {"format": FORMAT, "card": engine.card.id, "digest": digest(engine.card), "agent": kept.agent, "seed": kept.seed}
    text = json.dumps({**head, "organs": list(engine.scenario.organs), "episodes": rows}, separators=(",", ":"))
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def card_of(path: str | os.PathLike[str]) -> str:
    """The card that a file of episodes says it belongs to."""
    return str(_content(Path(path))["card"])


def read_record(path: str | os.PathLike[str], engine: Engine) -> Record:
    """Read episodes.

    Raises:
        RecordError: for a damaged file, episodes of another card or another version of it, or decisions that are not in it.
    """
    content = _content(Path(path))
    if content["card"] != engine.card.id:
        raise RecordError(f"{path}: holds episodes of the card {content['card']!r}, not of {engine.card.id!r}")
    if content["digest"] != digest(engine.card):
        raise RecordError(f"{path}: was made with another version of the card {engine.card.id!r} ({content['digest']})")
    try:
        return _record(content, engine)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise RecordError(f"{path}: is damaged: {type(error).__name__} {error}") from None


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # OSError is clear by itself
        raise RecordError(f"{path}: is not a file of episodes: {error}") from None
    wanted = {"format": str, "card": str, "digest": str, "agent": str, "seed": int, "episodes": list}
    if not isinstance(content, dict) or any(not isinstance(content.get(key), kind) for key, kind in wanted.items()):
        raise RecordError(f"{path}: is not a file of episodes: expected an object with {', '.join(wanted)}")
    if content["format"] != FORMAT:
        raise RecordError(f"{path}: has the format {content['format']!r}, expected {FORMAT!r}")
    return content


def _record(content: dict[str, Any], engine: Engine) -> Record:
    names, organs = list(engine.scenario.regimens), len(engine.scenario.organs)
    rows = content["episodes"]
    if not rows:
        raise RecordError("holds no episode")
    if not 0 <= content["seed"] < 2**64:
        raise RecordError(f"seed = {content['seed']}: expected 0 to 2^64 - 1")
    lengths = [len(row["decisions"]) for row in rows]
    longest = max(lengths)
    for length in (min(lengths), longest):
        if not 1 <= length <= engine.horizon:
            raise RecordError(f"an episode of {length} cycles: expected 1 to {engine.horizon}")
    if longest * len(rows) > MOST:
        raise RecordError(f"holds more than {MOST:,} cycles")
    n = len(rows)
    decisions = np.full((longest, n), -1, np.int32)
    flags = {key: np.zeros((longest, n), bool) for key in ("alive", "scanned", "progressed")}
    figures = {key: np.zeros((longest, n), np.float32) for key in ("diameter_mm", "ctdna_log10")}
    toxicity, severe = np.zeros((longest, organs, n), np.float32), np.zeros((longest, organs, n), bool)
    patients = np.array([_whole(row["patient"]) for row in rows], np.int64)
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        for cycle, name in enumerate(row["decisions"]):
            if name not in names:
                raise RecordError(f"episode {i}, cycle {cycle + 1}: the card has no regimen {name!r}")
            decisions[cycle, i] = names.index(name)
        for key, into in {**flags, **figures}.items():
            into[:length, i] = _numbers(row[key], (length,), f"episode {i}, {key}")
        toxicity[:length, :, i] = _numbers(row["toxicity"], (length, organs), f"episode {i}, toxicity")
        severe[:length, :, i] = _numbers(row["severe"], (length, organs), f"episode {i}, severe") > 0.5
    observed = Observed(
        flags["alive"], flags["scanned"], figures["diameter_mm"], flags["progressed"], figures["ctdna_log10"], toxicity, severe
    )
    return Record(content["agent"], content["seed"], patients, decisions, observed)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10_000_000:
        raise RecordError(f"patient = {value!r}: expected a whole number from 0")
    return value


def _numbers(values: Any, shape: tuple[int, ...], what: str) -> NDArray[np.float64]:
    found = np.asarray(values, float)
    if found.shape != shape or not np.isfinite(found).all():
        raise RecordError(f"{what}: expected {' x '.join(map(str, shape))} numbers")
    return found
