"""The wheel carries the cards and the stubs, and needs nothing of the checkout."""

import os
import subprocess
import sys
import zipfile

import pytest
from conftest import IDS, ROOT

CODE = """
import sys, gymnasium as gym, onco_gym
assert "jax" not in sys.modules
assert onco_gym.make_engine("nsclc").id == "onco_gym/NSCLC-v0"  # a name of the stub, which is read at run time
for name in onco_gym.__all__:
    if name != "make_sb3":  # needs an extra
        getattr(onco_gym, name)
ids = onco_gym.registered_ids()
for name in ids:
    gym.make(name).reset(seed=0)
    gym.make_vec(name, num_envs=2).reset(seed=0)
assert "torch" not in sys.modules
print(len(ids), onco_gym.__file__)
"""


@pytest.mark.slow
def test_the_wheel_makes_every_id_in_a_clean_environment(tmp_path):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command):
        said = subprocess.run([str(part) for part in command], cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        return said.stdout

    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT)
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        packed = set(file.namelist())
    package = ROOT / "onco_gym"
    wanted = [package / "py.typed", *(path for kind in ("py", "pyi", "html", "css", "js") for path in package.rglob(f"*.{kind}"))]
    assert {str(path.relative_to(ROOT)) for path in wanted} <= packed
    assert "onco_gym/__init__.pyi" in packed
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
    said = run(python, "-c", CODE)
    assert said.startswith(f"{len(IDS)} ")
    assert str(tmp_path) in said
