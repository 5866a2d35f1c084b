"""Golden rollouts: what each environment gave when its results were last settled.

``python tools/golden.py`` writes them anew; CHANGELOG.md then says why.
"""

import json
from pathlib import Path

import gymnasium as gym
import numpy as np

import onco_gym
from onco_gym.testing import sample

FOLDER = Path(__file__).parents[1] / "tests" / "golden"
EPISODES, SEED = 12, 2026


def record(env_id):
    """Episodes under a fixed sequence of decisions: length, end, return, and what was seen in the last cycle."""
    env = gym.make(env_id)
    rng = np.random.default_rng(SEED)
    episodes = []
    for episode in range(EPISODES):
        observation, info = env.reset(seed=SEED if episode == 0 else None)
        patient, action, total, cycles, over = info["patient"], None, 0.0, 0, False
        while not over:
            if cycles % 6 == 0:
                action = sample(env.action_space, rng)
            observation, reward, terminated, truncated, info = env.step(action)
            total, cycles, over = total + float(np.sum(reward)), cycles + 1, terminated or truncated
        seen = [round(float(value), 3) for value in observation]
        episodes.append({"patient": patient, "cycles": cycles, "died": bool(terminated), "return": round(total, 3), "seen": seen})
    return episodes


def path(env_id):
    return FOLDER / f"{env_id.split('/')[1]}.json"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in onco_gym.registered_ids():
        path(name).write_text(json.dumps(record(name), indent=0) + "\n")
        print(path(name))
