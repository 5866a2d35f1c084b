"""The fields of an ONNX file. It is a protobuf message: a sequence of numbered fields, some of which are messages themselves.

:func:`message` knows the fields of onnx.proto that a policy needs. It refuses other fields, fields of the wrong
kind, repeated fields and text that is not UTF-8: policies do not need them, or they are a sign of damage.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

RANK = 8
"""Axes that an array may have; arrays with more are refused."""
TYPES: Mapping[int, np.dtype[Any]] = {
    number: np.dtype(kind) for number, kind in ((1, "<f4"), (6, "<i4"), (7, "<i8"), (9, "?"), (11, "<f8"))
}
"""Types of numbers, by their number in ONNX; others are refused."""
Message = dict[int, Any]
"""The fields of a message. Those that can be repeated are lists."""
_FIELDS = 2**18  # in all messages of a file
_TYPED = {1: 4, 6: 5, 7: 7, 9: 5, 11: 10}  # the field of a tensor for numbers of a type; field 9 is for any of them
_SETTINGS: Mapping[int, tuple[int, Any]] = {1: (2, 0.0), 2: (3, 0), 3: (4, b""), 4: (5, {}), 6: (7, []), 7: (8, [])}
_OTHER_FILE = "keeps numbers in another file: expected all of them in the file itself"
_SPARSE = "!holds sparse arrays: expected all numbers written out"
_NESTED = "!holds a graph within a graph: expected a policy that computes its answer in one pass"
# A star marks fields that can be repeated; an exclamation mark is followed by the reason for refusing one. Files of earlier
# versions of this package can name two producers (fields 2 and 3 of the model).
_LAYOUT: Mapping[str, Mapping[int, str]] = {
    "model": {1: "int", 2: "text*", 3: "text*", 4: "text", 5: "int", 6: "text", 7: "graph", 8: "opset*", 14: "entry*"}
    | {20: "!holds training information: expected a policy", 25: "!holds functions: expected the operators of ONNX itself"},
    "graph": {1: "node*", 2: "text", 5: "tensor*", 10: "text", 11: "value*", 12: "value*", 13: "value*", 16: "entry*"}
    | {15: _SPARSE},
    "node": {1: "text*", 2: "text*", 3: "text", 4: "text", 5: "attribute*", 6: "text", 7: "text", 9: "entry*"},
    "attribute": {1: "text", 2: "float", 3: "int", 4: "bytes", 5: "tensor", 7: "float*", 8: "int*", 13: "text", 20: "int"}
    | {6: _NESTED, 11: _NESTED, 22: _SPARSE, 23: _SPARSE},
    "tensor": {1: "int*", 2: "int", 4: "float*", 5: "int*", 7: "int*", 8: "text", 9: "bytes", 10: "double*", 12: "text"}
    | {13: f"!{_OTHER_FILE}", 14: "int", 16: "entry*"},
    "value": {1: "text", 2: "type", 3: "text", 4: "entry*"},
    "type": {1: "array", 6: "text"},
    "array": {1: "int", 2: "shape"},
    "shape": {1: "size*"},
    "size": {1: "int", 2: "text", 3: "text"},
    "opset": {1: "text", 2: "int"},
    "entry": {1: "text", 2: "text"},
}
_WIRES = {"int": 0, "double": 1, "float": 5}  # wire types; all other fields are bytes, and so are packed numbers


def damaged(why: str) -> ValueError:
    """The error for a file that cannot be read."""
    return ValueError(f"is not an ONNX file, or is damaged: {why}")


def message(content: bytes) -> Message:
    """All fields of an ONNX file.

    Raises:
        ValueError: if the file is damaged or holds something that a policy does not need.
    """
    return _message("model", memoryview(content), itertools.count())


def array(tensor: Message) -> NDArray[Any]:
    """The numbers of a tensor, all of them finite.

    Raises:
        ValueError: if their count or type does not match the tensor's.
    """
    number, shape = tensor.get(2, 0), tuple(tensor.get(1, ()))
    if tensor.get(14):
        raise ValueError(_OTHER_FILE)
    if number not in TYPES:
        raise ValueError(f"holds numbers of type {number}: expected {', '.join(map(str, TYPES.values()))}")
    given = [field for field in (4, 5, 7, 9, 10) if field in tensor]
    if len(given) > 1 or not {9, _TYPED[number]} >= set(given):
        raise damaged("an array holds numbers of the wrong type")
    numbers, kind = tensor[given[0]] if given else b"", TYPES[number]
    count = len(numbers) / kind.itemsize if given == [9] else len(numbers)
    if len(shape) > RANK or min(shape, default=0) < 0 or math.prod(shape) != count:
        raise damaged(f"an array of shape {shape} has {count:g} numbers")
    values = np.frombuffer(numbers, kind) if isinstance(numbers, bytes) else np.asarray(numbers).astype(kind)
    if not np.isfinite(values).all():
        raise ValueError("holds numbers that are not finite")
    return values.reshape(shape)


def setting(attribute: Message) -> tuple[str, Any]:
    """The name and value of an operator's setting: a number, bytes, numbers or an array."""
    field, default = _SETTINGS.get(attribute.get(20, 0), (0, None))
    if not field or attribute.keys() - {1, 13, 20, field}:
        raise damaged("an operator has a setting of an unknown kind")
    value = attribute.get(field, default)
    if field in (2, 7) and not np.isfinite(value).all():
        raise ValueError("holds numbers that are not finite")
    return attribute.get(1, ""), array(value) if field == 5 else value


def _message(kind: str, content: memoryview, count: Iterator[int]) -> Message:
    found: Message = {}
    for number, wire, value in _fields(content):
        form = _LAYOUT[kind].get(number)
        if form is None:
            raise damaged(f"a {kind} has no field {number}")
        if form.startswith("!"):
            raise ValueError(form[1:])
        if form.endswith("*"):
            found.setdefault(number, []).extend(_values(form[:-1], wire, value, count, repeated=True))
        elif number in found:
            raise damaged(f"a {kind} has field {number} twice")
        else:
            (found[number],) = _values(form, wire, value, count)
    rows = [number for number in found if _LAYOUT[kind][number] in ("float*", "double*")]
    return found | {number: np.concatenate(found[number]) for number in rows}


def _values(form: str, wire: int, value: Any, count: Iterator[int], repeated: bool = False) -> list[Any]:
    """The values of a field: one, or several if it is repeated and packed. Packed fractions stay one array."""
    _step(count)
    row = repeated and wire == 2 and form in _WIRES
    if wire != _WIRES.get(form, 2) and not row:
        raise damaged(f"a field that should be {form} is of another kind")
    if form in ("float", "double"):
        if len(value) % (size := 4 if form == "float" else 8):
            raise damaged("a row of numbers is cut short")
        numbers = np.frombuffer(bytes(value), f"<f{size}")
        return [numbers] if repeated else numbers.tolist()
    if row:
        return [_signed(one) for one in _varints(value, count)]
    if form == "int":
        return [_signed(value)]
    if form in ("bytes", "text"):
        return [bytes(value) if form == "bytes" else bytes(value).decode()]
    return [_message(form, value, count)]


def _fields(content: memoryview) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, whole number or bytes) of a message's fields."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(content, at)
            yield key >> 3, wire, value
            continue
        if wire == 2:
            size, at = _varint(content, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise damaged("a field is of an unknown kind")
        if at + size > len(content):
            raise damaged("it is cut short")
        yield key >> 3, wire, content[at : at + size]
        at += size


def _varints(content: memoryview, count: Iterator[int]) -> Iterator[int]:
    at = 0
    while at < len(content):
        _step(count)
        value, at = _varint(content, at)
        yield value


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place in range(min(10, len(content) - at)):
        byte = content[at + place]
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            if value >= 2**64:
                break
            return value, at + place + 1
    raise damaged("a number is cut short")


def _step(count: Iterator[int]) -> None:
    if next(count) >= _FIELDS:
        raise ValueError(f"has more than {_FIELDS} fields: expected a policy")


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
