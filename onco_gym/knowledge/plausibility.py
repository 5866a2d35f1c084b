"""Plausibility of patients and treatment histories. Only what the card itself rules out is a problem.

Nothing here is specific to one disease. Ranges, levels, pairs that never occur together, and drugs without a target all
follow from the card's tables.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.checks import owner, patient_vocabulary
from onco_gym.cards.expressions import parse
from onco_gym.cards.schema import (
    Bernoulli,
    Categorical,
    Derived,
    Discrete,
    Lognormal,
    Mechanism,
    Normal,
    Ordinal,
    Regimen,
    Variable,
)
from onco_gym.knowledge.conditions import Columns, Conditions, with_flags
from onco_gym.knowledge.facts import KnowledgeError, case_value, read_row, shown, with_derived

NO_TARGET = 0.1
"""Up to this sensitivity, a mechanism has nothing to act on."""

RESISTANT = 0.8
"""Escaping at least this share of a regimen's kill counts as resistance."""

CLOSED_FROM = 0.5
"""After this many cycles, a line that was left for another cannot be resumed, as in the simulator."""


def patient_problems(card: Card, row: Mapping[str, Any]) -> list[str]:
    """What is wrong with a patient, one message per problem; an empty list for a plausible patient.

    Args:
        card: a validated card.
        row: readable values by variable name, as :meth:`onco_gym.patients.Cohort.row` gives them: level names, numbers, true
            or false. Flags such as ``EGFR_L858R`` are allowed too. Missing values and None are unknown, and not a problem.

    Returns:
        Messages that name the variable, its value and what was expected.
    """
    columns, problems = read_row(card, row)
    return problems + [
        f"{finding.variable} is {shown(owner(card, finding.variable), columns)}, expected {finding.expected(0)}"
        for finding in _findings(card, columns)
        if finding.wrong[0]
    ]


def implausible(card: Card, columns: Columns) -> NDArray[np.bool_]:
    """(n,) which patients of a cohort are implausible; the vectorised form of :func:`patient_problems`.

    Args:
        card: a validated card.
        columns: as ``cohort.columns``; missing variables are unknown.

    Raises:
        KnowledgeError: for a column that is not on the card, or columns of unequal length.
    """
    names = [variable.name for variable in card.variables]
    for name in columns:
        if name not in names:
            raise KnowledgeError(f"there is no variable {name!r} in {card.id}; expected some of {', '.join(names)}")
        if np.asarray(columns[name]).dtype.kind not in "biuf":
            raise KnowledgeError(f"column {name!r} holds {np.asarray(columns[name]).dtype}, expected numbers or level codes")
    lengths = {name: np.shape(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1 or any(len(shape) != 1 for shape in lengths.values()):
        raise KnowledgeError(f"expected columns of one length n, got shapes {lengths}")
    result = np.zeros(next(iter(lengths.values())), bool)
    for finding in _findings(card, columns):
        result |= finding.wrong
    return result


def history_problems(
    card: Card,
    row: Mapping[str, Any],
    history: Sequence[tuple[Any, ...]],
    death_cycle: int | None = None,
    results: Mapping[str, int] | None = None,
) -> list[str]:
    """What is wrong with a patient's treatment history, one message per problem.

    Args:
        card: a validated card.
        row: the patient, as for :func:`patient_problems`; unknown values rule nothing out.
        history: ``(cycle, regimen)`` or ``(cycle, regimen, dose)`` in order of time. Cycles count from 0, the first visit.
            The dose is the share of a full dose (0..1, by default 1); held and delayed cycles do not count towards a
            regimen's last cycle.
        death_cycle: cycle in which death was recorded, counted from the first visit; nothing is given from then on.
        results: the cycle from which the result of each test is known; missing tests have no result. By default all of
            ``row`` is known from the start.

    Returns:
        Messages that name the cycle, the regimen and what was expected.
    """
    regimens = {regimen.name: regimen for regimen in card.regimens}
    columns, _ = read_row(card, row)
    received: dict[str, float] = defaultdict(float)  # cycles, by regimen
    told: set[tuple[object, ...]] = set()  # what is said only once for a regimen
    problems: list[str] = []
    line, last = "", -1  # regimen of the line, and cycle of the last entry
    for number, entry in enumerate(history):
        read = _entry(entry)
        if isinstance(read, str):
            problems.append(f"entry {number} of the history is {entry!r}, {read}")
            continue
        cycle, name, dose = read
        problems += _time_problems(cycle, name, last, death_cycle)
        last = max(cycle, last)
        if name not in regimens:
            problems.append(f"cycle {cycle}: {name!r} is not a regimen of {card.id}; expected one of {', '.join(regimens)}")
            continue
        regimen, had, known = regimens[name], received[name], _known_by(card, columns, cycle, results)
        found = {}
        if regimen.active and had >= CLOSED_FROM and line != name:
            found["left"] = f"cycle {cycle}: {name} is resumed after the change to {line}, expected a new regimen"
        if regimen.max_cycles is not None and had >= regimen.max_cycles:
            found["last"] = f"cycle {cycle}: {name} continues after {had:g} cycles, expected at most {regimen.max_cycles}"
        if (name, len(known)) not in told:  # the target is checked again when more is known
            told.add((name, len(known)))
            found["target"] = _target_problem(card, regimen, cycle, with_derived(card, known))
        problems += [text for kind, text in found.items() if text and (name, kind) not in told]
        told |= {(name, kind) for kind, text in found.items() if text}
        line = name if regimen.active else line
        received[name] += dose
    return problems


def targeted(mechanism: Mechanism) -> bool:
    """Whether a mechanism needs a target: it does almost nothing outside its cases, but acts in at least one of them."""
    *cases, default = mechanism.sensitivity
    return default.value <= NO_TARGET and any(case.value > NO_TARGET for case in cases)


@dataclass(frozen=True)
class _Finding:
    """One check of one variable over n patients."""

    variable: str
    wrong: NDArray[np.bool_]  # (n,)
    expected: Callable[[int], str]  # what the patient at that index should have


def _findings(card: Card, columns: Columns) -> Iterator[_Finding]:
    inside: dict[str, NDArray[np.bool_]] = {}
    for variable in card.variables:
        if variable.name in columns:
            inside[variable.name], text = _inside(variable, np.asarray(columns[variable.name]))
            yield _Finding(variable.name, ~inside[variable.name], lambda _, text=text: text)  # type: ignore[misc] # bound now
    flagged = with_flags(card, columns)
    for variable in card.variables:
        if variable.name in inside and all(parent in inside for parent in variable.parents):
            sure = np.logical_and.reduce([inside[name] for name in (variable.name, *variable.parents)])
            if sure.any() and isinstance(variable, Bernoulli | Discrete | Derived):
                yield _impossible(card, variable, flagged, sure)


def _inside(variable: Variable, values: NDArray[Any]) -> tuple[NDArray[np.bool_], str]:
    """(n,) whether the variable can take these values, and the values it can take as text."""
    match variable:
        case Categorical():
            return np.isin(values, np.arange(len(variable.levels))), f"one of {list(variable.levels)}"
        case Ordinal():
            return np.isin(values, variable.values), f"one of {list(variable.values)}"
        case Normal():
            low, high = variable.low, variable.high
        case Lognormal():
            low, high = 0.0, variable.high
        case _:
            return np.isin(values, (0, 1)), "True or False"
    return (values >= low) & (values <= high), f"a number in {low:g}..{high:g}{f' {variable.unit}' if variable.unit else ''}"


def _impossible(card: Card, variable: Bernoulli | Discrete | Derived, columns: Columns, sure: NDArray[np.bool_]) -> _Finding:
    """Values with probability 0 given the parents. Odds are left out, because they cannot change a 0."""
    values = columns[variable.name]
    on = Conditions(card, columns, len(values))

    def given(index: int) -> str:
        return "given " + ", ".join(f"{name} {shown(owner(card, name), columns, index)}" for name in variable.parents)

    if isinstance(variable, Derived):
        truth = on.holds(variable.holds)
        wrong = values.astype(bool) != truth
        return _Finding(variable.name, sure & wrong, lambda i: f"{bool(truth[i])}, since it means {variable.holds!r}")
    if isinstance(variable, Bernoulli):
        chance = on.value(variable.probability)
        wrong = np.where(values.astype(bool), chance <= 0, chance >= 1)
        return _Finding(variable.name, sure & wrong, lambda i: f"{not values[i]} {given(i)}")
    weights = np.array([case.weights for case in variable.weights])[on.case(variable.weights)]
    codes = np.searchsorted(variable.values, values) if isinstance(variable, Ordinal) else values
    picked = np.take_along_axis(weights, np.where(sure, codes, 0).astype(int)[:, None], axis=1)[:, 0]

    def possible(index: int) -> str:
        outcomes = [name for name, weight in zip(variable.outcomes, weights[index], strict=True) if weight > 0]
        return f"one of {outcomes} {given(index)}"

    return _Finding(variable.name, sure & (picked <= 0), possible)


def _entry(entry: Any) -> tuple[int, str, float] | str:
    """The cycle, regimen and dose of a history entry, or what was expected of it."""
    if not isinstance(entry, tuple | list) or len(entry) not in (2, 3):
        return "expected (cycle, regimen) or (cycle, regimen, dose)"
    cycle, name, dose = (*entry, 1.0)[:3]
    if isinstance(cycle, bool) or not isinstance(cycle, int | np.integer):
        return "expected a whole number as the cycle"
    if not isinstance(name, str):
        return "expected a name as the regimen"
    if isinstance(dose, bool) or not isinstance(dose, int | float | np.number) or not 0 <= dose <= 1:
        return "expected a number in 0..1 as the dose"
    return int(cycle), name, float(dose)


def _time_problems(cycle: int, name: str, before: int, death_cycle: int | None) -> list[str]:
    problems = []
    if cycle < 0:
        problems.append(f"cycle {cycle}: {name} is given before the first visit, expected a cycle from 0")
    elif cycle <= before:
        problems.append(f"cycle {cycle}: {name} comes after cycle {before} in the history, expected a cycle from {before + 1}")
    if death_cycle is not None and cycle >= death_cycle:
        problems.append(f"cycle {cycle}: {name} is given after death at cycle {death_cycle}, expected no treatment from then on")
    return problems


def _known_by(card: Card, columns: Columns, cycle: int, results: Mapping[str, int] | None) -> Columns:
    """The ``columns`` known at a cycle: those that need no test, and those with a result."""
    if results is None:
        return columns
    known = {None, *(test for test, at in results.items() if at <= cycle)}
    return {name: values for name, values in columns.items() if owner(card, name).test in known}


def _target_problem(card: Card, regimen: Regimen, cycle: int, columns: Columns) -> str:
    """A message if every mechanism of a regimen needs a target and the patient is known to have none; else empty."""
    mechanisms = [mechanism for mechanism in card.mechanisms if regimen.kill.get(mechanism.name, 0) > 0]
    if not mechanisms or not all(targeted(mechanism) for mechanism in mechanisms):
        return ""
    found = [case_value(card, mechanism.sensitivity, columns) for mechanism in mechanisms]
    if any(value is None or value > NO_TARGET for value in found):
        return ""
    cases = [case.when for mechanism in mechanisms for case in mechanism.sensitivity if case.value > NO_TARGET]
    names = dict.fromkeys(owner(card, name).name for text in cases for name in parse(text, patient_vocabulary(card)).names)
    has = ", ".join(f"{name} {shown(owner(card, name), columns)}" for name in names if name in columns)
    needs = " or ".join(f"({text})" if " " in text else text for text in dict.fromkeys(cases))
    return f"cycle {cycle}: {regimen.name} has nothing to act on, expected {needs}; the patient has {has or 'none of it'}"
