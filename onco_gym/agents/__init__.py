"""Agents: one protocol, and the agents every board has."""

from onco_gym.agents.adaptive import AdaptiveDose, ConstantDose, GuidelineDose
from onco_gym.agents.clinician import ClinicianAgent
from onco_gym.agents.files import OnnxAgent, Sb3Agent, export, load_agent, save_mlp_onnx
from onco_gym.agents.names import make_agent
from onco_gym.agents.protocol import Agent, AgentError
from onco_gym.agents.rollout import Episodes, play, rollout
from onco_gym.agents.simple import ConstantAgent, GuidelineAgent, RandomAgent
from onco_gym.agents.workflow import WorkflowAgent

__all__ = [
    "AdaptiveDose",
    "Agent",
    "AgentError",
    "ClinicianAgent",
    "ConstantAgent",
    "ConstantDose",
    "Episodes",
    "GuidelineAgent",
    "GuidelineDose",
    "OnnxAgent",
    "RandomAgent",
    "Sb3Agent",
    "WorkflowAgent",
    "export",
    "load_agent",
    "make_agent",
    "play",
    "rollout",
    "save_mlp_onnx",
]
