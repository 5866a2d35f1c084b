"""How much of a Stable-Baselines3 training run the environment takes.

The script trains PPO (or MaskablePPO) on many patients side by side. In the same run it times the calls into the environment:
``step_wait`` (the compiled step, new patients, the adapter's infos) and the action masks. The rest is SB3: networks, buffers,
updates. Wall time is how long a user waits; processor time is less affected by other work on the machine. Compiling is excluded.
The figures are printed as JSON.

    python benchmarks/sb3_profile.py --n-envs 1024 --steps 500000
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any


class Clock:
    """Wall and processor seconds spent in functions."""

    def __init__(self) -> None:
        self.wall = self.processor = 0.0
        self.calls = 0
        self.longest = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, timed by this clock."""

        def run(*arguments: Any, **options: Any) -> Any:
            wall, processor = time.perf_counter(), time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                self.wall += time.perf_counter() - wall
                self.longest = max(self.longest, time.perf_counter() - wall)
                self.processor += time.process_time() - processor
                self.calls += 1

        return run


def main() -> None:
    parser = argparse.ArgumentParser(description="How much of a Stable-Baselines3 training run the environment takes.")
    parser.add_argument("--env", default="onco_gym/NSCLC-v0")
    parser.add_argument("--n-envs", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=500_000, help="steps of all environments together")
    parser.add_argument("--n-steps", type=int, default=32, help="steps of each environment between updates")
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data in an update; 10 is SB3's own default")
    parser.add_argument("--masked", action="store_true", help="use MaskablePPO instead of PPO")
    arguments = parser.parse_args()

    import numpy as np
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import PPO

    import onco_gym

    torch.set_num_threads(1)
    env = onco_gym.make_sb3(arguments.env, arguments.n_envs, seed=0, monitor=False)
    settings = {"n_steps": arguments.n_steps, "batch_size": arguments.batch_size, "n_epochs": arguments.epochs, "seed": 0}
    algorithm = MaskablePPO if arguments.masked else PPO
    model = algorithm("MlpPolicy", env, policy_kwargs={"net_arch": [64, 64]}, device="cpu", **settings)
    model.learn(arguments.n_steps * arguments.n_envs)
    for size in (32 * 8**power for power in range(8)):  # compile every size of readmission
        env.env._replace(np.arange(min(size, arguments.n_envs)), env.reset())
    inside, whole = Clock(), Clock()
    env.step_wait = inside.timed(env.step_wait)
    env.env_method = inside.timed(env.env_method)
    whole.timed(model.learn)(arguments.steps, reset_num_timesteps=False)
    steps = arguments.n_envs * inside.calls // (2 if arguments.masked else 1)
    figures = {
        "environment": arguments.env,
        "algorithm": algorithm.__name__,
        "n_envs": arguments.n_envs,
        **settings,
        "steps": steps,
        "wall_share": inside.wall / whole.wall,
        "processor_share": inside.processor / whole.processor,
        "longest_call_seconds": inside.longest,  # whole seconds mean that something was compiled after all
        "wall_seconds": whole.wall,
        "processor_seconds": whole.processor,
        "steps_per_second": steps / whole.wall,
        "environment_steps_per_second": steps / inside.wall,
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
