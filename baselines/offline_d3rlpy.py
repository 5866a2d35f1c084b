"""Learn a policy from a Minari dataset with d3rlpy, and save it as ONNX.

This script runs in its own virtual environment, without onco_gym, because d3rlpy pins an older Gymnasium. Install it with
``make .venv-d3rlpy/.installed``, then run

    .venv-d3rlpy/bin/python baselines/offline_d3rlpy.py ~/.minari/datasets/oncology/nsclc/clinician-v0 --out cql.onnx
    onco-gym rollout cql.onnx --env NSCLC

The dataset must come from ``onco-gym dataset``, with regimens as actions. The ONNX file takes ``observation`` (n, F) float32 and
returns ``scores`` (n, R) float32: Q values, or logits for behaviour cloning. Rewards are used as recorded, times a constant.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import d3rlpy
import h5py
import numpy as np
import structlog
import torch
from d3rlpy.algos import DiscreteBCConfig, DiscreteCQLConfig
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models.encoders import VectorEncoderFactory


def main() -> None:
    """Read, learn, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="folder of the dataset")
    parser.add_argument("--algo", choices=("cql", "bc"), default="cql", help="conservative Q-learning, or behaviour cloning")
    parser.add_argument("--steps", type=int, default=20_000, help="gradient steps; by default 20000")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alpha", type=float, default=0.5, help="weight of CQL's conservative term; by default 0.5")
    parser.add_argument("--gamma", type=float, default=0.99, help="discount per cycle; by default 0.99")
    parser.add_argument("--scale", type=float, default=10.0, help="rewards are multiplied by this; by default 10")
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256], help="units of each layer")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.onnx")
    arguments = parser.parse_args()
    if not arguments.out.absolute().parent.is_dir():
        sys.exit(f"{arguments.out}: the folder does not exist")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))  # d3rlpy's logger
    torch.set_num_threads(1)  # small networks are slower with more threads
    d3rlpy.seed(arguments.seed)

    episodes, about = read(arguments.dataset)
    regimens = action_count(about)
    features = episodes[0].observations.shape[1]
    steps = sum(len(episode) for episode in episodes)
    print(f"{len(episodes)} episodes, {steps} steps of {about['dataset_id']}: {features} numbers seen, {regimens} regimens")
    dataset = d3rlpy.dataset.ReplayBuffer(
        d3rlpy.dataset.InfiniteBuffer(), episodes=episodes, action_space=d3rlpy.ActionSpace.DISCRETE, action_size=regimens
    )
    encoder = VectorEncoderFactory(arguments.hidden)
    if arguments.algo == "cql":
        # Rewards are scaled, never shifted: a shift would reward a long life, or a short one.
        scaler = d3rlpy.preprocessing.MultiplyRewardScaler(arguments.scale)
        config = DiscreteCQLConfig(
            learning_rate=3e-4,
            batch_size=256,
            gamma=arguments.gamma,
            alpha=arguments.alpha,
            target_update_interval=1000,
            encoder_factory=encoder,
            reward_scaler=scaler,
        )
    else:
        config = DiscreteBCConfig(learning_rate=3e-4, batch_size=256, beta=0.0, encoder_factory=encoder)
    algorithm = config.create(device=False)
    begun = time.monotonic()
    history = algorithm.fit(
        dataset,
        n_steps=arguments.steps,
        n_steps_per_epoch=arguments.steps // max(1, arguments.steps // 5000),
        logger_adapter=NoopAdapterFactory(),
        show_progress=True,
    )
    last = ", ".join(f"{name} {value:.4g}" for name, value in history[-1][1].items() if "loss" in name)
    print(f"{arguments.steps} steps in {time.monotonic() - begun:.0f} s; last epoch: {last}")

    policy = Scores(algorithm).eval()
    export(policy, features, arguments.out)
    observations = torch.from_numpy(np.concatenate([episode.observations for episode in episodes[:200]]))
    actions = np.concatenate([episode.actions[:, 0] for episode in episodes[:200]])
    with torch.no_grad():
        same = float(np.mean(policy(observations).argmax(1).numpy() == actions))
    print(f"first choice is the recorded one in {same:.1%} of 200 episodes' steps; wrote {arguments.out}")


def read(folder: Path) -> tuple[list[d3rlpy.dataset.Episode], dict]:
    """The episodes of a Minari dataset and its metadata, without Minari."""
    data = folder if (folder / "main_data.hdf5").is_file() else folder / "data"
    if not (data / "main_data.hdf5").is_file():
        sys.exit(f"{folder} is not a Minari dataset in HDF5")
    about = json.loads((data / "metadata.json").read_text())
    episodes = []
    with h5py.File(data / "main_data.hdf5") as file:
        for index in range(about["total_episodes"]):
            group = file[f"episode_{index}"]
            rewards = group["rewards"][()]
            if rewards.ndim != 1:
                sys.exit(f"{folder} has vector rewards: d3rlpy needs a number")
            episodes.append(
                d3rlpy.dataset.Episode(
                    # The observation after the last step is left out: d3rlpy does not look beyond a death, and ends a
                    # truncated episode one transition earlier.
                    observations=group["observations"][:-1].astype(np.float32),
                    actions=group["actions"][()].reshape(len(rewards), -1),
                    rewards=rewards[:, None].astype(np.float32),
                    terminated=bool(group["terminations"][-1]),
                )
            )
    return episodes, about


def action_count(about: dict) -> int:
    """The number of regimens. Only environments whose action is a regimen are supported."""
    space = about["action_space"]
    space = json.loads(space) if isinstance(space, str) else space
    if space.get("type") != "Discrete":
        sys.exit(f"the action space is {space.get('type')}, expected Discrete: an environment whose action is a regimen")
    return int(space["n"])


class Scores(torch.nn.Module):
    """The algorithm's score of each regimen: the mean of its Q functions, or logits."""

    def __init__(self, algorithm: d3rlpy.algos.QLearningAlgoBase) -> None:
        super().__init__()
        modules = algorithm.impl.modules
        self.members = modules.q_funcs if hasattr(modules, "q_funcs") else torch.nn.ModuleList([modules.imitator])

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """(n, F) to (n, R)."""
        answers = [member(observation) for member in self.members]
        return torch.stack([one.q_value if hasattr(one, "q_value") else one.logits for one in answers]).mean(0)


def export(policy: Scores, features: int, path: Path) -> None:
    """Write the policy atomically, and check that the file gives the same answers as the policy."""
    import onnxruntime

    handle, name = tempfile.mkstemp(dir=path.absolute().parent, suffix=".onnx")
    os.close(handle)
    try:
        free = {0: "n"}
        torch.onnx.export(
            policy,
            (torch.zeros(2, features),),
            name,
            input_names=["observation"],
            output_names=["scores"],
            dynamic_axes={"observation": free, "scores": free},
            opset_version=17,
            dynamo=False,
        )
        batch = np.random.default_rng(0).random((7, features), np.float32)
        answer = onnxruntime.InferenceSession(name, providers=["CPUExecutionProvider"]).run(["scores"], {"observation": batch})[0]
        with torch.no_grad():
            np.testing.assert_allclose(answer, policy(torch.from_numpy(batch)).numpy(), rtol=1e-4, atol=1e-4)
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
