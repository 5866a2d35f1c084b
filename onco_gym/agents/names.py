"""The agents that have a name. A table of plain text, so that command lines can show it without importing anything heavy."""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onco_gym.agents.protocol import Agent

if TYPE_CHECKING:
    from onco_gym.interfaces.engine import Engine

REGIMEN = "REGIMEN"
"""Stands for the name of a regimen in the name of an agent."""


@dataclass(frozen=True)
class NamedAgent:
    """An agent that can be asked for by name.

    Attributes:
        name: its name; :data:`REGIMEN` in it stands for the name of a regimen.
        kinds: the kinds of environment that it can act in.
        about: what it does.
        entry_point: ``module:function``, which is called with engine, regimen (empty if the name has none) and seed.
    """

    name: str
    kinds: tuple[str, ...]
    about: str
    entry_point: str

    def make(self, engine: "Engine", regimen: str, seed: int) -> Agent:
        """The agent for ``engine``."""
        module, _, function = self.entry_point.partition(":")
        made: Agent = getattr(importlib.import_module(module), function)(engine, regimen, seed)
        return made


_MAKERS = "onco_gym.agents.makers"
NAMED = (
    NamedAgent("random", ("regimen", "dose", "workflow"), "any possible action, with equal chance", f"{_MAKERS}:random"),
    NamedAgent("guideline", ("regimen", "dose", "workflow"), "follows the card's guideline", f"{_MAKERS}:guideline"),
    NamedAgent("clinician", ("regimen",), "the guideline with practice variation and known disparities", f"{_MAKERS}:clinician"),
    NamedAgent("planner", ("regimen",), "tries each regimen on simulated look-alikes; slow", f"{_MAKERS}:planner"),
    NamedAgent(REGIMEN, ("regimen", "dose"), "this regimen in every cycle, as in 'osimertinib'", f"{_MAKERS}:constant"),
    NamedAgent(f"adaptive:{REGIMEN}", ("dose",), "adaptive therapy with this regimen", f"{_MAKERS}:adaptive"),
    NamedAgent("never", ("workflow",), "the guideline's regimens, without any test", f"{_MAKERS}:never"),
    NamedAgent("everything", ("workflow",), "the guideline's regimens, with every test at every visit", f"{_MAKERS}:everything"),
)
"""Every agent that has a name."""


def describe_agents() -> str:
    """What an AGENT can be, one line each, for help texts."""
    every = {kind for one in NAMED for kind in one.kinds}
    rows = [(one.name, f"{one.about}{_limits(one, every)}") for one in NAMED]
    rows += [
        ("FILE.onnx", "a policy file"),
        ("FILE.zip", "a model of Stable-Baselines3; it is unpickled, so use one you trust"),
        ("MODULE:OBJECT", "an agent of your own, or a class or function that makes one from the card"),
    ]
    return "\n".join(f"  {name:<18} {about}" for name, about in rows)


def _limits(agent: NamedAgent, every: set[str]) -> str:
    return "" if set(agent.kinds) == every else f" ({' and '.join(agent.kinds)} environments)"
