"""Checks a policy file before onnxruntime runs it, so that a damaged or hostile one ends in an error.

:class:`Model` reads the whole file and refuses what a policy does not need. It works out the shape of everything that the
file computes, and refuses a file that would take too much memory or time: a few bytes can ask for gigabytes.

Files that this package writes end with a checksum, see :func:`sealed`. It detects damage, not malice: anyone who
changes a file can also write a new checksum or leave it out. Files without one, such as those of other exporters, are read too.
"""

import hashlib
import math
from typing import NamedTuple

from onco_gym.agents.onnx_fields import TYPES, Message, array, damaged, message, setting
from onco_gym.agents.onnx_shapes import OPERATORS, Known, Node, Shape, followed, made, multiplications
from onco_gym.agents.protocol import AgentError

NODES = 2048
"""Operators that a file may have."""
NUMBERS = 2**26
"""Numbers, of at most 8 bytes each, that a file may hold and compute for a batch. Larger batches are computed in pieces."""
WORK = 2**30
"""Multiplications allowed for each patient of a batch. Reading or writing a number counts as 16 of them."""
_TOUCH = 16
_OLDEST = 11  # version of ONNX's operators
_SEAL = b"\x72\x4a\x0a\x06sha256\x12\x40"  # a property of the model named sha256, up to its 64 digits
_CHANGED = "it was damaged or changed after it was written"


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


class Model:
    """A policy file that passed the checks.

    Args:
        content: the bytes of the file.
        name: the name of the file, for errors.

    Raises:
        AgentError: if the file is damaged, or holds something that a policy does not need.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._name, body = name, unsealed(content)
        try:
            if body != content and sealed(body) != content:
                raise ValueError(f"does not match its checksum: {_CHANGED}")
            self._read(message(content))
            if body == content and "sha256" in self.metadata:
                raise ValueError(f"goes on after its checksum: {_CHANGED}")
        except UnicodeDecodeError:
            raise self._error(damaged("it holds names that are not text")) from None
        except ValueError as error:
            raise self._error(error) from None

    def _read(self, model: Message) -> None:
        graph, versions = model.get(7), [one.get(2, 0) for one in model.get(8, ()) if one.get(1, "") in ("", "ai.onnx")]
        if not model.get(1) or graph is None:
            raise damaged("it lacks its version or its graph")
        if min(versions, default=0) < _OLDEST:
            raise ValueError(f"uses version {min(versions, default=0)} of ONNX's operators: expected {_OLDEST} or later")
        tensors, nodes = graph.get(5, []), graph.get(1, [])
        if len(nodes) > NODES:
            raise ValueError(f"has {len(nodes)} operators: expected at most {NODES}")
        self._nodes = [_node(one) for one in nodes]
        self._held = {one.get(8, ""): followed(array(one)) for one in tensors}
        named = ["observation", *(one.get(8, "") for one in tensors), *(name for node in self._nodes for name in node.outputs)]
        if len(set(named)) < len(named):
            raise damaged("two arrays have the same name")
        described = {field: [(one.get(1, ""), _declared(one)) for one in graph.get(field, ())] for field in (11, 12, 13)}
        self._declared = [pair for pairs in described.values() for pair in pairs]
        self.inputs = {name: declared for name, declared in described[11] if name not in self._held}
        self.outputs = dict(described[12])
        self.metadata: dict[str, str] = {one.get(1, ""): one.get(2, "") for one in model.get(14, ())}

    def fits(self, shape: Shape) -> bool:
        """Whether observations of this shape fit into one batch of at most :data:`NUMBERS` numbers.

        Raises:
            AgentError: if a single patient is too much, if the work is more than :data:`WORK`, or if shapes do not fit.
        """
        known = {**self._held, "observation": Known(shape)}
        numbers, work = sum(map(_size, known.values())), 0
        for node in self._nodes:
            unknown = [name for name in node.inputs if name and name not in known]
            if unknown:
                raise self._error(f"uses {unknown[0]!r} in {node.operator} before it is computed")
            given = [known[name] if name else None for name in node.inputs]
            try:
                found = made(node, given)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                text = f"cannot compute observations of shape {shape}: {node.operator} fails"
                raise self._error(f"{text} ({type(error).__name__}: {error})") from None
            known.update(zip(node.outputs, found, strict=True))
            new = sum(map(_size, found))
            numbers += new
            work += _TOUCH * (new + sum(_size(one) for one in given if one)) + new * multiplications(node, given)
            if numbers > NUMBERS and shape[0] > 1:
                return False
            if numbers > NUMBERS or work > WORK * shape[0]:
                expected = f"expected at most {NUMBERS} numbers and {WORK} multiplications for each patient"
                raise self._error(f"computes too much, in {node.operator}: {expected}")
        for name, declared in self._declared:
            if name in known and not _agree(known[name].shape, declared.shape):
                text = f"observations of shape {shape} make {name!r} of shape {known[name].shape}"
                raise self._error(f"contradicts itself: {text}, but the file says {declared.shape}")
        return True

    def _error(self, text: object) -> AgentError:
        return AgentError(f"{self._name} {' '.join(str(text).split())[:300]}")


def _node(node: Message) -> Node:
    operator, domain, outputs = node.get(4, ""), node.get(7, ""), node.get(2, [])
    if domain not in ("", "ai.onnx"):
        raise ValueError(f"uses operator {operator!r} of {domain!r}: expected those of ONNX itself")
    if operator not in OPERATORS:
        raise ValueError(f"uses operator {operator!r}, which policies may not use: docs/training.md lists those they may")
    settings = dict(setting(one) for one in node.get(5, ()))
    if len(settings) < len(node.get(5, ())):
        raise damaged(f"{operator} has a setting twice")
    if "" in outputs or (len(outputs) != 1 and operator != "Split"):
        raise ValueError(f"uses {operator} with outputs {outputs[:9]}: expected one output")
    if operator == "Cast" and settings.get("to") not in list(TYPES):
        raise ValueError(f"casts to type {settings.get('to')}: expected {', '.join(map(str, TYPES.values()))}")
    return Node(operator, node.get(1, []), outputs, settings)


def _declared(value: Message) -> Declared:
    found = value.get(2, {}).get(1, {})
    sizes, kind = found.get(2, {}).get(1, []), TYPES.get(found.get(1, 0))
    if any(one.get(1, 0) < 0 or {1, 2} <= one.keys() for one in sizes):
        raise damaged(f"array {value.get(1, '')!r} has an invalid size")
    return Declared(
        "another type" if kind is None else kind.name, tuple(one.get(1, one.get(2)) for one in sizes) if 2 in found else None
    )


def _agree(shape: Shape, declared: tuple[int | str | None, ...] | None) -> bool:
    if declared is None:
        return True
    return len(shape) == len(declared) and all(not isinstance(b, int) or a == b for a, b in zip(shape, declared, strict=True))


def _size(known: Known) -> int:
    return math.prod(known.shape)
