"""PPO with action masks in one file, in the style of CleanRL. It reads from top to bottom and needs torch.

    python docs/examples/cleanrl_ppo.py --env onco_gym/NSCLC-v0 --total-steps 300000 --save policy.onnx

The script trains on many patients side by side and prints the mean return of finished episodes. It is for environments whose
action is a regimen.
"""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import onco_gym  # noqa: F401 - registers the environments

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--env", default="onco_gym/NSCLC-v0")
parser.add_argument("--total-steps", type=int, default=300_000, help="steps of all environments together")
parser.add_argument("--n-envs", type=int, default=512)
parser.add_argument("--n-steps", type=int, default=32, help="steps of each environment between updates")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--minibatches", type=int, default=8)
parser.add_argument("--learning-rate", type=float, default=1e-3)
parser.add_argument("--gamma", type=float, default=0.99)
parser.add_argument("--gae-lambda", type=float, default=0.95)
parser.add_argument("--clip", type=float, default=0.2)
parser.add_argument("--entropy", type=float, default=0.01)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--save", metavar="FILE.onnx", help="where to write the policy")
args = parser.parse_args()

torch.set_num_threads(1)  # small networks are slower with more threads
torch.manual_seed(args.seed)
envs = gym.make_vec(args.env, num_envs=args.n_envs)
assert isinstance(envs.single_action_space, gym.spaces.Discrete), "this example needs an environment whose action is a regimen"
features, regimens = envs.single_observation_space.shape[0], int(envs.single_action_space.n)


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal initialisation."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


actor = nn.Sequential(layer(features, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, regimens, 0.01))
critic = nn.Sequential(layer(features, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
parameters = [*actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=args.learning_rate, eps=1e-5)


def choices(observation: torch.Tensor, mask: torch.Tensor) -> Categorical:
    """The policy over the regimens that can be given."""
    return Categorical(logits=actor(observation).masked_fill(~mask, -1e8))


shape = (args.n_steps, args.n_envs)
observations, masks = torch.zeros(*shape, features), torch.zeros(*shape, regimens, dtype=torch.bool)
actions, logprobs = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
rewards, dones, values = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)

seen, info = envs.reset(seed=args.seed)
observation, mask = torch.as_tensor(seen), torch.as_tensor(info["action_mask"])
totals, finished, start, done_steps = np.zeros(args.n_envs), [], time.perf_counter(), 0
updates = max(1, args.total_steps // (args.n_steps * args.n_envs))
for update in range(1, updates + 1):
    optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - (update - 1) / updates)

    # Treat patients for a while.
    for step in range(args.n_steps):
        with torch.no_grad():
            policy = choices(observation, mask)
            action = policy.sample()
            values[step] = critic(observation).squeeze(1)
            logprobs[step] = policy.log_prob(action)
        observations[step], masks[step], actions[step] = observation, mask, action
        seen, reward, terminated, truncated, info = envs.step(action.numpy())
        totals += reward
        ended = terminated | truncated
        finished += totals[ended].tolist()
        totals[ended] = 0
        reward = torch.as_tensor(reward)
        if truncated.any():  # the patient is alive at the end of follow-up: bootstrap from the value
            with torch.no_grad():
                reward[truncated] += args.gamma * critic(torch.as_tensor(info["final_obs"][truncated])).squeeze(1)
        rewards[step], dones[step] = reward, torch.as_tensor(ended).float()
        observation, mask = torch.as_tensor(seen), torch.as_tensor(info["action_mask"])
    done_steps += args.n_steps * args.n_envs

    # Generalised advantage estimation.
    with torch.no_grad():
        upcoming, advantage = critic(observation).squeeze(1), torch.zeros(args.n_envs)
        advantages = torch.zeros(shape)
        for step in reversed(range(args.n_steps)):
            goes_on = 1 - dones[step]
            delta = rewards[step] + args.gamma * upcoming * goes_on - values[step]
            advantage = delta + args.gamma * args.gae_lambda * goes_on * advantage
            advantages[step], upcoming = advantage, values[step]
        returns = advantages + values

    # Update the policy and the value.
    flat = [one.flatten(0, 1) for one in (observations, masks, actions, logprobs, advantages, returns)]
    for _ in range(args.epochs):
        for rows in torch.randperm(flat[0].shape[0]).chunk(args.minibatches):
            o, m, a, old, gain, target = (one[rows] for one in flat)
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            policy = choices(o, m)
            ratio = (policy.log_prob(a) - old).exp()
            surrogate = torch.min(gain * ratio, gain * ratio.clamp(1 - args.clip, 1 + args.clip)).mean()
            value_loss = 0.5 * (critic(o).squeeze(1) - target).square().mean()
            loss = value_loss - surrogate - args.entropy * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()

    recent = f"{np.mean(finished[-1000:]):.3f} over {min(len(finished), 1000)} episodes" if finished else "none ended yet"
    print(f"steps {done_steps}  return {recent}  {done_steps / (time.perf_counter() - start):,.0f} steps/s", flush=True)

if args.save:
    from onco_gym.agents import save_mlp_onnx

    layers = [(one.weight.detach().numpy().T, one.bias.detach().numpy()) for one in actor if isinstance(one, nn.Linear)]
    save_mlp_onnx(args.save, envs.unwrapped.engine, layers, activation="tanh")
    print(f"wrote {args.save}")
