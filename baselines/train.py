"""Train one baseline: an environment, an algorithm and a seed give a policy as an ONNX file and a learning curve."""

import copy
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onco_gym.agents import ppo
from onco_gym.agents.cloning import TRAINING, CloningSettings, clone
from onco_gym.agents.loading import load_agent
from onco_gym.agents.onnxfile import save_mlp_onnx
from onco_gym.interfaces.engine import Engine

HERE = Path(__file__).parent
D3RLPY = HERE.parent / ".venv-d3rlpy" / "bin" / "python"

Curve = list[tuple[int, float]]
"""(environment steps, mean return of the episodes that ended lately)."""
OnStep = Callable[[float], None]
"""Called with the share of the training that is done."""


def sb3(
    algorithm: str,
    env_id: str,
    engine: Engine,
    settings: dict[str, Any],
    seed: int,
    policy: Path,
    on_step: OnStep,
    tensorboard: str | None,
) -> Curve:
    """PPO, A2C, DQN and SAC by Stable-Baselines3, MaskablePPO by sb3-contrib."""
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import A2C, DQN, PPO, SAC
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecMonitor

    import onco_gym
    from onco_gym.agents.sb3 import Sb3Agent, export

    torch.set_num_threads(1)
    make: Any = {"ppo": PPO, "a2c": A2C, "dqn": DQN, "sac": SAC, "maskable_ppo": MaskablePPO}[algorithm]
    shown = load_agent(engine, settings.pop("shown"), seed) if "shown" in settings else None

    examples: list[Any] = []
    memories: list[Any] = []

    class Shown(SAC):
        """SAC whose first experience, up to ``learning_starts``, is that of another agent; later on it is reminded of that."""

        def _sample_action(self, learning_starts: int, action_noise: Any = None, n_envs: int = 1) -> Any:
            if self.num_timesteps >= learning_starts:
                return super()._sample_action(learning_starts, action_noise, n_envs)
            masks = np.stack(self.get_env().env_method("action_masks"))
            actions = shown.act(self._last_obs, masks)
            examples.append((torch.as_tensor(self._last_obs), torch.as_tensor(self.policy.scale_action(actions))))
            return actions, self.policy.scale_action(actions)

        def train(self, gradient_steps: int, batch_size: int = 64) -> None:
            """After every update as many steps towards what was shown: else the actor goes where the critics were never asked."""
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
    steps, envs, scale = settings.pop("steps"), settings.pop("envs"), settings.pop("reward_scale")
    weights = {name: scale * weight for name, weight in engine.weights.items()}
    env = VecMonitor(onco_gym.make_sb3(env_id, n_envs=envs, seed=TRAINING + seed * 2**32, weights=weights))
    model = make("MlpPolicy", env, seed=seed, device="cpu", tensorboard_log=tensorboard, **settings)
    curve: Curve = []

    class Report(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls % max(1, steps // envs // 50) == 0 and model.ep_info_buffer:
                curve.append((self.num_timesteps, float(np.mean([one["r"] for one in model.ep_info_buffer])) / scale))
            on_step(min(self.num_timesteps / steps, 1.0))
            return True

    model.learn(steps, callback=Report(), tb_log_name=f"{engine.card.id.split('/')[-1]}-{algorithm}-{seed}")
    export(policy, engine, Sb3Agent(engine, model))
    return curve


def jax_ppo(engine: Engine, settings: Mapping[str, Any], seed: int, policy: Path, on_step: OnStep) -> Curve:
    """:mod:`onco_gym.agents.ppo`; with ``[imitates]``, from a policy that imitates an agent."""
    own = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items() if name != "imitates"}
    chosen = ppo.PpoSettings(**own)
    curve: Curve = []

    def report(progress: ppo.Progress) -> None:
        if np.isfinite(progress.mean_return):
            curve.append((progress.steps, round(progress.mean_return, 4)))
        on_step(min(progress.steps / chosen.steps, 1.0))

    start = None
    if "imitates" in settings:
        start = imitation(engine, {**settings["imitates"], "hidden": chosen.hidden}, seed, lambda share: None)
    agent = ppo.train(engine, chosen, seed, report, start)
    save_mlp_onnx(policy, engine, agent.layers)
    return curve[:: max(1, len(curve) // 50)]


def cloning(engine: Engine, settings: Mapping[str, Any], seed: int, policy: Path, on_step: OnStep) -> Curve:
    """Behaviour cloning of the clinician."""
    save_mlp_onnx(policy, engine, imitation(engine, settings, seed, on_step).layers)
    return []


def imitation(engine: Engine, settings: Mapping[str, Any], seed: int, on_step: OnStep) -> ppo.PpoAgent:
    """A policy that decides as the agent of the settings does."""
    own = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items() if name != "agent"}
    chosen = CloningSettings(**own)
    return clone(engine, load_agent(engine, settings["agent"], seed), chosen, seed, lambda epoch: on_step(epoch / chosen.epochs))


def cql(env_id: str, settings: Mapping[str, Any], seed: int, policy: Path, on_step: OnStep) -> Curve:
    """Conservative Q-learning by d3rlpy, in an environment of its own: it pins an older Gymnasium."""
    from onco_gym.evaluation.dataset import write_dataset

    if not D3RLPY.exists():
        raise FileNotFoundError(f"{D3RLPY.relative_to(HERE.parent)} is missing: make .venv-d3rlpy/.installed")
    with tempfile.TemporaryDirectory() as root:
        data = write_dataset(
            env_id, "clinician", settings["episodes"], TRAINING + seed * 2**32, "oncology/clinician-v0", root=root
        )
        on_step(0.3)
        script, steps = HERE / "offline_d3rlpy.py", settings["steps"]
        command = [D3RLPY, script, data.path, "--out", policy, "--steps", steps, "--seed", seed]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"offline_d3rlpy.py failed:\n{done.stderr}")
    return []


def train(
    env_id: str,
    algorithm: str,
    engine: Engine,
    settings: Mapping[str, Any],
    seed: int,
    policy: Path,
    on_step: OnStep,
    tensorboard: str | None = None,
) -> Curve:
    """Train, write the policy, return the learning curve."""
    policy.parent.mkdir(parents=True, exist_ok=True)
    match algorithm:
        case "jax_ppo" | "guided_ppo":
            return jax_ppo(engine, settings, seed, policy, on_step)
        case "cloning":
            return cloning(engine, settings, seed, policy, on_step)
        case "cql":
            return cql(env_id, settings, seed, policy, on_step)
    # A copy to the bottom: SB3 writes into what it is given.
    return sb3(algorithm, env_id, engine, copy.deepcopy(dict(settings)), seed, policy, on_step, tensorboard)
