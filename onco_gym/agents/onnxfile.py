"""Policies as ONNX files, the safe exchange format.

A policy file takes ``observation`` (n, F) float32. It returns ``scores`` (n, mask size) float32; for each part of the action,
the choice with the highest score that the mask allows is taken. For dosing it returns ``action`` (n, D) float32, clipped to
0..1. A recurrent policy also takes ``state_in`` (n, S) float32, zeros when an episode begins, and returns ``state_out`` (n, S),
which it is given back at the next visit. :mod:`onco_gym.agents.onnx_check` checks a file before
:mod:`onco_gym.agents.onnx_policy` runs it. Files written here end with a checksum, which detects damage, not malice.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.observations import Masks, Observations
from onco_gym.agents.onnx_check import package, sealed, unsealed
from onco_gym.agents.onnx_policy import LARGEST, Ends, OnnxPolicy
from onco_gym.agents.protocol import AgentError
from onco_gym.foundation.files import replacing
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.registry import NAMESPACE
from onco_gym.version import __version__

ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "elu": "Elu", "sigmoid": "Sigmoid", "softplus": "Softplus"}
"""Activations of :func:`save_mlp_onnx`, and their ONNX operators."""
_OPSET, _IR = 17, 8


class Normalisation(NamedTuple):
    """``clip((observation - mean) / std, -clip, clip)``, before the first layer."""

    mean: NDArray[Any]  # (F,)
    std: NDArray[Any]  # (F,)
    clip: float | None = None


class OnnxAgent:
    """A policy in an ONNX file; see the module for its input and output. It runs on one thread and is deterministic.

    Args:
        engine: the environment that it is for.
        source: the path of the file, or its bytes.

    Attributes:
        metadata: the properties of the file, without its checksum.
        remembers: whether the policy is recurrent. It is then called for whole episodes, in order, with the same patients in
            the same rows. Patients at cycle 0 are new to it.

    Raises:
        AgentError: if the file is not such a policy.
    """

    def __init__(self, engine: Engine, source: str | os.PathLike[str] | bytes) -> None:
        name = "the policy" if isinstance(source, bytes) else str(source)
        content = source if isinstance(source, bytes) else _read(Path(source))
        self._policy = OnnxPolicy(content, name, ends_of(engine))
        self.metadata, self._parts = self._policy.metadata, tuple(engine.kind.parts.values())
        self._memory = Memory(engine, self._policy.memory)
        self.remembers = self._policy.memory > 0
        made_for = self.metadata.get("environment", engine.id)
        if made_for != engine.id:
            warnings.warn(f"{name} was made for {made_for} but is used on {engine.id}", stacklevel=2)

    def act(self, observation: Observations, mask: Masks) -> NDArray[Any]:
        """(n,) regimens, (n, parts) for the workflow, (n, D) intensities for dosing."""
        return choose(self.scores(observation), mask, self._parts)

    def scores(self, observation: Observations) -> NDArray[np.float32]:
        """(n, mask size): the output of the file. To a recurrent policy this is a visit, as :meth:`act` is."""
        scores, after = self._policy.run(observation, self._memory.of(observation))
        self._memory.keep(after)
        return scores

    def restart(self) -> None:
        """Forget all patients."""
        self._memory.keep(None)

    def probabilities(self, observation: Observations, mask: Masks) -> NDArray[np.float64]:
        """(n, R) 1 for the regimen that is chosen; not for dosing or the workflow."""
        return certain(self.act(observation, mask), self._parts)


class Memory:
    """What a recurrent policy remembers of patients.

    Args:
        engine: the environment.
        width: how many numbers it remembers of each; 0 if it is not recurrent.
    """

    def __init__(self, engine: Engine, width: int) -> None:
        self._width, self._state = width, np.zeros((0, width), np.float32)
        self._cycle = next(field.index for field in engine.kind.fields if field.name == "cycle")

    def of(self, observation: Observations) -> NDArray[np.float32]:
        """(n, width) of the patients in ``observation`` (n, F): zeros for those at cycle 0, and for a batch of another size."""
        n = len(observation)
        if not self._width or len(self._state) != n:
            return np.zeros((n, self._width), np.float32)
        return np.where(observation[:, [self._cycle]] > 0, self._state, np.float32(0))

    def keep(self, state: NDArray[np.float32] | None) -> None:
        """Remember ``state`` (n, width), or nothing."""
        self._state = np.zeros((0, self._width), np.float32) if state is None else state


def ends_of(engine: Engine) -> Ends:
    """What an environment gives to a policy file, and what it takes."""
    return Ends(engine.id, len(engine.kind.fields), output(engine), engine.kind.mask_size)


def output(engine: Engine) -> str:
    """The name of the output of a policy file for this environment."""
    return "scores" if engine.kind.parts else "action"


def choose(scores: NDArray[np.float32], mask: Masks, sizes: Sequence[int]) -> NDArray[Any]:
    """The action of ``scores`` (n, mask size): the best allowed choice of each part; intensities are clipped."""
    if not sizes:
        return np.clip(scores, 0.0, 1.0)
    ends = np.cumsum(sizes)[:-1]
    best = [part.argmax(1) for part in np.split(np.where(mask, scores, -np.inf), ends, axis=1)]
    return best[0] if len(best) == 1 else np.stack(best, 1)


def certain(action: NDArray[Any], sizes: Sequence[int]) -> NDArray[np.float64]:
    """(n, R) 1 for the regimen that ``action`` (n,) chooses."""
    if len(sizes) != 1:
        raise AgentError("probabilities are only defined for regimens, not for dosing or the workflow")
    return np.eye(sizes[0])[action]


def save_mlp_onnx(
    path: str | os.PathLike[str],
    engine: Engine,
    layers: Sequence[tuple[NDArray[Any], NDArray[Any]]],
    activation: str = "tanh",
    normalisation: Normalisation | tuple[Any, ...] | None = None,
) -> None:
    """Write a multilayer perceptron as a policy file, and check that it loads.

    Args:
        path: where to write the file, ``.onnx``.
        engine: the environment that the policy is for.
        layers: (weights (in, out), biases (out,)) of each layer; the activation comes between layers, not after the last.
        activation: one of :data:`ACTIVATIONS`.
        normalisation: of the observations, if the policy was trained with one.

    Raises:
        AgentError: if the layers do not fit each other or the environment.
    """
    if activation not in ACTIVATIONS:
        raise AgentError(f"activation is {activation!r}, expected one of {', '.join(ACTIVATIONS)}")
    width, operators = len(engine.kind.fields), list[Operator]()
    for index, (weights, biases) in enumerate(layers):
        if np.ndim(weights) != 2 or np.shape(weights)[0] != width or np.shape(biases) != (np.shape(weights)[1],):
            shapes = f"weights of shape {np.shape(weights)} and biases of shape {np.shape(biases)}"
            raise AgentError(f"layer {index} has {shapes}, expected ({width}, out) and (out,)")
        operators += [Operator(ACTIVATIONS[activation])] if index else []
        operators.append(Operator("Gemm", (weights, biases)))
        width = np.shape(weights)[1]
    if width != engine.kind.mask_size:
        raise AgentError(f"the last layer returns {width} numbers, expected {engine.kind.mask_size} for {engine.id}")
    content = written(operators, engine, None if normalisation is None else Normalisation(*normalisation))
    OnnxAgent(engine, content)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


class Operator(NamedTuple):
    """A step of a policy's computation."""

    name: str  # name of the ONNX operator
    numbers: tuple[Any, ...] = ()  # its inputs other than the result of the previous step
    settings: Mapping[str, float] = {}  # its attributes


def written(operators: Sequence[Operator], engine: Engine, normalisation: Normalisation | None = None) -> bytes:
    """A policy file that applies ``operators`` in order, for an environment."""
    before = list[Operator]()
    if normalisation is not None:
        before += [Operator("Sub", (normalisation.mean,)), Operator("Div", (normalisation.std,))]
        if normalisation.clip is not None:
            before.append(Operator("Clip", (-normalisation.clip, normalisation.clip)))
    onnx, last, nodes, numbers = package(), "observation", [], []
    for index, operator in enumerate(steps := [*before, *operators]):
        arrays = [np.asarray(one, np.float32) for one in operator.numbers]
        numbers += (given := [onnx.numpy_helper.from_array(one, f"numbers_{index}_{place}") for place, one in enumerate(arrays)])
        names, result = [last, *(one.name for one in given)], output(engine) if index == len(steps) - 1 else f"step_{index}"
        settings = {name: float(value) for name, value in operator.settings.items()}
        nodes.append(onnx.helper.make_node(operator.name, names, [result], **settings))
        last = result
    sizes = {"observation": len(engine.kind.fields), last: engine.kind.mask_size}
    ends = [[onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])] for name, size in sizes.items()]
    graph = onnx.helper.make_graph(nodes, "policy", *ends, numbers)
    model = onnx.helper.make_model(graph, ir_version=_IR, opset_imports=[onnx.helper.make_opsetid("", _OPSET)])
    return labelled(model.SerializeToString(), engine)


def labelled(model: bytes, engine: Engine) -> bytes:
    """An ONNX file with its producer, its environment and a checksum."""
    onnx = package()
    labels = {"environment": engine.id, "card_digest": engine.scenario.digest, "onco_gym": __version__}
    made = onnx.ModelProto.FromString(unsealed(model))
    made.producer_name, made.producer_version = NAMESPACE, __version__
    onnx.helper.set_model_props(made, {one.key: one.value for one in made.metadata_props} | labels)
    return sealed(made.SerializeToString(deterministic=True))


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise AgentError(f"there is no policy file {str(path)!r}")
    with path.open("rb") as file:
        return file.read(LARGEST + 1)
