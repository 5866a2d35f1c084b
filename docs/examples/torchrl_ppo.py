"""PPO with TorchRL on one patient at a time: pip install torchrl. It runs in about half a minute.

    python docs/examples/torchrl_ppo.py --frames 20000

Research software, not for treating patients.
"""

import argparse

import gymnasium as gym
import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper
from torchrl.modules import MaskedCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import onco_gym  # noqa: F401 - registers the ids


class Masked(gym.ObservationWrapper):
    """Adds the action mask to the observation, where TorchRL expects it."""

    def __init__(self, env):
        super().__init__(env)
        choices = int(env.action_space.n)
        self.observation_space = gym.spaces.Dict(
            {"observation": env.observation_space, "action_mask": gym.spaces.MultiBinary(choices)}
        )

    def observation(self, observation):
        return {"observation": observation, "action_mask": self.env.unwrapped.action_masks().astype("int8")}


class ToBool(nn.Module):
    """Converts masks to bool, as MaskedCategorical requires."""

    def forward(self, mask):
        return mask.bool()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="onco_gym/NSCLC-v0")
    parser.add_argument("--frames", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)

    env = GymWrapper(Masked(gym.make(arguments.env)), categorical_action_encoding=True)
    env.set_seed(arguments.seed)
    features, choices = env.observation_spec["observation"].shape[-1], env.action_spec.space.n

    def network(outputs):
        return nn.Sequential(nn.Linear(features, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, outputs))

    actor = ProbabilisticActor(
        TensorDictSequential(
            TensorDictModule(network(choices), in_keys=["observation"], out_keys=["logits"]),
            TensorDictModule(ToBool(), in_keys=["action_mask"], out_keys=["mask"]),
        ),
        in_keys=["logits", "mask"],
        out_keys=["action"],
        distribution_class=MaskedCategorical,
        return_log_prob=True,
        spec=env.action_spec,
    )
    critic = ValueOperator(network(1), in_keys=["observation"])
    advantage = GAE(gamma=0.995, lmbda=0.95, value_network=critic)
    loss = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.01)
    optimiser = torch.optim.Adam(loss.parameters(), lr=1e-3)
    collector = Collector(env, actor, frames_per_batch=arguments.batch, total_frames=arguments.frames)
    for number, data in enumerate(collector):
        for _ in range(4):
            advantage(data)
            for rows in torch.randperm(len(data)).split(500):
                found = loss(data[rows])
                optimiser.zero_grad()
                sum(value for name, value in found.items() if name.startswith("loss_")).backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimiser.step()
        episodes = max(int(data["next", "done"].sum()), 1)
        mean = float(data["next", "reward"].sum()) / episodes
        print(f"{(number + 1) * arguments.batch:>8} frames, return per episode {mean:.2f}")
    collector.shutdown()


if __name__ == "__main__":
    main()
