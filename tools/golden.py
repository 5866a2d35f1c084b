"""Renew the golden rollouts in tests/golden: the agreed results of each environment.

When you renew them, say in CHANGELOG.md why the results have changed.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import onco_gym
from onco_gym.interfaces.registry import DECIDE
from onco_gym.testing import sample
from pages import ROOT, parser, write

FOLDER = ROOT / "tests" / "golden"
EPISODES, SEED = 12, 2026


def record(env_id: str, decide: str) -> list[dict[str, Any]]:
    """Episodes under a fixed sequence of decisions: length, end, return, and what was seen in the last cycle."""
    env = gym.make(env_id, decide=decide)
    rng = np.random.default_rng(SEED)
    episodes = []
    for episode in range(EPISODES):
        observation, info = env.reset(seed=SEED if episode == 0 else None)
        action, total, steps, cycles, over = None, 0.0, 0, 0, False
        while not over:
            if steps % 6 == 0:
                action = sample(env.action_space, rng)
            observation, reward, terminated, truncated, info = env.step(action)
            total, steps, cycles = total + float(np.sum(reward)), steps + 1, cycles + info["cycles"]
            over = terminated or truncated
        seen = [round(float(value), 3) for value in observation]
        found = {"patient": env.unwrapped.origin[0], "steps": steps, "cycles": cycles, "died": bool(terminated)}  # type: ignore[attr-defined]
        episodes.append({**found, "return": round(total, 3), "seen": seen})
    return episodes


def path(env_id: str) -> Path:
    """Where the rollouts of an environment are kept."""
    return FOLDER / f"{env_id.split('/')[1]}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the episodes and write them."""
    parser(__file__, __doc__).parse_args(arguments)
    for env_id in onco_gym.registered_ids():
        write(path(env_id), json.dumps({decide: record(env_id, decide) for decide in DECIDE}, indent=0) + "\n")
        print(path(env_id).relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
