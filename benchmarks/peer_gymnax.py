"""gymnax's CartPole-v1 in ``lax.scan``, measured on request; see README.md. Run by speed.py, not by hand.

gymnax has its own virtual environment, so nothing here imports onco_gym. Stdout has one JSON object per line. The first says what
runs (or ``error``). Then, for every number of seconds on stdin, there is the rate measured over at least that long.
"""

import json
import sys
import time
from importlib.metadata import version
from typing import Any

import numpy as np

NUM_ENVS = int(sys.argv[1])
STEPS = int(sys.argv[2])


def mix(x: Any) -> Any:
    """The counter hash that speed.py draws its actions from (onco_gym.simulator.chance.mix)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    try:
        import gymnax  # type: ignore[import-not-found]
        import jax
        import jax.numpy as jnp
    except ImportError as error:
        say(error=str(error))
        return
    env, params = gymnax.make("CartPole-v1")
    step_all = jax.vmap(env.step, in_axes=(0, 0, 0, None))
    lanes = jnp.arange(NUM_ENVS, dtype=jnp.uint32)

    def one(carry: Any, _: None) -> tuple[Any, jax.Array]:
        key, state, clock = carry
        key, step_key = jax.random.split(key)
        action = (mix(lanes + clock * np.uint32(NUM_ENVS)) % np.uint32(2)).astype(jnp.int32)
        observation, state, reward, *_ = step_all(jax.random.split(step_key, NUM_ENVS), state, action, params)
        return (key, state, clock + np.uint32(1)), observation.sum() + reward.sum()

    rollout = jax.jit(lambda carry: jax.lax.scan(one, carry, None, STEPS), donate_argnums=0)
    reset_key, step_key = jax.random.split(jax.random.key(0))
    _, state = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(jax.random.split(reset_key, NUM_ENVS), params)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(state)) // NUM_ENVS
    carry = (step_key, state, jnp.uint32(0))
    for _ in range(3):
        carry, sums = rollout(carry)
        np.asarray(sums)
    say(gymnax=version("gymnax"), jax=jax.__version__, device=str(jax.devices()[0]), numbers=numbers)
    for line in sys.stdin:
        calls, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < float(line):
            carry, sums = rollout(carry)
            if not np.isfinite(np.asarray(sums)).all():
                raise FloatingPointError("a sum is not finite")
            calls += 1
        say(rate=calls * STEPS * NUM_ENVS / elapsed)


if __name__ == "__main__":
    main()
