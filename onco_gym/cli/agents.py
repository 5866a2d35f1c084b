"""Commands that make agents: train, export."""

import argparse
from dataclasses import replace

import onco_gym
from onco_gym.cli.arguments import whole
from onco_gym.cli.parser import ENVIRONMENT, Commands, UsageError
from onco_gym.cli.screen import progress_bar
from onco_gym.interfaces.registry import Environment, find_environment


def register(commands: Commands) -> None:
    """Add the commands."""
    about = "Train a policy by PPO, in JAX."
    parser = commands.add(train_command, about, "train NSCLC --imitate guideline --out policy.onnx", agents=True)
    parser.add_environment()
    text = "learn to decide as this agent first (see below), and train on from there"
    parser.add_argument("--imitate", metavar="AGENT", help=text)
    text = "environment steps; by default 10000000"
    parser.add_argument("--steps", type=whole(1, 10**12), default=10_000_000, metavar="N", help=text)
    parser.add_seed("the same policy", high=2**31 - 1)
    parser.add_out("POLICY.onnx", "where to write the policy", ".onnx")
    parser.add_quiet()

    about = "Write a model of Stable-Baselines3 as an ONNX policy file. The model is unpickled, so use one you trust."
    parser = commands.add(export_command, about, "export model.zip --env NSCLC --out policy.onnx")
    parser.add_argument("model", metavar="MODEL.zip", help="the model, as its save() wrote it")
    parser.add_argument("--env", required=True, metavar="ID", help=ENVIRONMENT)
    text = "statistics of VecNormalize; by default vecnormalize.pkl beside the model, if it exists"
    parser.add_argument("--vecnormalize", metavar="FILE", help=text)
    parser.add_out("POLICY.onnx", "where to write the policy", ".onnx")


def train_command(arguments: argparse.Namespace) -> None:
    """Train a policy by PPO in JAX."""
    found = _with_one_reward(arguments.id)
    with progress_bar(quiet=arguments.quiet) as progress:
        from onco_gym.agents import ppo
        from onco_gym.agents.cloning import clone

        engine = onco_gym.make_engine(found.card, kind=found.kind)
        settings, start = ppo.PpoSettings(steps=arguments.steps), None
        if arguments.imitate:
            progress(f"watching {arguments.imitate}", 0, 0)
            teacher = onco_gym.load_agent(engine, arguments.imitate, arguments.seed)
            start = clone(engine, teacher, seed=arguments.seed, progress=progress)
            settings = replace(settings, rate=4e-4, entropy=0.004)  # smaller steps, because there is something to lose
        progress("compiling the training", 0, 0)
        agent = ppo.train(engine, settings, arguments.seed, progress, start)
        onco_gym.save_mlp_onnx(arguments.out, engine, agent.layers)
    print(f"wrote {arguments.out} for {engine.id}; evaluate it: onco-gym evaluate {arguments.out} --env {arguments.id}")


def export_command(arguments: argparse.Namespace) -> None:
    """Write a model of Stable-Baselines3 as an ONNX policy file."""
    found = _with_one_reward(arguments.env)
    engine = onco_gym.make_engine(found.card, kind=found.kind)
    onco_gym.export(arguments.out, engine, arguments.model, arguments.vecnormalize)
    print(f"wrote {arguments.out} for {engine.id}; on simulated patients it chooses what {arguments.model} chooses")


def _with_one_reward(text: str) -> Environment:
    """The environment that ``text`` names, if a policy can be trained for it."""
    found = find_environment(text)
    if found.multi_objective:
        raise UsageError(f"{found.id} has a vector of rewards: expected an environment with one reward")
    return found
