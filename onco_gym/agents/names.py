"""Agents by name, for every kind of environment."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.adaptive import AdaptiveDose, ConstantDose, GuidelineDose, dosed
from onco_gym.agents.clinician import ClinicianAgent
from onco_gym.agents.protocol import Agent, AgentError
from onco_gym.agents.simple import ConstantAgent, GuidelineAgent, Masks, Observations, RandomAgent
from onco_gym.agents.workflow import WorkflowAgent
from onco_gym.cards import Card
from onco_gym.cards.scenario import scenario
from onco_gym.interfaces.workflow import action_parts


def make_agent(name: str, card: Card, seed: int = 0, kind: str = "regimen") -> Agent:
    """An agent by name.

    Args:
        name: ``random``, ``guideline``, ``clinician``, or a regimen's name for the constant agent; the clinician is for plain
            environments only. For dosing also ``adaptive:REGIMEN``; for the workflow ``guideline`` orders what is indicated,
            and ``never`` and ``everything`` test otherwise.
        card: the card.
        seed: of agents that draw.
        kind: of environment, as :data:`onco_gym.interfaces.engine.KINDS` has it.

    Raises:
        AgentError: for a name that means nothing there.
    """
    agent = {"regimen": _regimens, "dose": _doses, "workflow": _workflows}[kind](name, card, seed)
    if agent is None:
        regimens = ["clinician", *scenario(card).regimens]
        known = {"regimen": regimens, "dose": [*dosed(card), "adaptive:REGIMEN"], "workflow": WAYS[1:]}[kind]
        raise AgentError(f"there is no agent {name!r}; expected random, guideline, or one of {', '.join(known)}")
    return agent


WAYS = ("guideline", "never", "everything")


def _regimens(name: str, card: Card, seed: int) -> Agent | None:
    if name == "random":
        return RandomAgent(seed)
    if name == "guideline":
        return GuidelineAgent(card)
    if name == "clinician":
        return ClinicianAgent(card, seed)
    return ConstantAgent(card, name) if name in scenario(card).regimens else None


def _doses(name: str, card: Card, seed: int) -> Agent | None:
    if name == "random":
        return _RandomDose(seed)
    if name == "guideline":
        return GuidelineDose(card)
    if name.startswith("adaptive:"):
        return AdaptiveDose(card, name.removeprefix("adaptive:"), then=GuidelineDose(card))
    return ConstantDose(card, name) if name in dosed(card) else None


def _workflows(name: str, card: Card, seed: int) -> Agent | None:
    if name == "random":
        return _RandomParts(seed, list(action_parts(card).values()))
    if name == "guideline":
        return WorkflowAgent(card, "indicated")
    return WorkflowAgent(card, name) if name in ("never", "everything") else None  # type: ignore[arg-type] # just checked


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
