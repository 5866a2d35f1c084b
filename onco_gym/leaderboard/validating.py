"""Validates a policy file as a server does before it judges it: in the sandbox, on patients whom everyone may see."""

import time
from dataclasses import dataclass

import numpy as np

from onco_gym.agents import Episodes, rollout
from onco_gym.agents.protocol import AgentError
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine
from onco_gym.leaderboard.runner import PolicyFacts
from onco_gym.leaderboard.sandbox import TIES, Confined, agreement, dependent

PATIENTS = 64
ALONE = 4
"""Patients who are also asked about one by one."""


@dataclass(frozen=True)
class Validation:
    """What became of a policy file.

    Attributes:
        reason: why it is refused; empty if it is accepted.
        size: bytes.
        facts: what the policy is like; None if it could not be loaded.
        walls: what kept it in, of :data:`onco_gym.leaderboard.confinement.WALLS`; empty if it could not be loaded.
        microseconds: for a decision on one of many patients, sandbox included; None if it is refused.
    """

    reason: str
    size: int
    facts: PolicyFacts | None
    walls: tuple[str, ...]
    microseconds: float | None


def validate(engine: Engine, policy: bytes, progress: Progress = silent) -> Validation:
    """Load a policy file in the sandbox, let it treat a few patients, and ask about them again in other batches.

    Args:
        engine: the environment that it is for.
        policy: the bytes of the file.
        progress: told about every stage.

    Returns:
        Whether it is accepted, or else why not.

    Raises:
        SandboxError: if the sandbox cannot be used here.
    """
    facts, walls = None, tuple[str, ...]()
    try:
        progress("loading the policy", 0, 0)
        with Confined(engine, policy) as confined:
            facts, walls = confined.facts, confined.walls
            progress("treating patients", 0, 0)
            episodes = rollout(engine, confined, PATIENTS, keep_steps=True)
            progress("asking again in other batches", 0, 0)
            microseconds = _asked_again(confined, episodes)
    except AgentError as error:
        return Validation(str(error), len(policy), facts, walls, None)
    return Validation("", len(policy), facts, walls, microseconds)


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
