"""The contenders: a Python loop, a vector environment, and ``lax.scan``."""

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.origins import Seat
from onco_gym.simulator.chance import mix

N = 4096  # environments in the comparison with gymnax
SCAN_STEPS = 64  # per call; fewer if there are more than N environments, to keep calls short
OURS_SINGLE, OURS_VECTOR, OURS_SCAN = "onco_gym single", f"onco_gym vector x{N:,}", f"onco_gym scan x{N:,}"
MANY_VECTOR, MANY_SCAN = "onco_gym vector x65,536", "onco_gym scan x65,536"
ALL_SINGLE, ALL_VECTOR, ALL_SCAN = (f"{name}, four terms" for name in (OURS_SINGLE, OURS_VECTOR, OURS_SCAN))
ICU, CARTPOLE, CARTPOLE_VECTOR = "ICU-Sepsis single", "CartPole single", "CartPole vector x1,024"
GYMNAX = f"gymnax CartPole scan x{N:,}"
JUDGED = OURS_SINGLE, ALL_SINGLE, ICU, OURS_VECTOR, MANY_VECTOR, ALL_VECTOR, OURS_SCAN, MANY_SCAN, ALL_SCAN, GYMNAX
"""Those that are compared, next to each other."""


@dataclass
class Contender:
    """Something whose speed is measured. ``measure`` takes the seconds to run for and returns env-steps per second."""

    name: str
    envs: int
    measure: Callable[[float], float] | None = None
    missing: str = ""  # why there is nothing to measure
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        """Median rate over the rounds."""
        return statistics.median(self.rates) if self.rates else None


def timed(seconds: float, work: Callable[[], int]) -> float:
    """Env-steps per second of ``work``, repeated for at least ``seconds``. ``work`` returns how many steps it made."""
    steps, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        steps += work()
    return steps / elapsed


def single(name: str, env_id: str, options: dict[str, Any] | None = None) -> Contender:
    """One environment stepped from Python. Actions are drawn beforehand; the time of resets counts."""
    env = gym.make(env_id, **(options or {}))
    assert isinstance(env.action_space, gym.spaces.Discrete)
    actions = itertools.cycle(np.random.default_rng(0).integers(env.action_space.n, size=10_007).tolist())
    env.reset(seed=0)

    def work() -> int:
        for action in itertools.islice(actions, 100):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return 100

    timed(0.3, work)
    return Contender(name, 1, lambda seconds: timed(seconds, work))


def vector(name: str, env_id: str, num_envs: int, options: dict[str, Any] | None = None) -> Contender:
    """A vector environment stepped from Python with NumPy actions drawn beforehand; it resets itself."""
    env = gym.make_vec(env_id, num_envs=num_envs, vectorization_mode="vector_entry_point", **(options or {}))
    assert isinstance(env.single_action_space, gym.spaces.Discrete)
    actions = itertools.cycle(np.random.default_rng(0).integers(env.single_action_space.n, size=(31, num_envs)))
    env.reset(seed=0)

    def work() -> int:
        observation, *_ = env.step(next(actions))
        assert isinstance(observation, np.ndarray)
        return num_envs

    for _ in range(60 if num_envs <= N else 20):  # until every size of readmission is compiled
        work()
    return Contender(name, num_envs, lambda seconds: timed(seconds, work))


def scan(name: str, engine: Engine, num_envs: int) -> Contender:
    """``Engine.step_autoreset`` in ``lax.scan``: only a sum per step leaves the compiled function."""
    steps = max(1, min(SCAN_STEPS, SCAN_STEPS * N // num_envs))
    lanes = jnp.arange(num_envs, dtype=jnp.uint32)
    regimens = np.uint32(len(engine.scenario.regimens))

    def one(carry: Any, _: None) -> tuple[Any, jax.Array]:
        encounter, tally, seat, clock = carry
        action = (mix(lanes + clock * np.uint32(num_envs)) % regimens).astype(jnp.int32)
        encounter, tally, seat, observation, _mask, outcome = engine.step_autoreset(encounter, tally, seat, action)
        return (encounter, tally, seat, clock + np.uint32(1)), observation.sum() + outcome.reward.sum()

    rollout = jax.jit(lambda carry: jax.lax.scan(one, carry, None, steps), donate_argnums=0)
    seat = jax.tree.map(jnp.asarray, Seat.first(np.arange(num_envs, dtype=np.uint64)))
    carry: Any = (engine.admit(seat)[0], engine.tally(), seat, jnp.uint32(0))

    def work() -> int:
        nonlocal carry
        carry, sums = rollout(carry)
        if not np.isfinite(np.asarray(sums)).all():
            raise FloatingPointError("a sum is not finite")
        return num_envs * steps

    work()
    work()
    return Contender(name, num_envs, lambda seconds: timed(seconds, work))
