"""How the named agents are made for an engine; see :mod:`onco_gym.agents.names`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import names
from onco_gym.agents.adaptive import AdaptiveDose, ConstantDose, GuidelineDose
from onco_gym.agents.clinician import ClinicianAgent
from onco_gym.agents.observations import Masks, Observations
from onco_gym.agents.planner import PlannerAgent
from onco_gym.agents.protocol import Agent
from onco_gym.agents.simple import ConstantAgent, GuidelineAgent, RandomAgent
from onco_gym.agents.workflow import WorkflowAgent
from onco_gym.interfaces.engine import Engine


def make_named(engine: Engine, name: str, regimen: str = "", seed: int = 0) -> Agent:
    """The agent that :data:`onco_gym.agents.names.NAMED` calls ``name``, for an engine of a kind that it can act in.

    Args:
        engine: the environment.
        name: as in the table, with :data:`onco_gym.agents.names.REGIMEN` for the name of a regimen.
        regimen: the regimen.
        seed: the seed of agents that choose at random.
    """
    card, kind = engine.card, engine.kind.name
    match name, kind:
        case "random", _:
            sizes = list(engine.kind.parts.values())
            return _RandomDose(seed) if not sizes else RandomAgent(seed) if len(sizes) == 1 else _RandomParts(seed, sizes)
        case "guideline", "regimen":
            return GuidelineAgent(card)
        case "guideline", "dose":
            return GuidelineDose(card)
        case "guideline", _:
            return WorkflowAgent(card)
        case "clinician", _:
            return ClinicianAgent(card, seed)
        case "planner", _:
            return PlannerAgent(engine, seed=seed)
        case (("never" | "everything" as testing), _):
            return WorkflowAgent(card, testing)
        case names.REGIMEN, _:
            return (ConstantDose if kind == "dose" else ConstantAgent)(card, regimen)
    return AdaptiveDose(card, regimen, then=GuidelineDose(card))


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
