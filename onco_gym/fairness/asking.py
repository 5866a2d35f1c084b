"""Ask a policy about patients and their twins, and measure how far its two answers are apart.

A policy with ``probabilities`` answers with a distribution. Any other policy is asked twice about each observation. How often it
contradicts itself shows how much of the difference between patient and twin is chance.
"""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.error import InvalidAction
from numpy.typing import NDArray
from scipy.special import rel_entr

from onco_gym.agents import Agent, AgentError
from onco_gym.agents.protocol import remembers
from onco_gym.interfaces.engine import Engine

BATCH = 1024
"""Questions are padded to a multiple of this many rows, so that agents compiled by JAX see few shapes."""
DOSE_STEPS = 10
"""Doses are rounded to a tenth of the standard dose before answers are compared."""


class Answer(NamedTuple):
    """A policy's answer for n patients: a distribution or two draws for each."""

    chances: NDArray[np.float64] | None  # (n, R)
    codes: NDArray[np.int64]  # (2, n) complete actions encoded as numbers; (0, n) with a distribution
    regimens: NDArray[np.int64]  # (2, n) the regimens in them

    def take(self, rows: NDArray[np.intp]) -> "Answer":
        """The answer for ``rows``."""
        chances = None if self.chances is None else self.chances[rows]
        return Answer(chances, self.codes[:, rows], self.regimens[:, rows])

    def chance_of(self, regimen: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) probability of each ``regimen`` (n,), estimated from the draws if there is no distribution."""
        if self.chances is not None:
            return self.chances[np.arange(len(regimen)), regimen]
        return (self.regimens == regimen).mean(0)


class Apart(NamedTuple):
    """How far two answers are apart, for n patients."""

    nats: NDArray[np.float64]  # (n,) Jensen-Shannon divergence, at most log 2
    chance: NDArray[np.float64]  # (n,) what chance alone would show, in nats; 0 with distributions
    moved: NDArray[np.float64]  # (n,) total variation, the share of the decision that changes; with draws, how often they differ


class Policy:
    """An agent that can be asked about any patients.

    Args:
        engine: the compiled environment.
        agent: see :class:`onco_gym.agents.Agent`. It is asked out of turn, so it must not remember patients between calls.
    """

    def __init__(self, engine: Engine, agent: Agent) -> None:
        if not callable(getattr(agent, "act", None)):
            raise AgentError(f"{type(agent).__name__} is not an agent: it has no act(observation, mask)")
        if remembers(agent):
            raise AgentError(f"{type(agent).__name__} remembers its patients, so it cannot be asked about their twins")
        self._agent, self._kind = agent, engine.kind
        self._regimens = len(engine.scenario.regimens)
        self._probabilities = getattr(agent, "probabilities", None) if len(self._kind.parts) == 1 else None
        self.exact = self._probabilities is not None

    def ask(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> Answer:
        """The answer for n patients with ``observation`` (n, F) and ``mask`` (n, mask size)."""
        n = len(observation)
        if not n:
            chances, nothing = (np.zeros((0, self._regimens)), 0) if self.exact else (None, 2)
            return Answer(chances, *2 * (np.zeros((nothing, 0), np.int64),))
        rows = np.minimum(np.arange(-(-n // BATCH) * BATCH), n - 1)
        observation, mask = observation[rows], mask[rows]
        if self._probabilities is not None:
            told = self._checked(self._probabilities(observation, mask), mask.shape)[:n]
            return Answer(told, *2 * (np.zeros((0, n), np.int64),))
        codes, regimens = zip(*(self._draw(observation, mask) for _ in range(2)), strict=True)
        return Answer(None, np.stack(codes)[:, :n], np.stack(regimens)[:, :n])

    def _checked(self, chances: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
        values = np.asarray(chances, float)
        if values.shape != shape or not (np.all(values >= -1e-6) and np.all(np.abs(values.sum(1) - 1) < 1e-3)):
            expected = f"{shape} numbers from 0 to 1 that add up to 1"
            raise AgentError(f"the agent's probabilities, of shape {values.shape}, are invalid: expected {expected}")
        return np.maximum(values, 0) / np.maximum(values, 0).sum(1, keepdims=True)

    def _draw(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """((n,) complete actions encoded as numbers, (n,) the regimens in them)."""
        try:
            actions = self._kind.checked(self._agent.act(observation, mask), len(observation))
        except InvalidAction as error:
            raise AgentError(f"the agent gave an invalid action: {error}") from None
        regimens, sizes = self._kind.regimens(actions), tuple(self._kind.parts.values())
        if not sizes:
            return regimens * (DOSE_STEPS + 1) + np.rint(actions.max(1) * DOSE_STEPS).astype(np.int64), regimens
        return np.ravel_multi_index(tuple(actions.reshape(len(actions), -1).T), sizes).astype(np.int64), regimens


def apart(one: Answer, other: Answer) -> Apart:
    """How far the answers for n patients and for their twins are apart."""
    if one.chances is not None and other.chances is not None:
        return Apart(jensen_shannon(one.chances, other.chances), np.zeros(len(one.chances)), moved(one.chances, other.chances))
    differ = (one.codes[:, None] != other.codes[None]).mean((0, 1))
    own = 0.5 * (one.codes[0] != one.codes[1]) + 0.5 * (other.codes[0] != other.codes[1])
    return Apart(np.log(2) * differ, np.log(2) * own, differ)


def jensen_shannon(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) nats, the Jensen-Shannon divergence between distributions ``p`` and ``q`` (n, R): 0 if equal, log 2 if disjoint."""
    result = np.zeros(len(p))
    rows = np.flatnonzero((p != q).any(1))
    middle = 0.5 * (p[rows] + q[rows])
    result[rows] = 0.5 * (rel_entr(p[rows], middle) + rel_entr(q[rows], middle)).sum(1)
    return np.clip(result, 0.0, np.log(2))


def moved(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) total variation distance: the share of decisions that change between ``p`` and ``q`` (n, R)."""
    return 0.5 * np.abs(p - q).sum(1)
