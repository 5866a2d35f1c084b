"""Gradient ascent on the expected value, with decisions relaxed to weights.

Every stretch of the horizon has a weight for each regimen, and the simulator's expected reading is smooth in the weights. Adam
maximises the value while the temperature falls, until one regimen is left in each stretch. Guideline points are not smooth and
are left to the search that follows. Regimens that the guideline forbids have no weight.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from onco_gym.interfaces.engine import Engine
from onco_gym.rewards import Scene, blend, reward_terms
from onco_gym.simulator.state import Journey
from onco_gym.simulator.transition import USUAL_ORDERS, step
from onco_gym.verification.course import LANES, Cases, Sequence, begin, in_parts

SMOOTH = frozenset({"outcome", "carbon"})
"""Reward terms that are smooth in the decisions."""
STRETCHES = 10
"""Number of stretches of a long horizon."""
RATE = 0.3
TEMPERATURE = 1.0, 0.1
"""Temperature at the start and at the end."""


def worth_of(engine: Engine, who: Cases, weights: jax.Array) -> jax.Array:
    """(n,) the expected value, without guideline points, of ``weights`` (H, R, n), which sum to 1 over R."""
    scenario, params = engine.scenario, engine.params

    def cycle(journey: Journey, weight: jax.Array) -> tuple[Journey, jax.Array]:
        after, events = step(scenario, params, journey, weight, expected=True)
        said, nobody = engine.unjudged(after.state.last)
        terms = reward_terms(scenario, params, Scene(journey, after, USUAL_ORDERS, events, said, nobody), SMOOTH)
        return after, blend(engine.weights, terms)

    return jnp.sum(jax.lax.scan(cycle, begin(engine, who, "expected"), weights)[1], 0)


def stretch_of(horizon: int) -> NDArray[np.int32]:
    """(H,) the stretch that each cycle belongs to: finer at first, where more is at stake."""
    count = min(STRETCHES, horizon)
    edges = np.round(horizon * (np.arange(1, count + 1) / count) ** 1.5)
    edges = np.maximum(edges, np.arange(1, count + 1))
    return np.searchsorted(edges, np.arange(horizon), side="right").astype(np.int32)


def climb(engine: Engine, who: Cases, n: int, open_to: NDArray[np.bool_], iterations: int = 40, seed: int = 0) -> Sequence:
    """(H, n) the sequences that the weights converge to.

    Args:
        engine: the environment; its actions must be regimens.
        who: (…, n * P) patients, P for each sequence, patient by patient.
        n: number of sequences.
        open_to: (R, n) regimens that may be given.
        iterations: steps of Adam.
        seed: the seed of the start, at random and nearly equal weights.
    """
    size, stretch = who.key.shape[-1] // n, stretch_of(engine.horizon)
    count = int(stretch.max()) + 1
    start = np.random.default_rng([seed, 13]).normal(0, 0.5, (count, len(open_to), n)).astype(np.float32)
    logits = np.where(open_to[None], start, -30.0).astype(np.float32)

    def some(rows: NDArray[np.intp]) -> list[jax.Array]:
        every = (rows[:, None] * size + np.arange(size)).reshape(-1)
        return [_climbing(engine, size, iterations)(who.take(every), logits[:, :, rows])]

    return in_parts(some, n, max(LANES // size, 1))[0][stretch]


@functools.lru_cache(maxsize=32)
def _climbing(engine: Engine, size: int, iterations: int) -> Any:
    """(who, logits) -> (stretches, n) the regimens that the weights converge to.

    XLA's fusion would recompute parts of the backward pass many times. Without it the gradient takes a third of the time.
    """
    stretch = jnp.asarray(stretch_of(engine.horizon))
    optimiser = optax.adam(RATE)

    def mixed(logits: jax.Array, temperature: jax.Array) -> jax.Array:
        weights = jax.nn.softmax(logits / temperature, axis=1)
        return jnp.repeat(weights, size, axis=2)[stretch]

    def run(who: Cases, logits: jax.Array) -> jax.Array:
        def lost(logits: jax.Array, temperature: jax.Array) -> jax.Array:
            return -jnp.sum(worth_of(engine, who, mixed(logits, temperature))) / size

        def turn(carry: tuple[jax.Array, Any], number: jax.Array) -> tuple[tuple[jax.Array, Any], None]:
            logits, memory = carry
            hot, cold = TEMPERATURE
            slope = jax.grad(lost)(logits, hot * (cold / hot) ** (number / max(iterations - 1, 1)))
            change, memory = optimiser.update(jnp.nan_to_num(slope), memory)
            return (logits + jnp.asarray(change), memory), None

        (logits, _), _ = jax.lax.scan(turn, (logits, optimiser.init(logits)), jnp.arange(iterations))
        return jnp.argmax(logits, axis=1).astype(jnp.int32)

    return jax.jit(run, compiler_options={"xla_disable_hlo_passes": "fusion"})
