"""The examples in docs/, where the library they are for is installed."""

import subprocess
import sys

import pytest
from conftest import ROOT

from onco_gym.agents import OnnxAgent
from onco_gym.interfaces.engine import make_engine

EXAMPLES = ROOT / "docs" / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "script", "options", "said"),
    [
        ("torch", "cleanrl_ppo.py", ("--total-steps", "2048", "--n-envs", "64", "--n-steps", "16"), "steps 2048  return"),
        ("torchrl", "torchrl_ppo.py", ("--frames", "4000"), "4000 frames, return per episode"),
        ("ray.rllib.algorithms.ppo", "rllib_ppo.py", ("--iterations", "1"), "iteration 1: return per episode"),
    ],
)
def test_examples_run(library, script, options, said, tmp_path):
    """In a process of its own, as a user runs it; the one that saves a policy makes two updates."""
    pytest.importorskip(library, exc_type=ImportError)
    policy = tmp_path / "policy.onnx"
    options += ("--save", str(policy)) if script == "cleanrl_ppo.py" else ()
    done = subprocess.run([sys.executable, str(EXAMPLES / script), *options], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    if "--save" in options:
        assert done.stdout.count("return") == 2
        OnnxAgent(make_engine("nsclc"), policy)
