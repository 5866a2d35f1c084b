"""Validates a policy file as a server does before it judges it: in the sandbox, on patients whom everyone may see."""

import time
from dataclasses import dataclass

import numpy as np

from onco_gym.agents import Episodes, rollout
from onco_gym.agents.protocol import AgentError
from onco_gym.evaluation.running import CHUNK
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine
from onco_gym.leaderboard import processes
from onco_gym.leaderboard.judging import questions
from onco_gym.leaderboard.runner import PolicyFacts
from onco_gym.leaderboard.sandbox import FEW, TIES, Confined, agreement, dependent

PATIENTS = 64
ALONE = 4
"""Patients who are also asked about one by one."""
SECONDS = 60.0
"""Time for the policy's process."""


@dataclass(frozen=True)
class Validation:
    """What became of a policy file.

    Attributes:
        reason: why it is refused; empty if it is accepted.
        size: bytes.
        facts: what the policy is like; None if it could not be loaded.
        walls: what kept it in, of :data:`onco_gym.leaderboard.confinement.WALLS`; empty if it could not be loaded.
        microseconds: for a decision on one of many patients, sandbox included; None if it is refused.
        judgement: seconds of processor time that a judgement would take, estimated; None if it is refused.
    """

    reason: str
    size: int
    facts: PolicyFacts | None
    walls: tuple[str, ...]
    microseconds: float | None
    judgement: float | None


def validate(engine: Engine, policy: bytes, patients: int, progress: Progress = silent) -> Validation:
    """Load a policy file in the sandbox, let it treat a few patients, and ask about them again in other batches.

    The time of a whole judgement is estimated: the processor time of one decision in a batch as large as a judge's, times the
    number of decisions that a judge asks for, which follows from the visits of the few patients. A policy must leave half of
    a judge's time unused. So a judge does not refuse it for its time either, however busy the machine is.

    Args:
        engine: the environment that it is for.
        policy: the bytes of the file.
        patients: of the board.
        progress: told about every stage.

    Returns:
        Whether it is accepted, or else why not.

    Raises:
        SandboxError: if the sandbox cannot be used here, or this machine is too busy.
    """
    facts, walls = None, tuple[str, ...]()
    try:
        progress("loading the policy", 0, 0)
        with Confined(engine, policy, SECONDS) as confined:
            facts, walls = confined.facts, confined.walls
            progress("treating patients", 0, 0)
            episodes = rollout(engine, confined, PATIENTS, keep_steps=True)
            judgement = _judgement(engine, confined, episodes, patients)
            progress("asking again in other batches", 0, 0)
            microseconds = _asked_again(confined, episodes)
    except AgentError as error:
        return Validation(str(error), len(policy), facts, walls, None, None)
    return Validation("", len(policy), facts, walls, microseconds, judgement)


def _judgement(engine: Engine, confined: Confined, episodes: Episodes, patients: int) -> float:
    """Seconds of processor time that a judgement would take."""
    assert episodes.steps is not None
    rows = np.arange(CHUNK) % len(episodes)
    confined.restart()
    before = confined.seconds
    confined.act(episodes.steps.observations[0, rows], episodes.steps.masks[0, rows])
    each = (confined.seconds - before) / (CHUNK + FEW)
    asked = questions(engine, patients, len(episodes.actions), float(episodes.steps.lengths.mean()), confined.remembers)
    most = processes.SHARE * processes.ALL_SECONDS
    if each * asked > most:
        told = f"{1e6 * each:,.0f} µs for each of about {asked:,.0f} decisions"
        raise AgentError(
            f"the policy takes too long: a judgement would take {each * asked:,.0f} s, {told}, expected at most {most:g} s"
        )
    return each * asked


def _asked_again(confined: Confined, episodes: Episodes) -> float:
    """Ask about every visit again: shuffled, in halves, and about some patients one by one. Microseconds for a decision."""
    n, steps = len(episodes), episodes.steps
    assert steps is not None
    everybody, alone = np.random.default_rng(0).permutation(n), np.arange(min(ALONE, n))[:, None]
    asked, differed, begun = 0, 0, time.perf_counter()
    for rows in (everybody, *np.array_split(np.arange(n), 2), *alone):
        confined.restart()
        for number, actions in enumerate(episodes.actions):
            again = confined.act(steps.observations[number, rows], steps.masks[number, rows])
            differs = ~agreement(actions[rows], again) & (number < steps.lengths[rows])
            asked, differed = asked + len(rows), differed + int(differs.sum())
    if differed > TIES * asked:
        raise dependent(differed, asked)
    return 1e6 * (time.perf_counter() - begun) / asked
