"""Policies as ONNX files, the safe exchange format: read, checked and written here, without the onnx package.

A policy file takes ``observation`` (n, F) float32. It answers ``scores`` (n, mask size) float32, of which the highest that
can be chosen is taken, part by part of the action; or, for dosing, ``action`` (n, D) float32, clipped to 0..1. An ONNX file is
a protobuf message: a sequence of numbered fields. We read as much of it as is needed to refuse what a policy has no use for
(files beside the file, chance, loops, operators of others), and let onnxruntime run the rest.
"""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.observations import Masks, Observations
from onco_gym.agents.protocol import AgentError
from onco_gym.foundation.files import replacing
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.registry import NAMESPACE
from onco_gym.version import __version__

LARGEST = 64 * 2**20
"""Bytes of a policy file; larger ones are refused."""
ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "elu": "Elu", "sigmoid": "Sigmoid", "softplus": "Softplus"}
"""Activations of :func:`save_mlp_onnx`, and the ONNX operators that they are."""
_OPSET, _IR = 17, 8
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_CHANCE = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_REPEATED = ("Loop", "Scan")
_DEEPEST = 32  # messages within messages
_OPERATOR, _DOMAIN, _EXTERNAL, _LOCATION = 4, 7, 13, 14
_PARTS: Mapping[str, Mapping[int, str]] = {  # fields of onnx.proto that can hold operators or numbers
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "training": {1: "graph", 2: "graph"},
    "tensor": {},
}


class Normalisation(NamedTuple):
    """``clip((observation - mean) / std, -clip, clip)``, before the first layer."""

    mean: NDArray[Any]  # (F,)
    std: NDArray[Any]  # (F,)
    clip: float | None = None


class OnnxAgent:
    """A policy in an ONNX file; see the module for what it takes and answers. Runs on one thread, and draws nothing.

    Args:
        source: the path of the file, or its bytes.
        engine: the environment that it is for.

    Raises:
        AgentError: for a file that is no such policy, with what was expected.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes, engine: Engine) -> None:
        self._name = "the policy" if isinstance(source, bytes) else str(source)
        content = source if isinstance(source, bytes) else _read(Path(source))
        _check(content, self._name)
        self._parts, self._output = parts(engine), output(engine)
        self._features, self._size = len(engine.kind.fields), engine.kind.mask_size
        self._session = _session(content, self._name)
        try:
            self.metadata: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
            self._check_shape(engine.id)
        except UnicodeDecodeError:
            raise AgentError(f"{self._name} holds names that are no text") from None

    def act(self, observation: Observations, mask: Masks) -> NDArray[Any]:
        """(n,) regimens, (n, parts) for the workflow, (n, D) intensities for dosing."""
        return choose(self.scores(observation), mask, self._parts)

    def scores(self, observation: Observations) -> NDArray[np.float32]:
        """(n, mask size): what the file answers."""
        batch = np.ascontiguousarray(observation, np.float32)
        try:
            answer = self._session.run([self._output], {"observation": batch})[0]
        except Exception as error:  # onnxruntime's own errors have no common ancestor
            raise AgentError(f"{self._name} fails on a batch of {len(batch)}: {_line(error)}") from None
        if answer.shape != (len(batch), self._size) or answer.dtype != np.float32:
            shape = f"{self._output} of {answer.dtype} and shape {answer.shape}"
            raise AgentError(f"{self._name} answers {shape}, expected float32 and shape {(len(batch), self._size)}")
        if not np.isfinite(answer).all():
            raise AgentError(f"{self._name} answers numbers that are not finite")
        return np.asarray(answer)

    def probabilities(self, observation: Observations, mask: Masks) -> NDArray[np.float64]:
        """(n, R) 1 for the regimen that is chosen; not for dosing or the workflow."""
        return certain(self.act(observation, mask), self._parts)

    def _check_shape(self, environment: str) -> None:
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        names = [one.name for one in inputs], [one.name for one in outputs]
        if names[0] != ["observation"] or self._output not in names[1]:
            expected = f"{environment} needs input 'observation' and output {self._output!r}"
            raise AgentError(f"{self._name} takes {names[0]} and answers {names[1]}: {expected}")
        shape = inputs[0].shape
        if inputs[0].type != "tensor(float)" or len(shape) != 2 or (isinstance(shape[1], int) and shape[1] != self._features):
            expected = f"{environment} gives float32 of shape (n, {self._features})"
            raise AgentError(f"{self._name} takes {inputs[0].type} of shape {tuple(shape)}: {expected}")
        if isinstance(shape[0], int):
            raise AgentError(f"{self._name} takes batches of {shape[0]} only: expected a batch axis that is free")
        for n in (1, 3):
            self.scores(np.zeros((n, self._features), np.float32))
        made_for = self.metadata.get("environment", environment)
        if made_for != environment:
            warnings.warn(f"{self._name} was made for {made_for} and is used on {environment}", stacklevel=3)


def parts(engine: Engine) -> tuple[int, ...] | None:
    """The sizes of an action's parts, whose choices stand in one row of the mask; None for dosing, which has none."""
    return tuple(engine.kind.parts.values()) or None


def output(engine: Engine) -> str:
    """What a policy file for this environment answers."""
    return "action" if parts(engine) is None else "scores"


def choose(scores: NDArray[np.float32], mask: Masks, sizes: tuple[int, ...] | None) -> NDArray[Any]:
    """The action of ``scores`` (n, mask size): the highest that can be chosen, part by part; intensities are clipped."""
    if sizes is None:
        return np.clip(scores, 0.0, 1.0)
    ends = np.cumsum(sizes)[:-1]
    best = [part.argmax(1) for part in np.split(np.where(mask, scores, -np.inf), ends, axis=1)]
    return best[0] if len(best) == 1 else np.stack(best, 1)


def certain(action: NDArray[Any], sizes: tuple[int, ...] | None) -> NDArray[np.float64]:
    """(n, R) 1 for the regimen ``action`` (n,) chooses."""
    if sizes is None or len(sizes) > 1:
        raise AgentError("probabilities are of regimens: dosing and the workflow have none")
    return np.eye(sizes[0])[action]


def save_mlp_onnx(
    path: str | os.PathLike[str],
    layers: Sequence[tuple[NDArray[Any], NDArray[Any]]],
    engine: Engine,
    activation: str = "tanh",
    normalisation: Normalisation | tuple[Any, ...] | None = None,
) -> None:
    """Write a multilayer perceptron as a policy file, and check that it loads.

    Args:
        path: of the file, ``.onnx``.
        layers: (weights (in, out), biases (out,)) of each layer; the activation stands between layers, not after the last.
        engine: the environment that the policy is for.
        activation: one of :data:`ACTIVATIONS`.
        normalisation: of observations, if the policy was trained with one.

    Raises:
        AgentError: for layers that do not fit each other or the environment.
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
        raise AgentError(f"the last layer answers {width} numbers, {engine.id} needs {engine.kind.mask_size}")
    content = written(operators, engine, None if normalisation is None else Normalisation(*normalisation))
    OnnxAgent(content, engine)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


class Operator(NamedTuple):
    """A step of a policy's computation."""

    name: str  # of the ONNX operator
    numbers: tuple[Any, ...] = ()  # its inputs besides what the step before it gave
    settings: Mapping[str, float] = {}  # its attributes


def written(operators: Sequence[Operator], engine: Engine, normalisation: Normalisation | None = None) -> bytes:
    """The policy file of ``operators``, one after the other, for an environment."""
    before = list[Operator]()
    if normalisation is not None:
        before += [Operator("Sub", (normalisation.mean,)), Operator("Div", (normalisation.std,))]
        if normalisation.clip is not None:
            before.append(Operator("Clip", (-normalisation.clip, normalisation.clip)))
    last, graph, steps = "observation", b"", [*before, *operators]
    for index, operator in enumerate(steps):
        given = [f"numbers_{index}_{place}" for place in range(len(operator.numbers))]
        result = output(engine) if index == len(steps) - 1 else f"step_{index}"
        graph += _field(1, _node(operator, [last, *given], result))
        graph += b"".join(_field(5, _tensor(*pair)) for pair in zip(given, operator.numbers, strict=True))
        last = result
    graph += _field(2, b"policy")
    graph += _field(11, _value("observation", len(engine.kind.fields))) + _field(12, _value(last, engine.kind.mask_size))
    model = _field(1, _IR) + _field(7, graph) + _field(8, _field(1, b"") + _field(2, _OPSET))
    return labelled(model, engine)


def labelled(model: bytes, engine: Engine) -> bytes:
    """An ONNX file with who wrote it and for which environment; later fields of a message count, so they are put behind."""
    labels = {"environment": engine.id, "card_digest": engine.scenario.digest, "onco_gym": __version__}
    pairs = (_field(14, _field(1, key.encode()) + _field(2, value.encode())) for key, value in labels.items())
    return model + _field(2, NAMESPACE.encode()) + _field(3, __version__.encode()) + b"".join(pairs)


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise AgentError(f"there is no policy file {str(path)!r}")
    if path.stat().st_size > LARGEST:
        raise AgentError(f"{path} has {path.stat().st_size} bytes, expected at most {LARGEST}")
    return path.read_bytes()


def _session(content: bytes, name: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise AgentError(f'policy files need onnxruntime: pip install "onco_gym[onnx]" ({error})') from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # what goes wrong is in the error
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors have no common ancestor
        raise AgentError(f"{name} is no ONNX model that can be run: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _check(content: bytes, name: str) -> None:
    """Refuse what is no ONNX file, and what a policy has no use for."""
    if len(content) > LARGEST:
        raise AgentError(f"{name} has {len(content)} bytes, expected at most {LARGEST}")
    try:
        for kind, fields in _messages("model", memoryview(content), 0):
            if kind == "tensor" and (_EXTERNAL in fields or fields.get(_LOCATION, 0)):
                raise AgentError(f"{name} keeps numbers in another file: expected all of them in the file itself")
            if kind == "node":
                operator, domain = (bytes(fields.get(key, b"")).decode() for key in (_OPERATOR, _DOMAIN))
                if domain not in _DOMAINS:
                    raise AgentError(f"{name} uses operator {operator!r} of {domain!r}: expected those of ONNX itself")
                if operator in _CHANCE or operator in _REPEATED:
                    what = "draws by chance" if operator in _CHANCE else "repeats itself"
                    raise AgentError(f"{name} {what} ({operator}): expected a policy that computes its answer in one pass")
    except (_NotOnnxError, UnicodeDecodeError, TypeError):
        raise AgentError(f"{name} is no ONNX file, or is cut short") from None


class _NotOnnxError(Exception):
    """Bytes that are no such message."""


def _messages(kind: str, content: memoryview, depth: int) -> Iterator[tuple[str, dict[int, Any]]]:
    """Every message that can hold operators or numbers: its kind, and the last value of each of its fields."""
    if depth > _DEEPEST:
        raise _NotOnnxError
    fields: dict[int, Any] = {}
    for number, value in _fields(content):
        inner = _PARTS[kind].get(number)
        if inner is None:
            # Of a field that comes twice the last counts; a tensor's location is refused wherever it stands.
            fields[number] = fields.get(number) or value if number == _LOCATION else value
        elif isinstance(value, int):
            raise _NotOnnxError
        else:
            yield from _messages(inner, value, depth + 1)
    if kind == "model" and not fields.get(1):  # the version of the format
        raise _NotOnnxError
    yield kind, fields


def _fields(content: memoryview) -> Iterator[tuple[int, Any]]:
    """(number, whole number or bytes) of a message's fields."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(content, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(content, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise _NotOnnxError
        if at + size > len(content):
            raise _NotOnnxError
        yield key >> 3, content[at : at + size]
        at += size


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at + place >= len(content):
            break
        byte = content[at + place]
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise _NotOnnxError


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _packed(number << 3) + _packed(value)
    return _packed(number << 3 | 2) + _packed(len(value)) + value


def _packed(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tensor(name: str, numbers: Any) -> bytes:
    values = np.asarray(numbers, "<f4")
    sizes = b"".join(_field(1, size) for size in values.shape)
    return sizes + _field(2, 1) + _field(8, name.encode()) + _field(9, values.tobytes())


def _node(operator: Operator, inputs: Sequence[str], result: str) -> bytes:
    text = b"".join(_field(1, name.encode()) for name in inputs) + _field(2, result.encode()) + _field(4, operator.name.encode())
    for name, value in operator.settings.items():
        number = _packed(2 << 3 | 5) + np.float32(value).tobytes()
        text += _field(5, _field(1, name.encode()) + number + _field(20, 1))
    return text


def _value(name: str, width: int) -> bytes:
    """A float32 array of shape (n, width)."""
    shape = _field(1, _field(2, b"n")) + _field(1, _field(1, width))
    return _field(1, name.encode()) + _field(2, _field(1, _field(1, 1) + _field(2, shape)))
