"""Compare a policy's answers for every visited state of every patient with its answers for their twins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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

Compared = NDArray[Any]
"""(m,) comparisons of a patient's state with a twin's; see :data:`FIELDS`."""
FIELDS = np.dtype(
    [
        ("attribute", np.int8),  # number of the attribute in which the twin differs
        ("patient", np.int32),  # number of the patient
        ("step", np.int16),  # step of the episode
        ("group", np.int8),  # the patient's group
        ("value", np.int8),  # the twin's group
        ("case", bool),  # whether a line was due to start; see onco_gym.fairness.need.Guide
        ("stratum", np.int16),  # stratum of need
        ("nats", np.float32),  # Jensen-Shannon divergence between the answers
        ("chance", np.float32),  # the divergence that chance alone would show
        ("moved", np.float32),  # total variation between the answers, or how often draws differ
        ("followed", np.float32),  # probability that the twin gets the guideline's first choice; NaN where the twin is no case
        ("draws", np.int16, 4),  # regimens drawn twice for the patient and twice for the twin; 0 with distributions
    ]
)


def divergence(some: Compared) -> Interval:
    """Mean Jensen-Shannon divergence in nats, minus what chance alone would show."""
    return mean_by_patient(some["patient"], some["nats"] - some["chance"])


def changed(some: Compared, group: int | None = None) -> Interval:
    """The share of decisions that differ between patient and twin.

    For distributions, or a policy that never contradicts itself, this is the mean total variation. Otherwise it is the
    total variation between answers that are pooled within strata of equal need, by pair of groups. If a ``group`` is
    given, it is compared with all others together. One draw says which regimens are chosen more often, the other how
    much more often, so chance adds nothing.
    """
    if not some["chance"].any():
        return mean_by_patient(some["patient"], some["moved"])
    one, other = some["draws"].T[:2].astype(np.int64), some["draws"].T[2:].astype(np.int64)
    cell = some["stratum"].astype(np.int64)
    if group is None:
        cell = (cell * (int(some["value"].max()) + 1) + some["value"]) * (int(some["group"].max()) + 1) + some["group"]
    else:
        swap = some["group"] == group
        one, other = np.where(swap, other, one), np.where(swap, one, other)
    width = int(some["draws"].max()) + 1
    at_one, at_other = cell * width + one, cell * width + other
    size = int(max(at_one.max(), at_other.max())) + 1
    halves = []
    for draw in range(2):
        sign = np.sign(np.bincount(at_other[draw], minlength=size) - np.bincount(at_one[draw], minlength=size))
        halves.append(mean_by_patient(some["patient"], 0.5 * (sign[at_other[1 - draw]] - sign[at_one[1 - draw]])))
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

    twins: dict[str, Compared]
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
    visits = []
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
    compared, lost, visited, patient, followed = zip(*visits, strict=True)
    return Comparison(
        {name: np.concatenate([part[part["attribute"] == i] for part in compared]) for i, name in enumerate(attributes)},
        dict(zip(attributes, np.sum(lost, axis=0).tolist(), strict=True)),
        sum(visited),
        np.concatenate(patient),
        np.concatenate(followed),
        start,
        groups,
    )


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
        which = [np.full(len(twin.who), attributes.index(twin.attribute)) for twin in twins]
        self._attribute, self._attributes = np.concatenate(which), len(attributes)  # (m,) number of the attribute

    def visit(self, step: int, given: NDArray[np.int32]) -> tuple[Compared, NDArray[np.intp], int, NDArray[Any], NDArray[Any]]:
        """Ask about all patients who are ``given`` (k,) something at this step, and about their twins.

        Returns:
            The comparisons; how many could not be made, by attribute; the number of patients; and the patient of each case
            with the probability of the guideline's first choice.
        """
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
        every = np.zeros(len(some), FIELDS)
        every["attribute"], every["patient"], every["step"] = self._attribute[some], self._who[whose[some]], step
        every["group"], every["value"] = self._own[some], self._value[some]
        every["case"], every["stratum"], every["followed"] = needs.case[at], needs.stratum[at], follows[len(here) :]
        every["nats"], every["chance"], every["moved"] = apart(one, reply)
        if not policy.exact:
            every["draws"] = np.concatenate([one.regimens, reply.regimens]).T
        lost = np.bincount(self._attribute[dead], minlength=self._attributes)
        return every, lost, len(here), self._who[here[cases]].astype(np.int32), follows[cases].astype(np.float32)

    def move(self, actions: NDArray[Any], given: NDArray[np.int32]) -> NDArray[np.float64]:
        """Move to the next visit. Returns (k,) the present cycle where an anti-cancer regimen is given, else infinity."""
        cycle = self._replay.cycle
        got = self._replay.move(actions, given)
        return np.where((given >= 0) & self._active[got], cycle, np.inf)
