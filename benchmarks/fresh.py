"""Measure a fresh process: seconds to start, and memory. Import this module before onco_gym."""

import json
import os
import subprocess
import sys
from typing import Any

assert "onco_gym" not in sys.modules, "onco_gym has already changed the environment: import fresh first"
ENVIRONMENT = os.environ.copy()  # for fresh processes and peers: the environment before onco_gym sets XLA_FLAGS
ENVIRONMENT.pop("JAX_COMPILATION_CACHE_DIR", None)  # a cache would hide the cost of compiling
ENV_ID = "onco_gym/NSCLC-v0"

STARTUP = f"""
import time
start = time.perf_counter()
import onco_gym
imported = time.perf_counter()
import gymnasium as gym
env = gym.make("{ENV_ID}")
env.reset(seed=0)
ready = time.perf_counter()
env.step(0)
stepped = time.perf_counter()
import json
print(json.dumps([imported - start, ready - imported, stepped - ready]))
"""

MEMORY = f"""
import json, pathlib, sys
import gymnasium as gym, numpy as np, onco_gym, jax
num_envs, steps = int(sys.argv[1]), int(sys.argv[2])
compiled = []  # the number of the step in which something was compiled
def heard(name, *_, **__):
    if name == "/jax/core/compile/backend_compile_duration":
        compiled.append(step)
jax.monitoring.register_event_duration_secs_listener(heard)
step = 0
envs = gym.make_vec("{ENV_ID}", num_envs=num_envs, vectorization_mode="vector_entry_point", decide="cycles")
envs.reset(seed=0)
rng = np.random.default_rng(0)
for step in range(1, steps + 1):
    result = envs.step(rng.integers(envs.single_action_space.n, size=num_envs))
rss = peak = None
try:
    import psutil
    memory = psutil.Process().memory_info()
    rss, peak = memory.rss, getattr(memory, "peak_wset", None)
except ImportError:
    pass
status = pathlib.Path("/proc/self/status")
if status.exists():  # Linux, where psutil has no peak and ru_maxrss includes the parent's memory
    peak = next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps(dict(envs=num_envs, rss=rss, peak=peak, compiled_late=sum(step > 3 for step in compiled))))
"""


def fresh(program: str, *arguments: int) -> Any:
    """Run ``program`` in a new process and read the JSON that it prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr}")
    return json.loads(done.stdout)
