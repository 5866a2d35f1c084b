"""The small language of conditions on a card: ``"EGFR_L858R and age > 70"``.

An expression is parsed into a closure over named arrays. It is never evaluated as Python: only names, numbers,
level names in quotes, ``and or not``, comparisons, ``in [..]``, and ``+ - * /`` are understood.
The closures use only operators, so the same expression works on NumPy and JAX arrays.
"""

import ast
import functools
import itertools
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

Run = Callable[[Mapping[str, Any]], Any]
"""Computes an expression from named arrays."""

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
    _run: Run

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
        builder = _Builder(text, levels)
        run = builder.build(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, ExpressionError):
            raise
        why = getattr(error, "msg", str(error)) if isinstance(error, SyntaxError | ValueError) else "too deeply nested"
        raise ExpressionError(f"cannot read {text!r}: {why}") from None
    return Expression(text, tuple(builder.names), run)


def _depth(tree: ast.AST) -> int:
    depth, level = 0, [tree]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


class _Builder:
    """Turns the tree of an expression into a function, and collects the names that it reads."""

    def __init__(self, text: str, levels: Levels) -> None:
        self._text, self._levels = text, levels
        self.names: dict[str, None] = {}

    def build(self, node: ast.expr) -> Run:
        """The function of one node."""
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                if abs(value) > LARGEST:
                    raise ExpressionError(f"{self._text!r} contains a number above {LARGEST:g}, the largest allowed")
                return lambda _: value
            case ast.Name(id=name):
                self._check_number(name)
                self.names[name] = None
                return lambda columns: columns[name]
            case ast.BoolOp(op=op, values=values):
                parts = [self.build(value) for value in values]
                join = operator.and_ if isinstance(op, ast.And) else operator.or_
                return lambda columns: functools.reduce(join, (_truth(part(columns)) for part in parts))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.build(operand)
                return lambda columns: _truth(inner(columns)) ^ True
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.build(operand)
                return lambda columns: -inner(columns)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                first, second, apply = self.build(left), self.build(right), _ARITHMETIC[type(op)]
                return lambda columns: apply(first(columns), second(columns))
            case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[right]) if self._levels.get(name):
                return self._compare_levels(name, op, right)
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARE for op in ops):
                return self._compare_numbers([left, *rights], [_COMPARE[type(op)] for op in ops])
        allowed = "names, numbers, and, or, not, comparisons, + - * /, and categorical variables compared with 'levels'"
        raise ExpressionError(f"{ast.unparse(node)!r} in {self._text!r} is not allowed; expected {allowed}")

    def _check_number(self, name: str) -> None:
        """Raise unless ``name`` is that of a number or a condition."""
        if name not in self._levels:
            raise ExpressionError(f"{self._text!r} names {name!r}; expected one of {', '.join(sorted(self._levels))}")
        levels = self._levels[name]
        if levels is not None:
            example = f"compare it with a level, as in {name} == {levels[0]!r}"
            raise ExpressionError(f"{name!r} in {self._text!r} is categorical: {example}")

    def _compare_numbers(self, sides: list[ast.expr], compare: list[Callable[[Any, Any], Any]]) -> Run:
        parts = [self.build(side) for side in sides]

        def chained(columns: Mapping[str, Any]) -> Any:
            pairs = itertools.pairwise([part(columns) for part in parts])
            return functools.reduce(operator.and_, (apply(*pair) for apply, pair in zip(compare, pairs, strict=True)))

        return chained

    def _compare_levels(self, name: str, op: ast.cmpop, right: ast.expr) -> Run:
        levels = self._levels[name] or ()
        among = right.elts if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.List | ast.Tuple) else []
        compared = among or ([right] if isinstance(op, ast.Eq | ast.NotEq) else [])
        values = [one.value if isinstance(one, ast.Constant) else None for one in compared]
        if not values or not set(values) <= set(levels):
            expected = f"== or != and one of {list(levels)}, or in or not in and a list of them"
            raise ExpressionError(f"{name!r} in {self._text!r} is categorical: expected {expected}")
        codes = [levels.index(str(value)) for value in values]
        self.names[name] = None
        wanted = isinstance(op, ast.Eq | ast.In)

        def equal(columns: Mapping[str, Any]) -> Any:
            found = functools.reduce(operator.or_, (columns[name] == code for code in codes))
            return found if wanted else found ^ True

        return equal


def _truth(value: Any) -> Any:
    """Booleans unchanged; numbers are true above 0.5, like a flag that is known to be positive."""
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return value
    return value > 0.5
