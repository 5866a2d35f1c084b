"""Agents from outside: by name, from a file, or from a module of your own."""

import importlib
import os
import sys

from onco_gym.agents.names import make_agent
from onco_gym.agents.onnxfile import Normalisation, OnnxAgent, save_mlp_onnx
from onco_gym.agents.planner import PlannerAgent
from onco_gym.agents.protocol import Agent, AgentError
from onco_gym.agents.sb3 import Sb3Agent, export
from onco_gym.interfaces.engine import Engine

__all__ = ["Normalisation", "OnnxAgent", "Sb3Agent", "export", "load_agent", "save_mlp_onnx"]


def load_agent(text: str, engine: Engine, seed: int = 0) -> Agent:
    """An agent of any origin.

    Args:
        text: a name, as :func:`onco_gym.agents.make_agent` has them, or ``planner``; ``path.onnx``, a policy file;
            ``path.zip``, a model of Stable-Baselines3, which is unpickled and therefore for trusted, local files only; or
            ``module:object``, an agent, or a class or function that makes one from the card. Modules in the current directory
            are found too; importing one runs it.
        engine: the environment that it is for.
        seed: of agents that draw.

    Raises:
        AgentError: with what was expected.
    """
    if text.endswith(".onnx"):
        return OnnxAgent(text, engine)
    if text.endswith(".zip"):
        return Sb3Agent.load(text, engine)
    if ":" in text and not text.startswith("adaptive:"):  # that one is a name
        return _imported(text, engine)
    if text == "planner":
        return PlannerAgent(engine, seed=seed)
    try:
        return make_agent(text, engine.card, seed, engine.kind_name)
    except AgentError as error:
        raise AgentError(f"{error}; or planner, a file (.onnx, .zip) or module:object") from None


def _imported(text: str, engine: Engine) -> Agent:
    module, _, name = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    importlib.invalidate_caches()  # the file may be younger than the process
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the module raises
        raise AgentError(f"module {module!r} of {text!r} cannot be imported: {type(error).__name__}: {error}") from None
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise AgentError(f"module {module!r} has no {name!r}") from None
    return _made(found, text, engine)


def _made(found: object, text: str, engine: Engine) -> Agent:
    """The agent that an object is, or that it makes from the card."""
    made = found
    if callable(found) and (isinstance(found, type) or not isinstance(found, Agent)):
        try:
            made = found(engine.card)
        except Exception as error:  # whatever it raises
            raise AgentError(f"{text!r} was called with the card and failed: {type(error).__name__}: {error}") from None
    if isinstance(made, type) or not isinstance(made, Agent) or not callable(made.act):
        raise AgentError(f"{text!r} is a {type(made).__name__} without act(observation, mask): expected an agent")
    return made
