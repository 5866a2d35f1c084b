"""Models of Stable-Baselines3 as agents, and their export to ONNX.

An SB3 model (``model.zip``) and the statistics of ``VecNormalize`` (``vecnormalize.pkl``) are unpickled, which can run any code
in them. Use them only on your own machine, with files you trust. If someone else gives you a policy, ask for ONNX.
"""

import json
import os
import pickle
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from onco_gym.agents.episodes import rollout
from onco_gym.agents.makers import make_named
from onco_gym.agents.observations import Masks, Observations
from onco_gym.agents.onnxfile import Normalisation, OnnxAgent, Operator, certain, choose, labelled, output, written
from onco_gym.agents.protocol import Agent, AgentError
from onco_gym.foundation.files import replacing
from onco_gym.interfaces.engine import Engine

STATISTICS = "vecnormalize.pkl"
"""The file beside a model that holds the statistics of ``VecNormalize``."""
_PATIENTS = 128  # patients on whom an export is checked, twice each: more than a thousand visits
_AGREE = 0.999  # share of visits on which both must agree; the rest are ties
_CLOSE = 1e-4  # largest difference of scores, relative to the largest score


class Sb3Agent:
    """A model of Stable-Baselines3 that takes its best choice: PPO, A2C, MaskablePPO, DQN, SAC, TD3 or DDPG.

    It never takes a choice that the mask forbids, even if the model was trained without masks.

    Args:
        engine: the environment that it is for.
        model: the model. Its policy must be a multilayer perceptron; it can have its own features extractor.
        vecnormalize: the ``VecNormalize`` that it was trained with.

    Raises:
        AgentError: if the model does not fit the environment.
    """

    def __init__(self, engine: Engine, model: Any, vecnormalize: Any = None) -> None:
        seen, features = model.observation_space.shape, (len(engine.kind.fields),)
        if seen != features:
            raise AgentError(f"the model sees observations of shape {seen}: {engine.id} gives {features}")
        if model.action_space != engine.kind.space:
            raise AgentError(f"the model has actions {model.action_space}, expected {engine.kind.space} for {engine.id}")
        self.model, self.vecnormalize = model, vecnormalize
        self.normalisation = _normalisation(vecnormalize, features)
        self.layers = _layers(model)
        self.network = _network(self.layers, self.normalisation)
        self._parts = tuple(engine.kind.parts.values())
        model.policy.set_training_mode(False)
        self._check()

    @classmethod
    def load(cls, engine: Engine, path: str | os.PathLike[str], vecnormalize: str | os.PathLike[str] | None = None) -> "Sb3Agent":
        """The model in ``path``, with the statistics in ``vecnormalize``, by default :data:`STATISTICS` in the same folder.

        Both are unpickled: load only what you trust.
        """
        file = Path(path)
        beside = file.parent / STATISTICS
        statistics = Path(vecnormalize) if vecnormalize is not None else beside if beside.is_file() else None
        algorithm = _algorithm(file)
        warnings.warn(f"{file} is unpickled, which can run any code in it: load only models you trust", stacklevel=2)
        unused: dict[str, Any] = dict.fromkeys(("lr_schedule", "clip_range", "exploration_schedule"), _never)
        unused |= {"learning_rate": 0.0, "buffer_size": 1}  # used in training only; may not load in another version of Python
        try:
            model = algorithm.load(file, device="cpu", custom_objects=unused)
            normalise = None if statistics is None else _unpickled(statistics)
        except AgentError:
            raise
        except Exception as error:  # whatever the pickles in it raise
            raise AgentError(f"{file} cannot be loaded as a model of {algorithm.__name__}: {_line(error)}") from None
        return cls(engine, model, normalise)

    def act(self, observation: Observations, mask: Masks) -> NDArray[Any]:
        """(n,) regimens, (n, parts) for the workflow, (n, D) intensities for dosing."""
        return choose(self.scores(observation), mask, self._parts)

    def scores(self, observation: Observations) -> NDArray[np.float32]:
        """(n, mask size) logits or action values; intensities for dosing."""
        import torch

        with torch.no_grad():
            return np.asarray(self.network(torch.tensor(observation, dtype=torch.float32)).numpy())

    def probabilities(self, observation: Observations, mask: Masks) -> NDArray[np.float64]:
        """(n, R) 1 for the regimen that is chosen; not for dosing or the workflow."""
        return certain(self.act(observation, mask), self._parts)

    def predicted(self, observation: Observations, mask: Masks) -> NDArray[Any]:
        """The result of SB3's own ``predict``, with masks if the model uses them."""
        seen = observation if self.vecnormalize is None else self.vecnormalize.normalize_obs(observation)
        knows = {"action_masks": mask} if _masked(self.model) else {}
        answer: NDArray[Any] = self.model.predict(seen, deterministic=True, **knows)[0]
        return answer

    def _check(self) -> None:
        """Check the layers against ``predict``. They differ where a policy's methods do more than its layers."""
        shape = self.model.observation_space.shape
        observation = np.random.default_rng(0).random((64, *shape), np.float32)
        everything = np.ones((64, sum(self._parts) or 1), bool)
        if _agreement(self.act(observation, everything), self.predicted(observation, everything)) < 0.95:
            raise AgentError(f"{type(self.model.policy).__name__} does not choose what its layers compute, expected an MlpPolicy")


def export(
    path: str | os.PathLike[str],
    engine: Engine,
    model: "str | os.PathLike[str] | Sb3Agent",
    vecnormalize: str | os.PathLike[str] | None = None,
) -> None:
    """Write an SB3 model, including its normalisation, as an ONNX file, and check that the file chooses what the model chooses.

    Args:
        path: where to write the policy.
        engine: the environment that it is for.
        model: the path of a ``.zip`` file, which is unpickled, so use one you trust; or an :class:`Sb3Agent`.
        vecnormalize: statistics of ``VecNormalize``; by default :data:`STATISTICS` in the model's folder, if it exists.

    Raises:
        AgentError: if the model cannot be loaded or written, or if file and model do not agree on the visits of
            simulated patients. In that case nothing is written.
    """
    agent = model if isinstance(model, Sb3Agent) else Sb3Agent.load(engine, model, vecnormalize)
    operators = _operators(agent.layers)
    with replacing(path) as temporary:
        if operators is not None:
            temporary.write_bytes(written(operators, engine, agent.normalisation))
        else:
            _trace(agent, temporary, engine)
            temporary.write_bytes(labelled(temporary.read_bytes(), engine))
        _compare(agent, OnnxAgent(engine, temporary.read_bytes()), engine)


class _Layers(NamedTuple):
    """What a policy computes from a normalised observation."""

    modules: tuple[Any, ...]  # torch modules, applied in order
    squashed: bool = False  # whether tanh comes after them
    scaled: bool = False  # whether -1..1 is then scaled to intensities, 0..1


def _layers(model: Any) -> _Layers:
    policy, scaled = model.policy, isinstance(model.action_space, spaces.Box)
    kind = type(model).__name__
    if hasattr(policy, "lstm_actor"):
        raise AgentError(f"{kind} is recurrent, expected a policy that needs one observation only")
    if hasattr(policy, "action_net") and hasattr(policy.mlp_extractor, "policy_net"):  # PPO, A2C, MaskablePPO
        modules = (policy.pi_features_extractor, policy.mlp_extractor.policy_net, policy.action_net)
        return _Layers(modules, policy.squash_output, policy.squash_output and scaled)
    if hasattr(policy, "q_net"):  # DQN
        return _Layers((policy.q_net.features_extractor, policy.q_net.q_net))
    if hasattr(policy, "actor") and hasattr(policy.actor, "latent_pi"):  # SAC
        return _Layers((policy.actor.features_extractor, policy.actor.latent_pi, policy.actor.mu), True, scaled)
    if hasattr(policy, "actor") and hasattr(policy.actor, "mu"):  # TD3, DDPG: their mu ends in tanh
        return _Layers((policy.actor.features_extractor, policy.actor.mu), False, scaled)
    raise AgentError(f"the policy is a {kind}, expected one of PPO, A2C, MaskablePPO, DQN, SAC, TD3 or DDPG")


def _operators(layers: _Layers) -> list[Operator] | None:
    """The layers as ONNX operators; None if we cannot write one of them."""
    try:
        found = [operator for module in layers.modules for operator in _operators_of(module)]
    except KeyError:
        return None
    found += [Operator("Tanh")] if layers.squashed else []
    return found + ([Operator("Add", (1.0,)), Operator("Mul", (0.5,))] if layers.scaled else [])


def _operators_of(module: Any) -> list[Operator]:
    """A torch module as ONNX operators; KeyError if we cannot write it."""
    from stable_baselines3.common.torch_layers import FlattenExtractor
    from torch import nn

    kind = type(module)  # a subclass may do something else
    if kind is nn.Sequential:
        return [operator for one in module for operator in _operators_of(one)]
    if kind in (FlattenExtractor, nn.Flatten, nn.Identity, nn.Dropout):  # no effect on rows of numbers, or in inference
        return []
    if kind is nn.Linear:
        weights = module.weight.detach().numpy().T
        biases = np.zeros(weights.shape[1]) if module.bias is None else module.bias.detach().numpy()
        return [Operator("Gemm", (weights, biases))]
    if kind is nn.ELU:
        return [Operator("Elu", (), {"alpha": module.alpha})]
    if kind is nn.LeakyReLU:
        return [Operator("LeakyRelu", (), {"alpha": module.negative_slope})]
    if kind is nn.Hardtanh:
        return [Operator("Clip", (module.min_val, module.max_val))]
    return [Operator({nn.Tanh: "Tanh", nn.ReLU: "Relu", nn.Sigmoid: "Sigmoid"}[kind])]


def _trace(agent: Sb3Agent, path: Path, engine: Engine) -> None:
    """Write a network with custom layers, using torch's exporter."""
    import torch

    free = {"observation": {0: "n"}, output(engine): {0: "n"}}
    example = torch.zeros(2, len(engine.kind.fields))
    names: dict[str, Any] = {"input_names": ["observation"], "output_names": [output(engine)], "dynamic_axes": free}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(agent.network, (example,), str(path), opset_version=17, dynamo=False, **names)
    except Exception as error:  # torch raises many kinds
        raise AgentError(f"torch cannot write this network: {_line(error)}") from None


def _compare(agent: Sb3Agent, policy: OnnxAgent, engine: Engine) -> None:
    """Refuse a policy that differs from its model on patients of the environment."""
    observation, mask = _visits(engine, policy)
    model, file = agent.scores(observation), policy.scores(observation)
    apart = float(np.abs(model - file).max())
    if apart > _CLOSE * (1 + float(np.abs(model).max())):
        raise AgentError(f"the file and the model differ by {apart:.2g} on {len(observation)} observations: nothing was written")
    everything = mask if _masked(agent.model) else np.ones_like(mask)
    pairs = {
        "model": (policy.act(observation, mask), agent.act(observation, mask)),
        "predict": (policy.act(observation, everything), agent.predicted(observation, everything)),
    }
    for name, (ours, theirs) in pairs.items():
        share = _agreement(ours, theirs)
        if share < _AGREE:
            expected = f"agree on {share:.2%} of {len(observation)} observations, expected {_AGREE:.1%}"
            raise AgentError(f"the file and the model's {name} {expected}: nothing was written")


def _visits(engine: Engine, agent: Agent) -> tuple[Observations, Masks]:
    """Observations and masks of patients treated by ``agent``, and of the same patients treated at random."""
    seen, masks = [], []
    for one in (agent, make_named(engine, "random")):
        steps = rollout(engine, one, _PATIENTS, keep_steps=True).steps
        assert steps is not None
        there = np.arange(len(steps.rewards))[:, None] < steps.lengths
        seen.append(steps.observations[:-1][there])
        masks.append(steps.masks[:-1][there])
    return np.concatenate(seen), np.concatenate(masks)


def _agreement(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """The share of rows with the same action."""
    same = np.abs(ours - theirs) <= _CLOSE if ours.dtype.kind == "f" else ours == theirs
    return float(same.reshape(len(ours), -1).all(1).mean())


def _algorithm(path: Path) -> Any:
    """The algorithm of a saved model, read from its settings. They are text; nothing is unpickled."""
    if not path.is_file():
        raise AgentError(f"there is no model {str(path)!r}")
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("data"))
        policy = str(data["policy_class"].get("__module__", ""))
        buffer = str((data.get("rollout_buffer_class") or {}).get("__module__", ""))
    except (zipfile.BadZipFile, KeyError, ValueError, AttributeError, TypeError, OSError, EOFError, zlib.error) as error:
        raise AgentError(f"{path} is not a model of Stable-Baselines3, or is damaged ({_line(error)})") from None
    try:
        import sb3_contrib
        import stable_baselines3 as sb3
    except ImportError as error:
        raise AgentError(f'models of Stable-Baselines3 need the sb3 extra: pip install "onco_gym[sb3]" ({error})') from None
    known = {"policy_delay": sb3.TD3, "target_entropy": sb3.SAC, "exploration_fraction": sb3.DQN}
    known |= {"n_epochs": sb3_contrib.MaskablePPO if "maskable" in buffer else sb3.PPO, "gae_lambda": sb3.A2C}
    strange = policy.startswith("sb3_contrib.") and "maskable" not in policy
    found = None if strange else next((made for key, made in known.items() if key in data), None)
    if found is None:
        raise AgentError(f"the policy in {path} is from {policy!r}, expected one of PPO, A2C, MaskablePPO, DQN, SAC, TD3 or DDPG")
    return found


def _masked(model: Any) -> bool:
    return type(model).__name__ == "MaskablePPO"


def _unpickled(path: Path) -> Any:
    from stable_baselines3.common.vec_env import VecNormalize

    if not path.is_file():
        raise AgentError(f"there is no file {str(path)!r} with statistics of VecNormalize")
    try:
        loaded = pickle.loads(path.read_bytes())
    except Exception as error:  # whatever the pickle raises
        raise AgentError(f"{path} holds no statistics of VecNormalize, or is damaged ({_line(error)})") from None
    if not isinstance(loaded, VecNormalize):
        raise AgentError(f"{path} holds a {type(loaded).__name__}, expected a saved VecNormalize")
    return loaded


def _normalisation(vecnormalize: Any, shape: tuple[int, ...]) -> Normalisation | None:
    if vecnormalize is None or not vecnormalize.norm_obs:
        return None
    statistics = vecnormalize.obs_rms
    if statistics.mean.shape != shape:
        raise AgentError(f"the statistics are of observations of shape {statistics.mean.shape}, expected {shape}")
    return Normalisation(statistics.mean, np.sqrt(statistics.var + vecnormalize.epsilon), float(vecnormalize.clip_obs))


def _network(layers: _Layers, normalisation: Normalisation | None) -> Any:
    """Everything from observation to scores as one torch module."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(*layers.modules)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            if normalisation is not None:
                values = ((values - mean) / std).clamp(-clip, clip)
            values = self.layers(values)
            values = values.tanh() if layers.squashed else values
            return 0.5 * (values + 1.0) if layers.scaled else values

    mean, std = (torch.as_tensor(part, dtype=torch.float32) for part in (normalisation or (0.0, 1.0))[:2])
    clip = float(normalisation.clip or np.inf) if normalisation else np.inf
    return Network().eval()


def _never(_: float) -> float:
    return 0.0


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
