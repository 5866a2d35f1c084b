"""Agents: one protocol, and the agents every board has."""

from onco_gym.agents.protocol import Agent, AgentError
from onco_gym.agents.rollout import Episodes, rollout
from onco_gym.agents.simple import ConstantAgent, GuidelineAgent, RandomAgent, make_agent

__all__ = [
    "Agent",
    "AgentError",
    "ConstantAgent",
    "Episodes",
    "GuidelineAgent",
    "RandomAgent",
    "make_agent",
    "rollout",
]
