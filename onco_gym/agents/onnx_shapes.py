"""The operators that a policy may use, and the shapes of their results.

An operator is allowed if the shape of its result follows from the shapes of its inputs and from whole numbers that are in the
file or computed from shapes. So the size of everything that a policy computes is known before it runs. The rules are those of
onnxruntime. Cases that are not covered here (a size of 0, a step backwards) are refused.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.onnx_fields import RANK, TYPES

Shape = tuple[int, ...]
_SHORT = 1024  # longest array of whole numbers whose values are tracked


class Node(NamedTuple):
    """A step of the computation."""

    operator: str
    inputs: Sequence[str]  # "" for an omitted one
    outputs: Sequence[str]
    settings: Mapping[str, Any]

    def whole(self, name: str, default: int) -> int:
        """A setting that is a whole number."""
        value = self.settings.get(name, default)
        if not isinstance(value, int):
            raise TypeError(f"its {name} is not a whole number")
        return value


class Known(NamedTuple):
    """What is known about an array before it is computed."""

    shape: Shape
    value: NDArray[Any] | None = None  # of a few whole numbers that shapes may be computed from


Given = Sequence[Any]
"""What is known about the inputs of an operator; None for an omitted one."""


def followed(array: NDArray[Any]) -> Known:
    """What is known about an array in the file."""
    return Known(array.shape, array if array.dtype.kind in "ib" and array.size <= _SHORT else None)


def made(node: Node, given: Given) -> list[Known]:
    """What is known about the results of an operator.

    Raises:
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError: if its inputs do not fit.
    """
    if node.operator == "Constant":
        return [followed(_constant(node))]
    shapes = OPERATORS[node.operator](node, given)
    if any(len(shape) > RANK or min(shape, default=1) < 0 for shape in shapes):
        raise ValueError(f"it makes arrays of shape {shapes}")
    found = _followed(node, given, shapes[0]) or [Known(shape) for shape in shapes]
    if any(0 in one.shape and one.value is None for one in found) or (0 in given[0].shape and found[0].value is None):
        raise ValueError("it takes or makes an empty array")
    return found


def _followed(node: Node, given: Given, shape: Shape) -> list[Known] | None:
    if node.operator == "Shape":
        return [Known(shape, np.array(given[0].shape, np.int64)[_part(node)])]
    values = [one.value for one in given if one is not None]
    if node.operator not in _VALUES or math.prod(shape) > _SHORT or any(value is None for value in values):
        return None
    with np.errstate(all="ignore"):
        value = _VALUES[node.operator](node, given, values)
    return None if value is None else [followed(np.asarray(value).reshape(shape))]


def multiplications(node: Node, given: Given) -> int:
    """Multiplications for each number that an operator makes, in addition to reading and writing."""
    if node.operator not in ("Gemm", "MatMul"):
        return 0
    return int(given[0].shape[0 if node.settings.get("transA") else -1])


def _numbers(node: Node, given: Given, place: int, name: str) -> list[int]:
    """Whole numbers from an operator's input or, in earlier versions, its setting; none if it has neither."""
    if name in ("axes", "split") and name in node.settings:
        return list(node.settings[name])
    if len(given) <= place or given[place] is None:
        return []
    if given[place].value is None:
        raise ValueError(f"its {name} depend on the observation")
    return [int(one) for one in given[place].value.ravel()]


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"there is no axis {axis}")
    return axis % rank


def _axes(axes: Sequence[int], rank: int) -> list[int]:
    found = [_axis(axis, rank) for axis in axes]
    if len(set(found)) < len(found):
        raise ValueError("it names an axis twice")
    return found


def _same(node: Node, given: Given) -> list[Shape]:
    return [given[0].shape]


def _broadcast(node: Node, given: Given) -> list[Shape]:
    return [_joined(*(one.shape for one in given))]


def _joined(*shapes: Shape) -> Shape:
    found = []
    for sizes in itertools.zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1):
        size, *others = {*sizes} - {1} or {1}
        if others:
            raise ValueError(f"arrays of shape {shapes[:9]} do not fit")
        found.append(size)
    return tuple(found[::-1])


def _gemm(node: Node, given: Given) -> list[Shape]:
    turned = [node.whole(name, 0) for name in ("transA", "transB")]
    (rows, inner), (same, columns) = (one.shape[::-1] if turn else one.shape for one, turn in zip(given, turned, strict=False))
    added = given[2].shape if len(given) > 2 and given[2] else ()
    if inner != same or _joined((rows, columns), added) != (rows, columns):
        raise ValueError(f"arrays of shape {[one.shape for one in given if one]} do not fit")
    return [(rows, columns)]


def _matmul(node: Node, given: Given) -> list[Shape]:
    left, right = (one.shape for one in given)
    first, second = (1, *left) if len(left) == 1 else left, (*right, 1) if len(right) == 1 else right
    if first[-1] != second[-2]:
        raise ValueError(f"arrays of shape {left} and {right} do not fit")
    ends = (*first[-2:-1][: len(left) - 1], *second[-1:][: len(right) - 1])
    return [(*_joined(first[:-2], second[:-2]), *ends)]


def _reduce(node: Node, given: Given) -> list[Shape]:
    shape = given[0].shape
    if node.operator.startswith("Arg"):
        axes = [node.whole("axis", 0)]
    else:
        axes = _numbers(node, given, 1, "axes") or ([] if node.whole("noop_with_empty_axes", 0) else list(range(len(shape))))
    gone, kept = _axes(axes, len(shape)), node.whole("keepdims", 1)
    return [tuple(1 if axis in gone else size for axis, size in enumerate(shape) if kept or axis not in gone)]


def _reshape(node: Node, given: Given) -> list[Shape]:
    old, wanted = given[0].shape, _numbers(node, given, 1, "sizes")
    new = [old[axis] if size == 0 and not node.whole("allowzero", 0) else size for axis, size in enumerate(wanted)]
    if new.count(-1) == 1:
        new[new.index(-1)] = math.prod(old) // -math.prod(new)
    if min(new, default=1) < 1 or math.prod(new) != math.prod(old):
        raise ValueError(f"an array of shape {old} cannot have shape {wanted}")
    return [tuple(new)]


def _flatten(node: Node, given: Given) -> list[Shape]:
    shape, axis = given[0].shape, node.whole("axis", 1)
    axis = axis if axis == len(shape) else _axis(axis, len(shape))
    return [(math.prod(shape[:axis]), math.prod(shape[axis:]))]


def _transpose(node: Node, given: Given) -> list[Shape]:
    shape = given[0].shape
    order = node.settings.get("perm") or range(len(shape))[::-1]
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"{order} is not an order of {len(shape)} axes")
    return [tuple(shape[axis] for axis in order)]


def _squeeze(node: Node, given: Given) -> list[Shape]:
    shape = given[0].shape
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    gone = _axes(_numbers(node, given, 1, "axes") or ones, len(shape))
    if not set(gone) <= set(ones):
        raise ValueError(f"not all axes {gone} of {shape} have size 1")
    return [tuple(size for axis, size in enumerate(shape) if axis not in gone)]


def _unsqueeze(node: Node, given: Given) -> list[Shape]:
    axes, sizes = _numbers(node, given, 1, "axes"), iter(given[0].shape)
    rank = len(given[0].shape) + len(axes)
    new = _axes(axes, rank)
    return [tuple(1 if axis in new else next(sizes) for axis in range(rank))]


def _concat(node: Node, given: Given) -> list[Shape]:
    shapes = [one.shape for one in given]
    axis = _axis(node.whole("axis", 0), len(shapes[0]))
    if len({(*shape[:axis], *shape[axis + 1 :], len(shape)) for shape in shapes}) > 1:
        raise ValueError(f"arrays of shape {shapes[:9]} do not fit")
    return [_resized(shapes[0], axis, sum(shape[axis] for shape in shapes))]


def _gather(node: Node, given: Given) -> list[Shape]:
    return [_resized(given[0].shape, _axis(node.whole("axis", 0), len(given[0].shape)), *given[1].shape)]


def _split(node: Node, given: Given) -> list[Shape]:
    shape, count = given[0].shape, len(node.outputs)
    axis = _axis(node.whole("axis", 0), len(shape))
    sizes = _numbers(node, given, 1, "split") or [shape[axis] // count] * count
    if sum(sizes) != shape[axis] or len(sizes) != count:
        raise ValueError(f"an array of shape {shape} cannot be split into {sizes} for {count} outputs")
    return [_resized(shape, axis, size) for size in sizes]


def _resized(shape: Shape, axis: int, *sizes: int) -> Shape:
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def _slices(node: Node, given: Given) -> tuple[slice, ...]:
    names = ("starts", "ends", "axes", "steps")
    starts, ends, axes, steps = (_numbers(node, given, place, name) for place, name in enumerate(names, 1))
    axes, steps = _axes(axes or range(len(starts)), len(given[0].shape)), steps or [1] * len(starts)
    if min(steps, default=1) < 1:
        raise ValueError("it steps backwards")
    parts = {axis: slice(*part) for axis, *part in zip(axes, starts, ends, steps, strict=True)}
    return tuple(parts.get(axis, slice(None)) for axis in range(len(given[0].shape)))


def _slice(node: Node, given: Given) -> list[Shape]:
    return [tuple(len(range(size)[part]) for size, part in zip(given[0].shape, _slices(node, given), strict=True))]


def _part(node: Node) -> slice:
    return slice(node.whole("start", 0), node.whole("end", RANK))


def _constant(node: Node) -> NDArray[Any]:
    ((name, value),) = node.settings.items()
    types = {"value": None, "value_int": "i8", "value_ints": "i8", "value_float": "f4", "value_floats": "f4"}
    return np.asarray(value, types[name])


def _divided(numbers: NDArray[Any], by: NDArray[Any]) -> tuple[Any, Any]:
    return np.divmod(numbers, by) if min(numbers.min(), by.min()) > 0 else (None, None)  # other numbers are rounded differently


def _names(text: str, rule: Callable[[Node, Given], list[Shape]]) -> dict[str, Callable[[Node, Given], list[Shape]]]:
    return dict.fromkeys(text.split(), rule)


OPERATORS: Mapping[str, Callable[[Node, Given], list[Shape]]] = {
    **_names("Abs Ceil Cos Erf Exp Floor Log Neg Not Reciprocal Round Sign Sin Sqrt Cast Clip Identity", _same),
    **_names("Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Sigmoid Softplus Softsign Tanh", _same),
    **_names("BatchNormalization InstanceNormalization LayerNormalization LogSoftmax Softmax ThresholdedRelu", _same),
    **_names("Add Div Max Mean Min Mod Mul PRelu Pow Sub Sum", _broadcast),
    **_names("And Equal Greater GreaterOrEqual Less LessOrEqual Or Where", _broadcast),
    **_names("ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin", _reduce),
    **_names("ReduceProd ReduceSum ReduceSumSquare", _reduce),
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Concat": _concat,
    "Constant": lambda node, given: [_constant(node).shape],
    "ConstantOfShape": lambda node, given: [tuple(_numbers(node, given, 0, "sizes"))],
    "Expand": lambda node, given: [_joined(given[0].shape, tuple(_numbers(node, given, 1, "sizes")))],
    "Flatten": _flatten,
    "Gather": _gather,
    "Reshape": _reshape,
    "Shape": lambda node, given: [(len(given[0].shape[_part(node)]),)],
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": lambda node, given: [
        tuple(size * times for size, times in zip(given[0].shape, _numbers(node, given, 1, "repeats"), strict=True))
    ],
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""The shapes of the results of every operator that a policy may use."""

_VALUES: Mapping[str, Callable[[Node, Given, Sequence[Any]], Any]] = {  # for operators that exporters compute shapes with
    **dict.fromkeys(("Identity", "Flatten", "Reshape", "Squeeze", "Unsqueeze"), lambda node, given, values: values[0]),
    "Add": lambda node, given, values: np.add(*values),
    "Sub": lambda node, given, values: np.subtract(*values),
    "Mul": lambda node, given, values: np.multiply(*values),
    "Div": lambda node, given, values: _divided(*values)[0],
    "Mod": lambda node, given, values: _divided(*values)[1],
    "Equal": lambda node, given, values: np.equal(*values),
    "Where": lambda node, given, values: np.where(*values),
    "Cast": lambda node, given, values: values[0].astype(TYPES[node.whole("to", 0)]),
    "Concat": lambda node, given, values: np.concatenate(values, node.whole("axis", 0)),
    "Gather": lambda node, given, values: np.take(values[0], values[1], node.whole("axis", 0)),
    "Slice": lambda node, given, values: values[0][_slices(node, given)],
    "Expand": lambda node, given, values: np.broadcast_to(values[0], _joined(values[0].shape, tuple(values[1]))),
    "ConstantOfShape": lambda node, given, values: np.full(
        tuple(values[0]), node.settings.get("value", np.zeros(1, "f4")).ravel()[0]
    ),
}
