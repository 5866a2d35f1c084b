"""How the named agents are made for an engine; see :mod:`onco_gym.agents.names`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.adaptive import AdaptiveDose, ConstantDose, GuidelineDose
from onco_gym.agents.clinician import ClinicianAgent
from onco_gym.agents.observations import Masks, Observations
from onco_gym.agents.planner import PlannerAgent
from onco_gym.agents.protocol import Agent
from onco_gym.agents.simple import ConstantAgent, GuidelineAgent, RandomAgent
from onco_gym.agents.workflow import WorkflowAgent
from onco_gym.interfaces.engine import Engine


def random(engine: Engine, regimen: str, seed: int) -> Agent:
    """Random choices among what the mask allows; random intensities where actions are doses."""
    sizes = list(engine.kind.parts.values())
    if not sizes:
        return _RandomDose(seed)
    return RandomAgent(seed) if len(sizes) == 1 else _RandomParts(seed, sizes)


def guideline(engine: Engine, regimen: str, seed: int) -> Agent:
    """The card's guideline."""
    if engine.kind.name == "workflow":
        return WorkflowAgent(engine.card)
    return GuidelineDose(engine.card) if engine.kind.name == "dose" else GuidelineAgent(engine.card)


def clinician(engine: Engine, regimen: str, seed: int) -> Agent:
    """The simulated clinician."""
    return ClinicianAgent(engine.card, seed)


def planner(engine: Engine, regimen: str, seed: int) -> Agent:
    """The closed-loop planner."""
    return PlannerAgent(engine, seed=seed)


def constant(engine: Engine, regimen: str, seed: int) -> Agent:
    """The same regimen in every cycle."""
    return (ConstantDose if engine.kind.name == "dose" else ConstantAgent)(engine.card, regimen)


def adaptive(engine: Engine, regimen: str, seed: int) -> Agent:
    """Adaptive therapy, with the guideline after progression."""
    return AdaptiveDose(engine.card, regimen, then=GuidelineDose(engine.card))


def never(engine: Engine, regimen: str, seed: int) -> Agent:
    """The guideline without tests."""
    return WorkflowAgent(engine.card, "never")


def everything(engine: Engine, regimen: str, seed: int) -> Agent:
    """The guideline with every test."""
    return WorkflowAgent(engine.card, "everything")


class _RandomDose:
    """Any intensity of any regimen that can be given."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def act(self, observation: Observations, mask: Masks) -> NDArray[Any]:
        return self._rng.random(mask.shape, np.float32) * mask


class _RandomParts:
    """Anything that can be chosen, part by part of the action."""

    def __init__(self, seed: int, sizes: list[int]) -> None:
        self._agent, self._ends = RandomAgent(seed), np.cumsum(sizes)[:-1]

    def act(self, observation: Observations, mask: Masks) -> NDArray[Any]:
        return np.stack([self._agent.act(observation, part) for part in np.split(mask, self._ends, axis=1)], 1)
