"""Train one baseline: an environment, an algorithm and a seed give a policy as an ONNX file and a learning curve."""

import copy
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import onco_gym
from onco_gym.agents import load_agent, ppo, save_mlp_onnx
from onco_gym.agents.cloning import TRAINING, CloningSettings, clone
from onco_gym.evaluation.dataset import write_dataset
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine

HERE = Path(__file__).parent
D3RLPY = HERE.parent / ".venv-d3rlpy" / "bin" / "python"

Curve = list[tuple[int, float]]
"""(environment steps, mean return of recently finished episodes)."""


def sb3(
    engine: Engine, algorithm: str, settings: dict[str, Any], seed: int, policy: Path, progress: Progress, tensorboard: str | None
) -> Curve:
    """PPO, A2C, DQN and SAC by Stable-Baselines3, MaskablePPO by sb3-contrib."""
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import A2C, DQN, PPO, SAC
    from stable_baselines3.common.callbacks import BaseCallback

    from onco_gym.agents.sb3 import Sb3Agent, export

    torch.set_num_threads(1)
    make: Any = {"ppo": PPO, "a2c": A2C, "dqn": DQN, "sac": SAC}.get(algorithm, MaskablePPO)
    shown = load_agent(engine, settings.pop("shown"), seed) if "shown" in settings else None

    examples: list[Any] = []
    memories: list[Any] = []

    class Shown(SAC):
        """SAC that acts as another agent up to ``learning_starts``, and keeps imitating those actions afterwards."""

        def _sample_action(self, learning_starts: int, action_noise: Any = None, n_envs: int = 1) -> Any:
            if self.num_timesteps >= learning_starts:
                return super()._sample_action(learning_starts, action_noise, n_envs)
            masks = np.stack(self.get_env().env_method("action_masks"))
            actions = shown.act(self._last_obs, masks)
            examples.append((torch.as_tensor(self._last_obs), torch.as_tensor(self.policy.scale_action(actions))))
            return actions, self.policy.scale_action(actions)

        def train(self, gradient_steps: int, batch_size: int = 64) -> None:
            """Imitate for as many steps after every update, so that the actor stays near actions that the critics know."""
            if not memories:
                memories.extend(torch.cat(part).float() for part in zip(*examples, strict=True))
                self._remind(len(memories[0]) // 4, batch_size)
            super().train(gradient_steps, batch_size)
            self._remind(gradient_steps, batch_size)

        def _remind(self, steps: int, batch_size: int) -> None:
            for _ in range(steps):
                some = torch.randint(len(memories[0]), (batch_size,))
                loss = torch.nn.functional.mse_loss(self.actor(memories[0][some], deterministic=True), memories[1][some])
                self.actor.optimizer.zero_grad()
                loss.backward()
                self.actor.optimizer.step()

    make = make if shown is None else Shown
    steps, cycles = settings.pop("steps", None), settings.pop("cycles", None)
    envs, scale = settings.pop("envs"), settings.pop("reward_scale")
    weights = {name: scale * weight for name, weight in engine.weights.items()}
    env = onco_gym.make_sb3(engine.id, n_envs=envs, seed=TRAINING + seed * 2**32, weights=weights, decide=engine.decide)
    model = make("MlpPolicy", env, seed=seed, device="cpu", tensorboard_log=tensorboard, **settings)
    curve: Curve = []

    class Report(BaseCallback):
        def _on_step(self) -> bool:
            done, whole = (env.unwrapped.cycles, cycles) if cycles else (self.num_timesteps, steps)
            if done / whole >= len(curve) / 50 and model.ep_info_buffer:
                curve.append((self.num_timesteps, float(np.mean([one["r"] for one in model.ep_info_buffer])) / scale))
            progress("training", min(done, whole), whole)
            return bool(done < whole)

    model.learn(steps or cycles, callback=Report(), tb_log_name=f"{engine.card.id}-{algorithm}-{seed}")
    export(policy, engine, Sb3Agent(engine, model))
    return curve


def jax_ppo(engine: Engine, settings: Mapping[str, Any], seed: int, policy: Path, progress: Progress) -> Curve:
    """:mod:`onco_gym.agents.ppo`; with ``[imitates]``, from a policy that imitates an agent."""
    chosen = ppo.PpoSettings(**_chosen(settings, "imitates"))
    start = None
    if "imitates" in settings:
        start = imitation(engine, {**settings["imitates"], "hidden": chosen.hidden}, seed, silent)
    agent = ppo.train(engine, chosen, seed, progress, start)
    save_mlp_onnx(policy, engine, agent.layers)
    curve = [(one.steps, round(one.mean_return, 4)) for one in agent.curve if np.isfinite(one.mean_return)]
    return curve[:: max(1, len(curve) // 50)]


def cloning(engine: Engine, settings: Mapping[str, Any], seed: int, policy: Path, progress: Progress) -> Curve:
    """Behaviour cloning of the clinician."""
    save_mlp_onnx(policy, engine, imitation(engine, settings, seed, progress).layers)
    return []


def imitation(engine: Engine, settings: Mapping[str, Any], seed: int, progress: Progress) -> ppo.PpoAgent:
    """A policy that imitates the agent named in the settings."""
    chosen = CloningSettings(**_chosen(settings, "agent"))
    return clone(engine, load_agent(engine, settings["agent"], seed), chosen, seed, progress)


def _chosen(settings: Mapping[str, Any], without: str) -> dict[str, Any]:
    """Settings as the classes of that name take them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items() if name != without}


def cql(engine: Engine, settings: Mapping[str, Any], seed: int, policy: Path, progress: Progress) -> Curve:
    """Conservative Q-learning by d3rlpy, in its own virtual environment, because it pins an older Gymnasium."""
    if not D3RLPY.exists():
        raise FileNotFoundError(f"{D3RLPY.relative_to(HERE.parent)} is missing: make .venv-d3rlpy/.installed")
    with tempfile.TemporaryDirectory() as root:
        first, name = TRAINING + seed * 2**32, "oncology/clinician-v0"
        data = write_dataset(engine.id, "clinician", settings["episodes"], first, name, progress=progress, root=root)
        script, steps = HERE / "offline_d3rlpy.py", settings["steps"]
        command = [D3RLPY, script, data.path, "--out", policy, "--steps", steps, "--seed", seed]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"offline_d3rlpy.py failed:\n{done.stderr}")
    return []


def train(
    engine: Engine,
    algorithm: str,
    settings: Mapping[str, Any],
    seed: int,
    policy: Path,
    progress: Progress = silent,
    tensorboard: str | None = None,
) -> Curve:
    """Train, write the policy, return the learning curve."""
    policy.parent.mkdir(parents=True, exist_ok=True)
    match algorithm:
        case "jax_ppo" | "guided_ppo":
            return jax_ppo(engine, settings, seed, policy, progress)
        case "cloning":
            return cloning(engine, settings, seed, policy, progress)
        case "cql":
            return cql(engine, settings, seed, policy, progress)
    # A deep copy, because SB3 changes the settings it is given.
    return sb3(engine, algorithm, copy.deepcopy(dict(settings)), seed, policy, progress, tensorboard)
