"""Proximal policy optimisation (Schulman et al. 2017) whose rollout and update are one compiled function.

The patients, the environment and the networks live in one JAX program, so only the progress crosses to Python. Read
the module from top to bottom: networks, one round (rollout, advantages, update), the training loop, and the trained policy.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces
from numpy.typing import NDArray

from onco_gym.agents.onnxfile import certain, choose
from onco_gym.agents.protocol import AgentError
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.kinds import Encounter
from onco_gym.interfaces.origins import Seat
from onco_gym.rewards import Tally

Layers = list[tuple[jax.Array, jax.Array]]
"""(W (in, out), b (out,)) of each layer, with tanh between layers."""


@dataclass(frozen=True)
class PpoSettings:
    """Settings of :func:`train`. The defaults suit every shipped card."""

    steps: int = 10_000_000  # total environment steps
    envs: int = 2048  # patients in parallel
    length: int = 32  # cycles of a rollout
    epochs: int = 4  # passes over a rollout
    batches: int = 8  # batches in a pass
    rate: float = 1e-3  # learning rate at the start; falls to 0 linearly
    discount: float = 0.995  # per cycle
    trace: float = 0.95  # lambda of the generalised advantage estimate
    clip: float = 0.2  # how far a probability ratio may move from 1
    entropy: float = 0.01  # weight of the entropy bonus at the start; falls to 0 linearly
    value: float = 0.5  # weight of the critic's loss
    norm: float = 0.5  # largest norm of a gradient
    hidden: tuple[int, ...] = (128, 128)  # widths of the hidden layers
    scale: float = 4.0  # factor on rewards, which are about 0.04 a cycle

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if np.min(value) < 0 or (field.type is int and value < 1):
                raise AgentError(f"{field.name} is {value}, expected a number above 0")
        if self.envs % self.batches:
            raise AgentError(f"envs is {self.envs}, expected a multiple of the {self.batches} batches")


@dataclass(frozen=True)
class Round:
    """The state of training after a round."""

    steps: int  # environment steps so far
    mean_return: float  # of the episodes that ended in this round; NaN if none did
    entropy: float  # nats, mean over decisions


# ------------------------------------------------------------------------------------------------ networks


def network(key: jax.Array, sizes: Sequence[int], last: float) -> Layers:
    """A network with orthogonal weights and zero biases; ``last`` scales the weights of the last layer."""
    layers = []
    for index, (width, next_width) in enumerate(itertools.pairwise(sizes)):
        key, part = jax.random.split(key)
        gain = last if index == len(sizes) - 2 else float(np.sqrt(2))
        layers.append((jax.nn.initializers.orthogonal(gain)(part, (width, next_width)), jnp.zeros(next_width)))
    return layers


def forward(layers: Layers, x: jax.Array) -> jax.Array:
    """(n, out) the output of the network for ``x`` (n, in)."""
    for weights, bias in layers[:-1]:
        x = jnp.tanh(x @ weights + bias)
    return x @ layers[-1][0] + layers[-1][1]


class _Choices(NamedTuple):
    """Log probabilities of the choices of all parts of an action, concatenated as in the mask."""

    log_probability: jax.Array  # (n, C)
    parts: tuple[int, ...]  # choices of each part

    def of(self, action: jax.Array) -> jax.Array:
        """(n,) log probability of ``action`` (n, parts)."""
        places = action + np.concatenate([[0], np.cumsum(self.parts)[:-1]]).astype(np.int32)
        return jnp.sum(jnp.take_along_axis(self.log_probability, places, axis=1), 1)

    def entropy(self) -> jax.Array:
        """(n,) nats."""
        return -jnp.sum(jnp.exp(self.log_probability) * jnp.maximum(self.log_probability, -1e9), 1)

    def sample(self, key: jax.Array) -> jax.Array:
        """(n, parts) int32."""
        noisy = self.log_probability + jax.random.gumbel(key, self.log_probability.shape)
        return jnp.stack([jnp.argmax(part, 1) for part in _split(noisy, self.parts)], 1).astype(jnp.int32)


def _split(rows: jax.Array, parts: Sequence[int]) -> list[jax.Array]:
    return jnp.split(rows, np.cumsum(parts)[:-1], axis=1)


def _choices(layers: Layers, seen: jax.Array, mask: jax.Array, parts: tuple[int, ...]) -> _Choices:
    scores = jnp.where(mask, forward(layers, seen), -1e9)
    return _Choices(jnp.concatenate([jax.nn.log_softmax(part) for part in _split(scores, parts)], 1), parts)


# ------------------------------------------------------------------------------------------------ one round


class _Training(NamedTuple):
    """Everything that changes while training."""

    actor: Layers
    critic: Layers
    optimiser: Any
    encounter: Encounter
    tally: Tally
    seat: Seat
    seen: jax.Array  # (n, F)
    mask: jax.Array  # (n, C)
    so_far: jax.Array  # (n,) returns of unfinished episodes
    key: jax.Array


class _Rollout(NamedTuple):
    """The data of a rollout. T cycles of n patients."""

    seen: jax.Array  # (T, n, F)
    mask: jax.Array  # (T, n, C)
    action: jax.Array  # (T, n, parts)
    log_probability: jax.Array  # (T, n)
    value: jax.Array  # (T, n)
    reward: jax.Array  # (T, n), scaled
    ended: jax.Array  # (T, n)
    finished: jax.Array  # (T, n) return of the episode that ended here, else 0


def _round(
    engine: Engine, settings: PpoSettings, parts: tuple[int, ...], update: Callable[..., Any], at: _Training, share: jax.Array
) -> tuple[_Training, jax.Array]:
    """Roll out, estimate advantages, update. ``share`` is the share of the training that is left.

    Returns:
        The new state of training, and (3,): sum of finished returns, episodes finished, mean entropy.
    """
    at, met = _roll_out(engine, settings, parts, at)
    last = forward(at.critic, at.seen)[:, 0]
    advantage = _advantages(settings, met, last)
    target = advantage + met.value
    order = jax.random.split(at.key, settings.epochs + 1)

    def loss(networks: tuple[Layers, Layers], part: tuple[_Rollout, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        flat, gain, goal = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), part)
        choices = _choices(networks[0], flat.seen, flat.mask, parts)
        gain = (gain - jnp.mean(gain)) / (jnp.std(gain) + 1e-8)
        ratio = jnp.exp(choices.of(flat.action) - flat.log_probability)
        better = jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip) * gain)
        miss = jnp.mean(jnp.square(forward(networks[1], flat.seen)[:, 0] - goal))
        entropy = jnp.mean(choices.entropy())
        return -jnp.mean(better) + settings.value * miss - settings.entropy * share * entropy, entropy

    def batch(carry: Any, which: jax.Array) -> tuple[Any, jax.Array]:
        networks, optimiser = carry
        part = jax.tree.map(lambda x: jnp.take(x, which, axis=1), (met, advantage, target))
        (_, entropy), gradient = jax.value_and_grad(loss, has_aux=True)(networks, part)
        return update(networks, optimiser, gradient), entropy

    def epoch(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        # Patients are shuffled, not their cycles, so that a patient's rollout stays contiguous in memory.
        return jax.lax.scan(batch, carry, jax.random.permutation(key, settings.envs).reshape(settings.batches, -1))

    (networks, optimiser), entropy = jax.lax.scan(epoch, ((at.actor, at.critic), at.optimiser), order[1:])
    said = jnp.stack([jnp.sum(met.finished), jnp.sum(met.ended), jnp.mean(entropy)])
    return at._replace(actor=networks[0], critic=networks[1], optimiser=optimiser, key=order[0]), said


def _roll_out(engine: Engine, settings: PpoSettings, parts: tuple[int, ...], at: _Training) -> tuple[_Training, _Rollout]:
    plain = isinstance(engine.kind.space, spaces.Discrete)

    def cycle(at: _Training, _: None) -> tuple[_Training, _Rollout]:
        key, part = jax.random.split(at.key)
        choices = _choices(at.actor, at.seen, at.mask, parts)
        action = choices.sample(part)
        encounter, tally, seat, seen, mask, outcome = engine.step_autoreset(
            at.encounter, at.tally, at.seat, action[:, 0] if plain else action
        )
        # Scoring ends at the horizon, so the horizon is terminal like death: no value is expected after it.
        ended = outcome.terminated | outcome.truncated
        so_far = at.so_far + outcome.reward
        met = _Rollout(
            at.seen,
            at.mask,
            action,
            choices.of(action),
            forward(at.critic, at.seen)[:, 0],
            outcome.reward * settings.scale,
            ended,
            jnp.where(ended, so_far, 0.0),
        )
        after = at._replace(
            encounter=encounter,
            tally=tally,
            seat=seat,
            seen=seen.T,
            mask=mask.T,
            so_far=jnp.where(ended, 0.0, so_far),
            key=key,
        )
        return after, met

    return jax.lax.scan(cycle, at, None, settings.length)


def _advantages(settings: PpoSettings, met: _Rollout, last: jax.Array) -> jax.Array:
    """(T, n) generalised advantage estimates; ``last`` (n,) is the value after the rollout."""

    def back(carry: tuple[jax.Array, jax.Array], one: _Rollout) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        advantage, following = carry
        goes_on = settings.discount * (1 - one.ended.astype(jnp.float32))
        miss = one.reward + goes_on * following - one.value
        advantage = miss + goes_on * settings.trace * advantage
        return (advantage, one.value), advantage

    return jax.lax.scan(back, (jnp.zeros_like(last), last), met, reverse=True)[1]


# ------------------------------------------------------------------------------------------------ training


def train(
    engine: Engine,
    settings: PpoSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
    start: "PpoAgent | None" = None,
) -> "PpoAgent":
    """Train a policy.

    Args:
        engine: an environment whose actions are choices (regimens or workflow).
        settings: see :class:`PpoSettings`.
        seed: the same engine, settings and seed give the same policy on the same machine.
        progress: called after every rollout and update.
        start: the policy to start from, such as one that imitates the guideline; by default an untrained one.

    Raises:
        AgentError: if actions are amounts, or ``start`` has another shape.
    """
    settings = settings or PpoSettings()
    parts = _parts(engine)
    key, *keys = jax.random.split(jax.random.key(seed), 3)
    width, choices = len(engine.kind.fields), sum(parts)
    actor = network(keys[0], (width, *settings.hidden, choices), 0.01)
    if start is not None:
        shapes, wanted = ([weights.shape for weights, _ in layers] for layers in (start.layers, actor))
        if shapes != wanted:
            raise AgentError(f"start has layers of shapes {shapes}, expected {wanted}")
        actor = [(jnp.asarray(weights), jnp.asarray(bias)) for weights, bias in start.layers]
    critic = network(keys[1], (width, *settings.hidden, 1), 1.0)
    size = settings.envs * settings.length
    rounds = _rounds(settings)
    adam, turn = _compiled(engine, settings)

    # Training patients have seeds in the upper half of the range. Evaluations count up from 0.
    seeds = np.uint64(2**63 + (seed % 2**31) * 2**32) + np.arange(settings.envs, dtype=np.uint64)
    seat = jax.tree.map(jnp.asarray, Seat.first(seeds))
    encounter, seen, mask, _ = engine.admit(seat)
    at = _Training(
        actor, critic, adam.init((actor, critic)), encounter, engine.tally(), seat, seen, mask, jnp.zeros(settings.envs), key
    )
    curve: list[Round] = []
    for number in range(rounds):
        at, said = turn(at, 1 - number / rounds)
        total, episodes, entropy = np.asarray(said, float)
        curve.append(Round((number + 1) * size, total / episodes if episodes else float("nan"), entropy))
        progress(f"training, return {curve[-1].mean_return:.3f} while exploring", curve[-1].steps, rounds * size)
    return PpoAgent([(np.asarray(weights), np.asarray(bias)) for weights, bias in at.actor], parts, curve)


def _rounds(settings: PpoSettings) -> int:
    return -(-settings.steps // (settings.envs * settings.length))


@functools.lru_cache(maxsize=4)
def _compiled(engine: Engine, settings: PpoSettings) -> tuple[optax.GradientTransformation, Callable[..., Any]]:
    """The optimiser and one round, which is compiled at its first call and shared by all seeds."""
    rate = optax.linear_schedule(settings.rate, 0.0, _rounds(settings) * settings.epochs * settings.batches)
    adam = optax.chain(optax.clip_by_global_norm(settings.norm), optax.adam(rate, eps=1e-5))

    def update(networks: Any, optimiser: Any, gradient: Any) -> tuple[Any, Any]:
        change, optimiser = adam.update(gradient, optimiser, networks)
        return optax.apply_updates(networks, change), optimiser

    return adam, jax.jit(functools.partial(_round, engine, settings, _parts(engine), update), donate_argnums=0)


def _parts(engine: Engine) -> tuple[int, ...]:
    sizes = tuple(engine.kind.parts.values())
    if not sizes:
        raise AgentError(f"PPO learns choices, not amounts: {engine.id} has doses and needs another algorithm, such as SAC")
    return sizes


class PpoAgent:
    """A trained policy: a multilayer perceptron with tanh that takes the likeliest choice for each part.

    Args:
        layers: (W (in, out), b (out,)) of each layer.
        parts: choices of each part of an action.
        curve: the rounds of its training.
    """

    def __init__(
        self,
        layers: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]],
        parts: Sequence[int],
        curve: Sequence[Round] = (),
    ) -> None:
        self.layers, self.parts, self.curve = list(layers), tuple(parts), tuple(curve)

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[Any]:
        """(n,) or (n, parts) the likeliest choice that is allowed; see :class:`onco_gym.agents.Agent`."""
        x = np.asarray(observation, np.float32)
        for weights, bias in self.layers[:-1]:
            x = np.tanh(x @ weights + bias)
        return choose(x @ self.layers[-1][0] + self.layers[-1][1], mask, self.parts)

    def probabilities(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(n, R) 1 for the choice, which is deterministic."""
        return certain(self.act(observation, mask), self.parts)
