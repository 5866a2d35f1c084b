"""Behaviour cloning: train a network to imitate another agent."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from onco_gym.agents import ppo
from onco_gym.agents.episodes import rollout
from onco_gym.agents.protocol import Agent, AgentError
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine

TRAINING = 2**40
"""Seeds of training patients start here; seeds of evaluations start at 0."""


@dataclass(frozen=True)
class CloningSettings:
    """Settings of :func:`clone`."""

    episodes: int = 3000  # patients on whom the agent is watched
    epochs: int = 8  # passes over its decisions
    batch: int = 1024  # decisions in a batch
    rate: float = 1e-3  # learning rate at the start; falls to 0 along a cosine
    hidden: tuple[int, ...] = (128, 128)  # widths of the hidden layers


def clone(
    engine: Engine,
    agent: Agent,
    settings: CloningSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> ppo.PpoAgent:
    """Train a network to maximise the likelihood of the decisions of ``agent``.

    Args:
        engine: an environment whose actions are regimens.
        agent: the agent to imitate.
        settings: see :class:`CloningSettings`.
        seed: the same engine, agent, settings and seed give the same policy on the same machine.
        progress: called after every pass.

    Raises:
        AgentError: if actions are not regimens, or there are too few decisions to learn from.
    """
    settings = settings or CloningSettings()
    if engine.kind.name != "regimen":
        raise AgentError(f"cloning needs an environment whose actions are regimens, and {engine.id} is not one")
    run = rollout(engine, agent, settings.episodes, seed=TRAINING + seed * 2**32, keep_observations=True)
    assert run.observations is not None
    made = run.actions >= 0
    seen, chosen = run.observations[made], run.actions[made]
    batches = len(chosen) // settings.batch
    if not batches:
        raise AgentError(
            f"{settings.episodes} episodes have {len(chosen)} decisions, expected at least one batch of {settings.batch}"
        )
    sizes = (seen.shape[1], *settings.hidden, len(engine.scenario.regimens))
    layers = ppo.network(jax.random.key(seed), sizes, 0.01)
    adam = optax.adam(optax.cosine_decay_schedule(settings.rate, batches * settings.epochs))

    def loss(layers: ppo.Layers, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(ppo.forward(layers, x), y))

    @jax.jit
    def update(layers: Any, state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, Any]:
        change, state = adam.update(jax.grad(loss)(layers, x, y), state)
        return optax.apply_updates(layers, change), state

    state, rng = adam.init(layers), np.random.default_rng(seed)
    for epoch in range(settings.epochs):
        for which in np.array_split(rng.permutation(len(chosen))[: batches * settings.batch], batches):
            layers, state = update(layers, state, seen[which], chosen[which])
        progress("imitating", epoch + 1, settings.epochs)
    return ppo.PpoAgent([(np.asarray(weights), np.asarray(bias)) for weights, bias in layers], sizes[-1:])
