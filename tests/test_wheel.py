"""The wheel carries the cards, and needs nothing of the checkout."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = """
import sys, gymnasium as gym, onco_gym
ids = onco_gym.registered_ids()
for name in ids:
    gym.make(name).reset(seed=0)
    gym.make_vec(name, num_envs=2).reset(seed=0)
assert "torch" not in sys.modules
print(len(ids), onco_gym.__file__)
"""


@pytest.mark.slow
def test_the_wheel_makes_every_id_in_a_clean_environment(tmp_path):
    def run(*command):
        return subprocess.run([str(part) for part in command], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT)
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", *tmp_path.glob("*.whl"))
    said = run(python, "-c", CODE)
    assert said.startswith("16 ")
    assert str(tmp_path) in said
