"""Conditions as an ``or`` of clauses. A clause is an ``and`` of atoms: comparisons or names, each plain or negated."""

import ast
import itertools

Literal = tuple[str, bool]
"""An atom's text, and whether it must hold."""
Clause = frozenset[Literal]

MOST = 64
"""Most clauses that a condition, or a part of one, may expand to."""


def clauses_of(text: str) -> list[Clause]:
    """The clauses of a condition that :func:`onco_gym.cards.expressions.parse` has accepted.

    Raises:
        ValueError: if there are more than :data:`MOST`.
    """
    if not text.strip():
        return [frozenset()]
    try:
        return _expand(ast.parse(text.strip(), mode="eval").body, True)
    except OverflowError:
        raise ValueError(f"{text!r} expands to more than {MOST} clauses: split it into several rules") from None


def _expand(node: ast.expr, holds: bool) -> list[Clause]:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _expand(operand, not holds)
        case ast.BoolOp(op=op, values=values):
            parts = [_expand(value, holds) for value in values]
            if isinstance(op, ast.And) != holds:
                return _needed(list(itertools.chain.from_iterable(parts)))
            joined: list[Clause] = [frozenset()]
            for part in parts:  # one by one: a hostile condition could expand to 2^100 clauses at once
                joined = _needed([one | other for one in joined for other in part])
            return joined
    return [frozenset({(ast.unparse(node), holds)})]


def _needed(clauses: list[Clause]) -> list[Clause]:
    """Drop clauses that contradict themselves, occur twice, or are stricter than another."""
    possible = list(dict.fromkeys(clause for clause in clauses if not _contradicts(clause)))
    needed = [clause for clause in possible if not any(other < clause for other in possible)]
    if len(needed) > MOST:
        raise OverflowError
    return needed


def _contradicts(clause: Clause) -> bool:
    return any((atom, not holds) in clause for atom, holds in clause)
