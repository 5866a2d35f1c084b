"""The small language of conditions on a card: ``"EGFR_L858R and age > 70"``.

An expression is parsed into a closure over named arrays. It is never evaluated as Python: only names, numbers,
level names in quotes, ``and or not``, comparisons, ``in [..]``, and ``+ - * /`` are understood.
The closures use only operators, so the same expression works on NumPy and JAX arrays.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

LARGEST = 1e12
"""Largest magnitude of a number on a card. Products of larger ones overflow in the simulator's single precision."""
DEEPEST = 100
"""Deepest nesting of an expression. Python's stack allows a few hundred levels, fewer if the caller is deep in it."""
Levels = Mapping[str, tuple[str, ...] | None]
"""The names an expression may use: categorical variables with their levels, all others with None."""

_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class ExpressionError(ValueError):
    """An expression that cannot be read, or that names something unknown."""


@dataclass(frozen=True)
class Expression:
    """A parsed condition.

    Attributes:
        text: the text as written.
        names: the variables it reads, in order of appearance.
    """

    text: str
    names: tuple[str, ...]
    _run: Callable[[Mapping[str, Any]], Any]

    def __call__(self, columns: Mapping[str, Any]) -> Any:
        """Evaluate over arrays of equal shape; categorical columns hold level codes.

        Returns a boolean array for conditions and a numeric array for arithmetic.
        """
        try:
            return self._run(columns)
        except (ArithmeticError, TypeError) as error:
            raise ExpressionError(f"{self.text!r} cannot be computed: {error}") from None

    def holds(self, columns: Mapping[str, Any]) -> Any:
        """Evaluate to a boolean array: where the condition holds."""
        return _truth(self(columns))


def parse(text: str, levels: Levels) -> Expression:
    """Parse ``text``, which may use the variables in ``levels``.

    Raises:
        ExpressionError: if it cannot be read; the message names the offending part and what is allowed.
    """
    if not isinstance(text, str) or not text.strip():
        raise ExpressionError(f"expected a condition such as 'age > 70', got {text!r}")
    if len(text) > 2000:
        raise ExpressionError(f"the condition has {len(text)} characters, expected at most 2000")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if _depth(tree) > DEEPEST:
            raise RecursionError
        names: dict[str, None] = {}
        run = _build(tree, levels, names, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, ExpressionError):
            raise
        why = getattr(error, "msg", str(error)) if isinstance(error, SyntaxError | ValueError) else "too deeply nested"
        raise ExpressionError(f"cannot read {text!r}: {why}") from None
    return Expression(text, tuple(names), run)


def _depth(tree: ast.AST) -> int:
    depth, level = 0, [tree]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def _build(node: ast.expr, levels: Levels, names: dict[str, None], text: str) -> Callable[[Mapping[str, Any]], Any]:
    def build(child: ast.expr) -> Callable[[Mapping[str, Any]], Any]:
        return _build(child, levels, names, text)

    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            if abs(value) > LARGEST:
                raise ExpressionError(f"{text!r} contains a number above {LARGEST:g}, the largest allowed")
            return lambda _: value
        case ast.Name(id=name):
            if name not in levels:
                raise ExpressionError(f"{text!r} names {name!r}; expected one of {', '.join(sorted(levels))}")
            options = levels[name]
            if options is not None:
                raise ExpressionError(
                    f"{name!r} in {text!r} is categorical: compare it with a level, as in {name} == {options[0]!r}"
                )
            names[name] = None
            return lambda columns: columns[name]
        case ast.BoolOp(op=op, values=values):
            parts = [build(value) for value in values]
            join = operator.and_ if isinstance(op, ast.And) else operator.or_

            def boolean(columns: Mapping[str, Any]) -> Any:
                result = _truth(parts[0](columns))
                for part in parts[1:]:
                    result = join(result, _truth(part(columns)))
                return result

            return boolean
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = build(operand)
            return lambda columns: _truth(inner(columns)) ^ True
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = build(operand)
            return lambda columns: -inner(columns)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            first, second, apply = build(left), build(right), _ARITHMETIC[type(op)]
            return lambda columns: apply(first(columns), second(columns))
        case ast.Compare(left=left, ops=ops, comparators=rights):
            return _comparison([left, *rights], ops, levels, names, text)
    raise ExpressionError(
        f"{ast.unparse(node)!r} in {text!r} is not allowed; expected names, numbers, 'levels', and, or, not, comparisons, + - * /"
    )


def _comparison(
    sides: list[ast.expr], ops: list[ast.cmpop], levels: Levels, names: dict[str, None], text: str
) -> Callable[[Mapping[str, Any]], Any]:
    if isinstance(sides[0], ast.Name) and levels.get(sides[0].id) is not None:
        if len(ops) > 1:
            raise ExpressionError(f"{ast.unparse(sides[0])!r} in {text!r} is categorical: expected one comparison at a time")
        return _level_comparison(sides[0].id, ops[0], sides[1], levels, names, text)
    for op, right in zip(ops, sides[1:], strict=True):
        if type(op) not in _COMPARE:
            raise ExpressionError(f"{ast.unparse(right)!r} in {text!r}: expected a categorical variable on the left of 'in'")
    parts = [_build(side, levels, names, text) for side in sides]
    applied = [_COMPARE[type(op)] for op in ops]

    def chained(columns: Mapping[str, Any]) -> Any:
        values = [part(columns) for part in parts]
        result = applied[0](values[0], values[1])
        for apply, left, right in zip(applied[1:], values[1:], values[2:], strict=False):
            result = result & apply(left, right)
        return result

    return chained


def _level_comparison(
    name: str, op: ast.cmpop, right: ast.expr, levels: Levels, names: dict[str, None], text: str
) -> Callable[[Mapping[str, Any]], Any]:
    among = isinstance(op, ast.In | ast.NotIn)
    if not among and not isinstance(op, ast.Eq | ast.NotEq):
        raise ExpressionError(f"{name!r} in {text!r} is categorical: expected ==, !=, in or not in")
    if among != isinstance(right, ast.List | ast.Tuple):
        raise ExpressionError(f"{ast.unparse(right)!r} in {text!r}: expected one level after == or !=, a list of levels after in")
    codes = _codes(name, right, levels, text)
    names[name] = None
    if isinstance(op, ast.Eq | ast.In):
        return lambda columns: _any_equal(columns[name], codes)
    return lambda columns: _any_equal(columns[name], codes) ^ True


def _codes(name: str, node: ast.expr, levels: Levels, text: str) -> list[int]:
    allowed = levels[name] or ()
    elements = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    if not elements:
        raise ExpressionError(f"the list after {name!r} in {text!r} is empty, expected levels of {name!r}")
    codes = []
    for element in elements:
        value = element.value if isinstance(element, ast.Constant) else None
        if value not in allowed:
            raise ExpressionError(
                f"{ast.unparse(element)} in {text!r} is not a level of {name!r}; expected one of {list(allowed)}"
            )
        codes.append(allowed.index(str(value)))
    return codes


def _any_equal(column: Any, codes: list[int]) -> Any:
    result = column == codes[0]
    for code in codes[1:]:
        result = result | (column == code)
    return result


def _truth(value: Any) -> Any:
    """Booleans unchanged; numbers are true above 0.5, like a flag that is known to be positive."""
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return value
    return value > 0.5
