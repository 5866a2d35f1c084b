"""Readable values of a patient, as the columns that a card's conditions read."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.checks import order, owner, patient_vocabulary
from onco_gym.cards.expressions import parse
from onco_gym.cards.schema import Bernoulli, Case, Categorical, Derived, Variable
from onco_gym.knowledge.conditions import Columns, with_flags


class KnowledgeError(ValueError):
    """A question that the card cannot answer; the message says what was expected."""


def read_row(card: Card, row: Mapping[str, Any]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Convert readable values to columns of one patient.

    Args:
        card: a validated card.
        row: readable values by variable or flag; None means unknown.

    Returns:
        Columns of length 1, including those of known flags, and messages about values that could not be read.
    """
    columns: dict[str, NDArray[Any]] = {}
    problems: list[str] = []
    vocabulary = patient_vocabulary(card)
    flags: list[tuple[str, Categorical]] = []
    for name, value in row.items():
        if value is None:
            continue
        if name not in vocabulary:
            problems.append(f"{name!r} is not a variable of {card.id}; expected some of {', '.join(vocabulary)}")
            continue
        variable = owner(card, name)
        try:
            if isinstance(variable, Categorical) and name != variable.name:
                columns[name] = np.array([_boolean(value)])
                flags.append((name, variable))
            else:
                columns[name] = np.array([_coded(variable, value)])
        except ValueError as error:
            problems.append(f"{name} is {value!r}, {error}")
    for name, variable in flags:
        problems += _settle_flag(name, variable, columns)
    return with_flags(card, columns), problems


def with_derived(card: Card, columns: Columns) -> dict[str, NDArray[Any]]:
    """``columns`` with the derived variables that follow from them."""
    result = with_flags(card, columns)
    by_name = {variable.name: variable for variable in card.variables}
    for name in order(card):
        variable = by_name[name]
        if isinstance(variable, Derived) and name not in result and all(parent in result for parent in variable.parents):
            result[name] = holds(card, variable.holds, result)
    return result


def case_value(card: Card, cases: Sequence[Case], columns: Columns) -> float | None:
    """The value of the case that applies to one patient (columns of length 1), or None if too little is known."""
    for case in cases:
        if not case.when:
            return case.value
        if any(name not in columns for name in parse(case.when, patient_vocabulary(card)).names):
            return None
        if holds(card, case.when, columns)[0]:
            return case.value
    return None


def holds(card: Card, text: str, columns: Columns) -> NDArray[np.bool_]:
    """(n,) where a condition on patients holds; (1,) if it reads no column."""
    return np.atleast_1d(parse(text, patient_vocabulary(card)).holds(columns))


def unknown(card: Card, name: str) -> NDArray[Any]:
    """(1,) the value of an unknown variable or flag: false, level -1, or not a number."""
    variable = owner(card, name)
    if isinstance(variable, Categorical):
        return np.array([-1]) if name == variable.name else np.array([False])
    return np.array([False]) if isinstance(variable, Bernoulli | Derived) else np.array([np.nan])


def shown(variable: Variable, columns: Columns, index: int = 0) -> str:
    """The value of the patient at ``index``, as a person would write it."""
    value = columns[variable.name][index]
    if isinstance(variable, Categorical):
        return repr(variable.levels[int(value)])
    return str(bool(value)) if isinstance(variable, Bernoulli | Derived) else f"{value:g}"


def _settle_flag(name: str, variable: Categorical, columns: dict[str, NDArray[Any]]) -> list[str]:
    """Set an unknown variable from its true flag; return a problem if the flag contradicts a known one."""
    said = bool(columns[name][0])
    if variable.name not in columns:
        if said:
            columns[variable.name] = np.array([variable.levels.index(name)])
        return []
    level = variable.levels[int(columns[variable.name][0])]
    return [] if said == (level == name) else [f"{name} is {said}, expected {level == name} since {variable.name} is {level!r}"]


def _coded(variable: Variable, value: Any) -> Any:
    match variable:
        case Categorical():
            if not isinstance(value, str) or value not in variable.levels:
                raise ValueError(f"expected one of {list(variable.levels)}")
            return variable.levels.index(value)
        case Bernoulli() | Derived():
            return _boolean(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
        raise ValueError("expected a finite number")
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError("expected True or False")
    return bool(value)
