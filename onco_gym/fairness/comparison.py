"""Compare a policy's answers for every visited state of every patient with its answers for their twins."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Episodes
from onco_gym.fairness.asking import Policy, apart
from onco_gym.fairness.counterfactual import Effect
from onco_gym.fairness.need import Guide
from onco_gym.fairness.replay import Replay, Twin
from onco_gym.foundation.intervals import Interval, both_halves, mean_by_patient
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.origins import Origin

BLOCK = 5000
"""Patients replayed at a time, with a dozen twins each. This bounds memory."""


@dataclass(frozen=True, eq=False)
class Comparisons:
    """m comparisons of a patient's state with a twin's, in no particular order.

    Attributes:
        patient: (m,) number of the patient.
        step: (m,) step of the episode.
        group: (m,) the patient's group.
        value: (m,) the twin's group.
        case: (m,) whether a line was due to start; see :class:`onco_gym.fairness.need.Guide`.
        stratum: (m,) stratum of need.
        nats: (m,) Jensen-Shannon divergence between the answers.
        chance: (m,) the divergence that chance alone would show.
        moved: (m,) total variation between the answers, or how often draws differ.
        followed: (m,) probability that the twin's answer is the guideline's first choice; NaN where the twin is not a case.
        draws: (4, m) regimens drawn twice for the patient and twice for the twin; (0, m) with distributions.
    """

    patient: NDArray[np.int32]
    step: NDArray[np.int16]
    group: NDArray[np.int8]
    value: NDArray[np.int8]
    case: NDArray[np.bool_]
    stratum: NDArray[np.int16]
    nats: NDArray[np.float32]
    chance: NDArray[np.float32]
    moved: NDArray[np.float32]
    followed: NDArray[np.float32]
    draws: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.patient)

    def where(self, rows: NDArray[np.bool_] | slice) -> "Comparisons":
        """The comparisons at ``rows``."""
        return Comparisons(*(getattr(self, field.name)[..., rows] for field in fields(self)))

    def divergence(self) -> Interval:
        """Mean Jensen-Shannon divergence in nats, minus what chance alone would show."""
        return mean_by_patient(self.patient, self.nats - self.chance)

    def changed(self, group: int | None = None) -> Interval:
        """The share of decisions that differ between patient and twin.

        For distributions, or a policy that never contradicts itself, this is the mean total variation. Otherwise it is the
        total variation between answers that are pooled within strata of equal need, by pair of groups. If a ``group`` is
        given, it is compared with all others together. One draw says which regimens are chosen more often, the other how
        much more often, so chance adds nothing.
        """
        if not len(self.draws) or not self.chance.any():
            return mean_by_patient(self.patient, self.moved)
        one, other = self.draws[:2].astype(np.int64), self.draws[2:].astype(np.int64)
        cell = self.stratum.astype(np.int64)
        if group is None:
            cell = (cell * (int(self.value.max()) + 1) + self.value) * (int(self.group.max()) + 1) + self.group
        else:
            swap = self.group == group
            one, other = np.where(swap, other, one), np.where(swap, one, other)
        width = int(self.draws.max()) + 1
        at_one, at_other = cell * width + one, cell * width + other
        size = int(max(at_one.max(), at_other.max())) + 1
        halves = []
        for draw in range(2):
            sign = np.sign(np.bincount(at_other[draw], minlength=size) - np.bincount(at_one[draw], minlength=size))
            halves.append(mean_by_patient(self.patient, 0.5 * (sign[at_other[1 - draw]] - sign[at_one[1 - draw]])))
        return both_halves(*halves)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The answers of a policy for n patients and all their twins.

    Attributes:
        twins: comparisons by attribute.
        lost: by attribute, comparisons that could not be made because the twin had died.
        visits: number of visited states.
        patient, followed: (cases,) the patient of each case, and the probability of the guideline's first choice.
        start: (n,) cycle in which an anti-cancer regimen was first given; infinite where none was.
        groups: name to (n,) group of each protected attribute.
    """

    twins: dict[str, Comparisons]
    lost: dict[str, int]
    visits: int
    patient: NDArray[np.int32]
    followed: NDArray[np.float32]
    start: NDArray[np.float64]
    groups: dict[str, NDArray[np.int64]]


def compare(
    engine: Engine, policy: Policy, episodes: Episodes, attributes: Sequence[str], effect: Effect, progress: Progress = silent
) -> Comparison:
    """Replay ``episodes`` with all twins alongside, and ask the policy about all of them at every visit.

    Args:
        engine: the compiled environment.
        policy: the policy to ask.
        episodes: the episodes of n patients.
        attributes: attributes to make twins for, one in every other group.
        effect: what changes together with the attribute.
        progress: called after every step.
    """
    n = len(episodes)
    start = np.full(n, np.inf)
    codes = np.rint(np.asarray(engine.patients(episodes.origin.row).groups)).astype(np.int64)
    groups = {name: codes[number] for number, (name, _) in enumerate(engine.scenario.groups)}
    blocks = -(-n // BLOCK)
    size, steps = -(-n // blocks), len(episodes.actions)
    visits: list[_Visit] = []
    for block in range(blocks):
        # All blocks have one size, so that they are compiled once. The last one repeats a patient, who is not counted again.
        who = np.minimum(np.arange(block * size, (block + 1) * size), n - 1)
        given = np.where(np.arange(block * size, (block + 1) * size) < n, episodes.given[:, who], -1)
        walk = _Block(engine, policy, episodes.origin, who, groups, attributes, effect)
        for step in range(steps):
            visits.append(walk.visit(step, given[step]))
            begun = walk.move(episodes.actions[step][who], given[step])
            np.minimum.at(start, who, begun)
            progress(f"twins, {effect} effect", block * steps + step + 1, blocks * steps)
    return Comparison(
        {name: _joined([visit.twins[number] for visit in visits]) for number, name in enumerate(attributes)},
        {name: sum(visit.lost[number] for visit in visits) for number, name in enumerate(attributes)},
        sum(visit.visited for visit in visits),
        np.concatenate([visit.patient for visit in visits]),
        np.concatenate([visit.followed for visit in visits]),
        start,
        groups,
    )


class _Visit(NamedTuple):
    """One step of one block; see :class:`Comparison`."""

    twins: list[Comparisons]  # by attribute
    lost: list[int]  # by attribute
    visited: int
    patient: NDArray[np.int32]
    followed: NDArray[np.float32]


class _Block:
    """The patients ``who`` (k,) of n, and their m twins."""

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        origin: Origin,
        who: NDArray[np.intp],
        groups: Mapping[str, NDArray[np.int64]],
        attributes: Sequence[str],
        effect: Effect,
    ) -> None:
        self._policy, self._who, self._guide = policy, who, Guide(engine.card)
        self._active = np.asarray(engine.params.active) > 0.5
        levels = dict(engine.scenario.groups)
        twins = [
            Twin(name, group, np.flatnonzero(groups[name][who] != group))
            for name in attributes
            for group in range(len(levels[name]))
        ]
        self._replay = Replay(engine, origin.take(who), [twin for twin in twins if len(twin.who)], effect)
        self._own = np.concatenate([groups[twin.attribute][who][twin.who] for twin in twins])  # (m,) group of the patient
        self._value = np.concatenate([np.full(len(twin.who), twin.group) for twin in twins])  # (m,) group of the twin
        counts = [sum(len(twin.who) for twin in twins if twin.attribute == name) for name in attributes]
        self._bounds = np.cumsum([0, *counts])  # boundaries of the attributes among the m

    def visit(self, step: int, given: NDArray[np.int32]) -> _Visit:
        """Ask about all patients who are ``given`` (k,) something at this step, and about their twins."""
        policy, guide, whose = self._policy, self._guide, self._replay.who
        seen, twins = self._replay.look(), self._replay.look_at_twins()
        there = (given >= 0) & seen.alive
        here, dead = np.flatnonzero(there), there[whose] & ~twins.alive
        some = np.flatnonzero(there[whose] & twins.alive)
        observation, mask, can = (
            np.concatenate([one[here], other[some]]) for one, other in zip(seen[:3], twins[:3], strict=True)
        )
        needs, answers = guide.needs(observation, can), policy.ask(observation, mask)
        follows = np.where(needs.case, answers.chance_of(needs.first), np.nan)
        at = (np.cumsum(there) - 1)[whose[some]]  # index of each twin's patient among those here
        one, reply = answers.take(at), answers.take(np.arange(len(here), len(observation)))
        cases = np.flatnonzero(needs.case[: len(here)])
        every = _comparisons(
            *(self._who[whose[some]], np.full(len(some), step), self._own[some], self._value[some]),
            *(needs.case[at], needs.stratum[at], *apart(one, reply)),
            *(follows[len(here) :], np.concatenate([one.regimens, reply.regimens])),
        )
        cuts = np.searchsorted(some, self._bounds)
        return _Visit(
            [every.where(slice(low, high)) for low, high in itertools.pairwise(cuts)],
            [int(dead[low:high].sum()) for low, high in itertools.pairwise(self._bounds)],
            len(here),
            self._who[here[cases]].astype(np.int32),
            follows[cases].astype(np.float32),
        )

    def move(self, actions: NDArray[Any], given: NDArray[np.int32]) -> NDArray[np.float64]:
        """Move to the next visit. Returns (k,) the present cycle where an anti-cancer regimen is given, else infinity."""
        cycle = self._replay.cycle
        got = self._replay.move(actions, given)
        return np.where((given >= 0) & self._active[got], cycle, np.inf)


def _comparisons(*columns: NDArray[Any]) -> Comparisons:
    kinds = (np.int32, np.int16, np.int8, np.int8, bool, np.int16, *[np.float32] * 4, np.int16)
    return Comparisons(*(column.astype(kind) for column, kind in zip(columns, kinds, strict=True)))


def _joined(parts: list[Comparisons]) -> Comparisons:
    return Comparisons(*(np.concatenate([getattr(part, field.name) for part in parts], -1) for field in fields(Comparisons)))
