"""PPO with RLlib: pip install "ray[rllib]". A few iterations take about a minute.

    python docs/examples/rllib_ppo.py --iterations 3

Research software, not for treating patients.
"""

import argparse

import gymnasium as gym
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env


def make(config):
    """Make an environment. Workers import onco_gym here to register the ids."""
    import onco_gym  # noqa: F401

    return gym.make(config["id"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="onco_gym/NSCLC-v0")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--runners", type=int, default=0, help="processes that collect episodes; 0 collects in this one")
    arguments = parser.parse_args()
    ray.init(include_dashboard=False, log_to_driver=False, num_cpus=max(1, arguments.runners + 1))
    register_env("oncology", make)
    config = (
        PPOConfig()
        .environment("oncology", env_config={"id": arguments.env})
        .env_runners(num_env_runners=arguments.runners, num_envs_per_env_runner=4)
        .training(lr=1e-3, gamma=0.995, train_batch_size_per_learner=2000, minibatch_size=500, num_epochs=4, entropy_coeff=0.01)
    )
    algorithm = config.build_algo()
    for number in range(arguments.iterations):
        found = algorithm.train()
        print(f"iteration {number + 1}: return per episode {found['env_runners']['episode_return_mean']:.2f}")
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
