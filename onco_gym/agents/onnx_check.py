"""Checks a policy file before onnxruntime runs it, so that a damaged or hostile one ends in an error.

:class:`Model` reads a file with the onnx package and refuses what a policy does not need. It works out the shape of everything
that the file computes, and refuses a file that would take too much memory or time: a few bytes can ask for gigabytes.

Files that this package writes end with a checksum, see :func:`sealed`. It detects damage, not malice: anyone who
changes a file can also write a new checksum or leave it out. Files without one, such as those of other exporters, are read too.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.protocol import AgentError

NODES = 2048
"""Operators that a file may have."""
NUMBERS = 2**26
"""Numbers, of at most 8 bytes each, that a file may hold and compute for a batch. Larger batches are computed in pieces."""
WORK = 2**30
"""Multiplications allowed for each patient of a batch. Reading or writing a number counts as 16 of them."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_REDUCTIONS = frozenset(f"Reduce{name}" for name in _words("L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"))
OPERATORS = _REDUCTIONS | _words(
    """Abs Add And ArgMax ArgMin BatchNormalization Cast Ceil Celu Clip Concat Constant ConstantOfShape Cos Div Elu Equal Erf Exp
    Expand Flatten Floor Gather Gelu Gemm Greater GreaterOrEqual HardSigmoid HardSwish Identity InstanceNormalization
    LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal
    Relu Reshape Round Selu Shape Sigmoid Sign Sin Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub Sum Tanh ThresholdedRelu
    Tile Transpose Unsqueeze Where"""
)
"""Operators that a policy may use."""
Shape = tuple[int, ...]
_TYPES: Mapping[int, str] = {1: "float32", 6: "int32", 7: "int64", 9: "bool", 11: "float64"}  # by their number in ONNX
_WHOLE = (6, 7, 9)
_OLDEST = 11  # version of ONNX's operators
_MESSAGES = 2**16  # in a file
_RANK = 8  # axes of an array
_SHORT = 1024  # longest array of whole numbers whose values are followed
_TOUCH = 16
# The fields of onnx.proto that hold messages and that a policy needs.
_PARTS = _words(
    "attribute dim graph initializer input metadata_props node opset_import output shape t tensor_type type value_info"
)
# Settings that are 0 or 1. Of other numbers, onnx and onnxruntime make different things.
_FLAGS = _words("allowzero fmod keepdims noop_with_empty_axes saturate select_last_index training_mode transA transB")
# Operators whose inputs after the first are sizes or axes.
_SIZED = _REDUCTIONS | _words("Expand Reshape Slice Split Squeeze Tile Unsqueeze")
# Operators that exporters compute shapes with. Their results are followed if they are a few whole numbers.
_FOLLOWED = _words(
    """Add Cast Concat Constant ConstantOfShape Div Equal Expand Flatten Gather Identity Mod Mul Reshape Shape Slice Squeeze Sub
    Unsqueeze Where"""
)
_SEAL = b"\x72\x4a\x0a\x06sha256\x12\x40"  # a property of the model named sha256, up to its 64 digits
_CHANGED = "it was damaged or changed after it was written"


def package() -> Any:
    """The onnx package, imported when it is first used.

    Raises:
        AgentError: if it is not installed.
    """
    try:
        import onnx
        import onnx.reference
    except ImportError as error:
        raise AgentError(f'policy files need the onnx package: pip install "onco_gym[onnx]" ({error})') from None
    return onnx


def sealed(content: bytes) -> bytes:
    """A file with a checksum. Its last field is a property ``sha256`` of all bytes before that field."""
    return content + _SEAL + hashlib.sha256(content).hexdigest().encode()


def unsealed(content: bytes) -> bytes:
    """A file without its checksum, if it has one."""
    end = len(content) - len(_SEAL) - 64
    return content[:end] if content[max(end, 0) : -64] == _SEAL else content


class Declared(NamedTuple):
    """What a file says about an array."""

    type: str
    shape: tuple[int | str | None, ...] | None  # a free size is a name or None


class Known(NamedTuple):
    """What is known about an array before it is computed."""

    type: int
    shape: Shape
    value: NDArray[Any] | None = None  # of a few whole numbers that shapes may be computed from

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


class Model:
    """A policy file that passed the checks.

    Args:
        content: the bytes of the file.
        name: the name of the file, for errors.

    Attributes:
        content: the model as it was checked, to be run.
        inputs: what the file says about its inputs.
        outputs: the names of its outputs.
        metadata: its properties.
        operators: how many operators it has.
        numbers: how many numbers it holds.

    Raises:
        AgentError: if the file is damaged, or holds something that a policy does not need.
    """

    def __init__(self, content: bytes, name: str) -> None:
        onnx, body, self._name = package(), unsealed(content), name
        try:
            if body != content and sealed(body) != content:
                raise AgentError(f"does not match its checksum: {_CHANGED}")
            self._model = onnx.ModelProto.FromString(content)
            _check_parts(self._model)
            onnx.checker.check_model(self._model)
            self.metadata: dict[str, str] = {one.key: one.value for one in self._model.metadata_props}
            if body == content and "sha256" in self.metadata:
                raise AgentError(f"goes on after its checksum: {_CHANGED}")
        except AgentError as error:
            raise self._error(error) from None
        except Exception as error:  # the errors of onnx have no common base class
            raise self._error(f"is not an ONNX file, or is damaged: {error}") from None
        graph = self._model.graph
        self._opset = next(one.version for one in self._model.opset_import if not one.domain)
        self._held = {one.name: _held(one.data_type, onnx.numpy_helper.to_array(one)) for one in graph.initializer}
        self.inputs = {one.name: _declared(one.type.tensor_type) for one in graph.input if one.name not in self._held}
        self.outputs = [one.name for one in graph.output]
        self.operators, self.numbers = len(graph.node), sum(one.size for one in self._held.values())
        graph.ClearField("value_info")  # shapes that the file says, which may be lies
        for one in graph.output:
            one.type.tensor_type.ClearField("shape")
        self.content: bytes = self._model.SerializeToString()

    def fits(self, shapes: Mapping[str, Shape]) -> bool:
        """Whether inputs of these shapes fit into one batch; see :meth:`work`."""
        return self.work(shapes) is not None

    def work(self, shapes: Mapping[str, Shape]) -> int | None:
        """Multiplications for inputs of these shapes, as :data:`WORK` counts them; None for more than :data:`NUMBERS` numbers.

        Args:
            shapes: the shape of every input, by its name. The first axis is the batch.

        Raises:
            AgentError: if a single patient is too much, if the work is more than :data:`WORK`, or if shapes do not fit.
        """
        patients = max(shape[0] for shape in shapes.values())
        known = self._held | {name: Known(1, shape) for name, shape in shapes.items()}
        numbers, work = sum(one.size for one in known.values()), 0
        for node in self._model.graph.node:
            try:
                given: list[Any] = [known[name] if name else None for name in node.input]
                made = self._made(node, given)
            except Exception as error:  # the errors of onnx have no common base class
                raise self._error(f"cannot compute inputs of shape {shapes}: {node.op_type} fails ({error})") from None
            known.update(zip(node.output, made, strict=True))
            new = sum(one.size for one in made)
            numbers += new
            work += _TOUCH * (new + sum(one.size for one in given if one))
            if node.op_type in ("Gemm", "MatMul"):
                work += new * given[0].shape[0 if any(one.name == "transA" and one.i for one in node.attribute) else -1]
            if numbers > NUMBERS and patients > 1:
                return None
            if numbers > NUMBERS or work > WORK * patients:
                expected = f"expected at most {NUMBERS} numbers and {WORK} multiplications for each patient"
                raise self._error(f"computes too much, in {node.op_type}: {expected}")
        return work

    def _made(self, node: Any, given: Sequence[Any]) -> list[Known]:
        """What is known about the results of an operator.

        Operators are inferred one by one, and each result is checked before the next. Inference of a whole graph has no limits:
        a few bytes can make it take all memory. It also follows fewer of the operators that exporters compute shapes with.
        """
        if doubt := _doubt(node, given):
            raise ValueError(doubt)
        onnx, named = package(), {name: one for name, one in zip(node.input, given, strict=True) if one}
        types = {name: onnx.helper.make_tensor_type_proto(one.type, one.shape) for name, one in named.items()}
        data = {name: onnx.numpy_helper.from_array(one.value) for name, one in named.items() if one.value is not None}
        # Shapes of LessOrEqual are those of Less; before version 16, onnx knows only the latter.
        schema = onnx.defs.get_schema(node.op_type.removesuffix("OrEqual"), self._opset)
        found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=self._model.opset_import)
        made = [_inferred(found[name].tensor_type) for name in node.output]
        if node.op_type == "Shape":  # takes the shape from an array; this one takes no memory
            named = {name: one._replace(value=np.broadcast_to(0, one.shape)) for name, one in named.items()}
        followed = node.op_type in _FOLLOWED and made[0].type in _WHOLE and made[0].size <= _SHORT
        if followed and all(one.value is not None for one in named.values()):
            made = [self._followed(node, {name: one.value for name, one in named.items()}, made[0])]
        if any(not one.size and one.value is None for one in made) or (given and not given[0].size and made[0].value is None):
            raise ValueError("it takes or makes an empty array")
        return made

    def _followed(self, node: Any, values: Mapping[str, Any], inferred: Known) -> Known:
        """The result of an operator on a few whole numbers, as onnx's reference computes it."""
        onnx = package()
        ends = [[onnx.ValueInfoProto(name=name) for name in names] for names in (values, node.output)]
        reference = onnx.reference.ReferenceEvaluator(onnx.helper.make_graph([node], "node", *ends), {"": self._opset})
        with np.errstate(all="ignore"):
            value = np.asarray(reference.run(None, values)[0])
        if value.shape != inferred.shape or value.dtype != _TYPES[inferred.type]:
            raise ValueError(f"it makes {value.dtype} of shape {value.shape}, expected {inferred.shape}")
        return inferred._replace(value=value)

    def _error(self, text: object) -> AgentError:
        return AgentError(f"{self._name} {' '.join(str(text).split())[:300]}")


def _check_parts(model: Any) -> None:
    """Refuse a file that holds something a policy does not need."""
    size = model.ByteSize()
    model.DiscardUnknownFields()
    if not model.HasField("graph") or model.ByteSize() != size:
        raise ValueError("it has no graph, or fields that ONNX does not have")
    if len(model.graph.node) > NODES or sum(len(one.output) for one in model.graph.node) > 2 * NODES:
        raise AgentError(f"has {len(model.graph.node)} operators: expected at most {NODES}, with twice as many results")
    for count, (part, message) in enumerate(_messages(model)):
        if part not in _PARTS:
            raise AgentError(f"holds {part}, which policies may not use: expected one graph that holds its own numbers")
        if count >= _MESSAGES:
            raise AgentError(f"has more than {_MESSAGES} parts: expected a policy")
        if part in ("node", "opset_import") and message.domain == "ai.onnx":
            message.domain = ""  # another name for the same
        if part == "node":
            _check_node(message)
        if part in ("initializer", "t"):
            _check_numbers(message)
        if part == "attribute" and not np.isfinite((message.f, *message.floats)).all():
            raise AgentError("holds numbers that are not finite")
    versions, latest = [one.version for one in model.opset_import if not one.domain], package().defs.onnx_opset_version()
    if len(versions) != 1 or not _OLDEST <= versions[0] <= latest:
        raise AgentError(f"uses versions {versions} of ONNX's operators: expected one from {_OLDEST} to {latest}")


def _messages(message: Any) -> Iterator[tuple[str, Any]]:
    """Every message within a message, with the name of the field that holds it."""
    for field, value in message.ListFields():
        several = [value] if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
        if field.message_type is not None:
            for one in several:
                yield field.name, one
                yield from _messages(one)
        elif field.type == field.TYPE_STRING and any(isinstance(one, bytes) for one in several):
            raise ValueError(f"its {field.name} is not text")


def _check_node(node: Any) -> None:
    while node.input and not node.input[-1]:
        node.input.pop()  # onnxruntime crashes on a LayerNormalization with such an input
    if node.domain:
        raise AgentError(f"uses operator {node.op_type!r} of {node.domain!r}: expected those of ONNX itself")
    if node.op_type not in OPERATORS:
        raise AgentError(f"uses operator {node.op_type!r}, which policies may not use: docs/training.md lists those they may")
    if len(node.output) != 1 and node.op_type != "Split":
        raise AgentError(f"uses {node.op_type} with outputs {node.output[:9]}: expected one output")


def _check_numbers(tensor: Any) -> None:
    if tensor.data_location:
        raise AgentError("keeps numbers in another file: expected all of them in the file itself")
    if tensor.data_type not in _TYPES:
        raise AgentError(f"holds numbers of type {tensor.data_type}: expected {', '.join(_TYPES.values())}")
    array = package().numpy_helper.to_array(tensor)
    if array.shape != tuple(tensor.dims) or array.ndim > _RANK:
        raise ValueError(f"an array has shape {tensor.dims[:9]}")
    if not np.isfinite(array).all():
        raise AgentError("holds numbers that are not finite")


def _doubt(node: Any, given: Sequence[Any]) -> str:
    """Why onnx may infer another shape than onnxruntime makes, or why one of them may crash."""
    operator, settings = node.op_type, {one.name: one.i for one in node.attribute}
    sizes = [one.value for one in given[0 if operator == "ConstantOfShape" else 1 if operator in _SIZED else len(given) :] if one]
    if any(settings.get(name, 0) not in (0, 1) for name in _FLAGS):
        return "a setting is neither 0 nor 1"
    if any(one is None for one in sizes):
        return "the shape of its result depends on the observation"
    if operator != "Slice" and any(abs(int(one)) > NUMBERS for value in sizes for one in value.flat):
        return "it asks for too large a size"
    if operator == "Squeeze" and not all(value.size for value in sizes):
        return "it names no axes"
    if operator == "Split" and settings.get("num_outputs", len(node.output)) != len(node.output):
        return "it does not have the outputs that it says"
    if operator == "PRelu" and np.broadcast_shapes(given[0].shape, given[1].shape) != given[0].shape:
        return "its slopes do not fit its input"
    if operator in ("Div", "Mod") and given[1].type in _WHOLE and (given[1].value is None or (given[1].value < 1).any()):
        return "it divides whole numbers by numbers that may not be positive"
    return ""


def _held(kind: int, array: NDArray[Any]) -> Known:
    return Known(kind, array.shape, array if kind in _WHOLE and array.size <= _SHORT else None)


def _inferred(found: Any) -> Known:
    sizes = tuple(one.dim_value if one.HasField("dim_value") else -1 for one in found.shape.dim)
    if not found.HasField("shape") or min(sizes, default=0) < 0 or len(sizes) > _RANK or found.elem_type not in _TYPES:
        raise ValueError(f"onnx infers shape {sizes[:9]} and type {found.elem_type}: expected at most {_RANK} known sizes")
    return Known(found.elem_type, sizes)


def _declared(found: Any) -> Declared:
    sizes = tuple(one.dim_value if one.HasField("dim_value") else one.dim_param or None for one in found.shape.dim)
    return Declared(_TYPES.get(found.elem_type, "another type"), sizes if found.HasField("shape") else None)
