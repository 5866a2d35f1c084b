"""Commands on agents: export."""

import argparse
import warnings

import gymnasium as gym

from onco_gym.cli.common import UsageError, console, resolve


def export_command(arguments: argparse.Namespace) -> None:
    """Write a model of Stable-Baselines3 as an ONNX policy file."""
    key, card = resolve(arguments.env)
    if "/mo-" in key:
        raise UsageError(f"{key} has a vector of rewards, which no model of Stable-Baselines3 was trained on")
    if arguments.out.suffix != ".onnx":
        raise UsageError(f"{str(arguments.out)!r}: a policy file ends in .onnx")
    from onco_gym.agents.files import export
    from onco_gym.interfaces.engine import make_engine

    kind = gym.spec(key).kwargs.get("kind", "regimen")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", UserWarning)
        export(arguments.model, arguments.out, make_engine(card, kind=kind), arguments.vecnormalize)
    for text in dict.fromkeys(str(one.message) for one in heard if one.category is UserWarning):
        console(stderr=True).print(f"onco-gym: {text}", markup=False, soft_wrap=True)
    print(f"wrote {arguments.out} for {key}; on simulated patients it chooses what {arguments.model} chooses")
