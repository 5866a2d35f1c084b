"""Compares two agents on the same patients with the same chance: how they fare, where they part, and for whom it matters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Agent, Episodes, load_agent, rollout
from onco_gym.agents.observations import ObservationReader
from onco_gym.evaluation.figures import EvaluationError, Runs, known
from onco_gym.evaluation.running import CHUNK
from onco_gym.evaluation.subgroups import Subgroup, find_subgroups
from onco_gym.foundation.intervals import Interval, mean
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.results import Figure, to_plain
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.stamp import Stamp


@dataclass(frozen=True)
class Parting:
    """Patients whose first difference in treatment is the same. Up to it, they are treated alike by both agents.

    Attributes:
        line: lines of therapy started before the decision.
        first, second: the regimens that the agents choose.
        patients: how many they are.
        gain: mean difference in return, first minus second.
        weeks: mean difference in weeks lived.
    """

    line: int
    first: str
    second: str
    patients: int
    gain: Figure
    weeks: Figure


@dataclass(frozen=True)
class HeadToHead:
    """Two agents on the same patients. Differences are first minus second, with 95% intervals.

    Attributes:
        stamp: what it was made with.
        first, second: the agents.
        patients: how many they treated.
        gain: mean difference in return.
        improvement: probability that a patient has a higher return under the first agent. Ties count half.
        qalys: mean difference in quality-adjusted life years.
        weeks: mean difference in weeks lived.
        carbon_kg: mean difference in kg CO2e.
        alike: share of patients whom both treat alike to the end.
        partings: where they part, the most frequent first.
        subgroups: for whom; of the first agent, with the gain over the second.
    """

    stamp: Stamp
    first: str
    second: str
    patients: int
    gain: Figure
    improvement: Figure
    qalys: Figure
    weeks: Figure
    carbon_kg: Figure
    alike: float
    partings: list[Parting]
    subgroups: list[Subgroup]

    def to_json(self) -> dict[str, Any]:
        """Plain values that ``json.dumps`` can write."""
        plain: dict[str, Any] = to_plain(self)
        return plain


def compare(
    engine: Engine,
    first: Agent | str,
    second: Agent | str,
    n: int = 1000,
    seed: int = 0,
    names: tuple[str, str] | None = None,
    progress: Progress = silent,
) -> HeadToHead:
    """Let two agents treat the same patients, with the same chance, and compare them.

    Args:
        engine: the environment.
        first, second: agents, or what :func:`onco_gym.load_agent` takes.
        n: number of patients.
        seed: same seed, same patients, same chance.
        names: what to call the agents; by default their own names, or their classes.
        progress: told after every batch of patients.

    Raises:
        EvaluationError: if ``n`` is below 2.
        AgentError: if an agent does not exist or returns invalid actions.
    """
    if n < 2:
        raise EvaluationError(f"n is {n}, expected at least 2 patients")
    called = names or tuple(one if isinstance(one, str) else type(one).__name__ for one in (first, second))
    starts = range(0, n, CHUNK)
    played: tuple[list[Episodes], list[Episodes]] = ([], [])
    for number, start in enumerate(starts):
        for which, agent in enumerate((first, second)):
            made = load_agent(engine, agent, seed + start) if isinstance(agent, str) else agent
            played[which].append(rollout(engine, made, min(CHUNK, n - start), seed + start, keep_observations=which == 0))
        progress("treating patients", number + 1, len(starts))
    one, other = (Runs.joined([Runs.of(part) for part in parts]) for parts in played)
    gain, weeks = one.returns - other.returns, one.weeks - other.weeks
    where = [_first_difference(engine, *pair) for pair in zip(*played, strict=True)]
    return HeadToHead(
        stamp=engine.stamp,
        first=called[0],
        second=called[1],
        patients=n,
        gain=mean(gain),
        improvement=_share(np.where(gain == 0, 0.5, gain > 0)),
        qalys=mean(one.terms["outcome"] - other.terms["outcome"]),
        weeks=mean(weeks),
        carbon_kg=mean(one.carbon_kg - other.carbon_kg),
        alike=float(np.mean(np.concatenate([some[:, 0] < 0 for some in where]))),
        partings=_partings(engine.scenario.regimens, np.concatenate(where), gain, weeks),
        subgroups=find_subgroups(engine, one, other, seed),
    )


def _share(values: NDArray[np.float64]) -> Interval:
    found = mean(values)
    return Interval(found.value, max(found.low, 0.0), min(found.high, 1.0))


def _first_difference(engine: Engine, one: Episodes, other: Episodes) -> NDArray[np.int64]:
    """(n, 3) line, first's regimen and second's regimen at their first different treatment; -1 for those treated alike."""
    both = min(len(one.given), len(other.given))
    differs = one.given[:both] != other.given[:both]
    at, patients = differs.argmax(0), np.arange(len(one))
    assert one.observations is not None  # rollouts were asked to keep them
    line = ObservationReader(engine.card, engine.kind.fields)(one.observations[at, patients])["line"]
    found = np.stack([line, one.given[at, patients], other.given[at, patients]], 1).astype(np.int64)
    return np.where(differs.any(0)[:, None], found, -1)


def _partings(
    regimens: Sequence[str], where: NDArray[np.int64], gain: NDArray[np.float64], weeks: NDArray[np.float64]
) -> list[Parting]:
    kinds, which, count = np.unique(where, axis=0, return_inverse=True, return_counts=True)
    found = []
    for number in np.argsort(-count, kind="stable"):
        line, first, second = (int(one) for one in kinds[number])
        if line >= 0:
            who, some = which == number, int(count[number])
            figures = (known(mean(values[who]), some) for values in (gain, weeks))
            found.append(Parting(line, regimens[first], regimens[second], some, *figures))
    return found
