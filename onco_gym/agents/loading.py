"""Agents from anywhere: by name, from a file, or from a module of your own."""

import importlib
import os
import sys

from onco_gym.agents.makers import make_named
from onco_gym.agents.names import NAMED, REGIMEN
from onco_gym.agents.onnxfile import OnnxAgent
from onco_gym.agents.protocol import Agent, AgentError
from onco_gym.agents.sb3 import Sb3Agent
from onco_gym.foundation.words import did_you_mean
from onco_gym.interfaces.engine import Engine


def load_agent(engine: Engine, agent: str, seed: int = 0) -> Agent:
    """Load an agent from anywhere.

    Args:
        engine: the environment that it is for.
        agent: a name (see :data:`onco_gym.agents.names.NAMED`); ``path.onnx``, a policy file; ``path.zip``, a model of
            Stable-Baselines3, which is unpickled and therefore for trusted, local files only; or ``module:object``, an agent, or
            a class or function that makes one from the card. Modules in the current directory are found too; importing one
            runs it.
        seed: the seed of agents that choose at random.

    Raises:
        AgentError: if there is no such agent, or it does not fit the environment.
    """
    if agent.endswith(".onnx"):
        return OnnxAgent(engine, agent)
    if agent.endswith(".zip"):
        return Sb3Agent.load(engine, agent)
    regimens = [regimen.name for regimen in engine.card.regimens if regimen.active or engine.kind.name == "regimen"]
    here = [one.name for one in NAMED if engine.kind.name in one.kinds]
    known = {
        name.replace(REGIMEN, regimen): (name, regimen) for name in here for regimen in (regimens if REGIMEN in name else [""])
    }
    if agent in known:
        return make_named(engine, *known[agent], seed)
    if ":" in agent and not agent.startswith("adaptive:"):
        return _imported(agent, engine)
    elsewhere = [kind for one in NAMED if one.name == agent for kind in one.kinds]
    if elsewhere:
        raise AgentError(f"the agent {agent!r} is for {' and '.join(elsewhere)} environments, and {engine.id} is not one")
    raise AgentError(
        f"there is no agent {agent!r}{did_you_mean(agent, known)}: expected {', '.join(here)}, a file (.onnx, .zip) or "
        f"module:object. Regimens are {', '.join(regimens)}"
    )


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
