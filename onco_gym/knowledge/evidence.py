"""The evidence graph of a card: what acts on what, what resists what, what rules recommend, and the sources.

The graph itself is described in :mod:`onco_gym.knowledge.relations`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.checks import guideline_vocabulary, owner, patient_vocabulary
from onco_gym.cards.schema import Categorical, Rule, Source
from onco_gym.knowledge.facts import KnowledgeError, read_row, unknown, with_derived
from onco_gym.knowledge.guideline import RECOMMENDED, Guideline
from onco_gym.knowledge.plausibility import patient_problems
from onco_gym.knowledge.relations import alterations_of, build_graph, level_name

Facts = Mapping[str, Any]
"""What is known about a patient, by name: patient variables and flags (level names, numbers, true or false), and ``ecog``,
``progressed``, ``known_<test>``, ``prior_<regimen>`` (cycles, or true), ``marker_<clone>``, ``toxicity_<organ>`` (grade)."""


@dataclass(frozen=True)
class Reason:
    """A guideline rule that applies to a patient.

    Attributes:
        number: its position on the card, from 0; the card's order is the order of preference.
        rule: the rule.
        alterations: findings whose presence made it apply.
        absent: findings whose absence made it apply.
        markers: detected resistant clones that made it apply.
        sources: its citations, by key.
    """

    number: int
    rule: Rule
    alterations: tuple[str, ...]
    absent: tuple[str, ...]
    markers: tuple[str, ...]
    sources: dict[str, Source]

    @property
    def recommends(self) -> bool:
        """Whether it recommends the regimen."""
        return self.rule.status in RECOMMENDED

    def __str__(self) -> str:
        rule = self.rule
        grade = f"level {rule.level}{f', ESCAT {rule.escat}' if rule.escat else ''}"
        facts = [*self.alterations, *(f"{name} found" for name in self.markers), *(f"no {name}" for name in self.absent)]
        because = f" because of {', '.join(facts)}" if facts else ""
        cited = "; ".join(source.cite + (f" (doi:{source.doi})" if source.doi else "") for source in self.sources.values())
        words = {"option": "an option", "later": "for later lines", "not_recommended": "not recommended"}
        return f"{rule.regimen} is {words.get(rule.status, rule.status)} ({grade}){because}. {cited}"


class EvidenceGraph:
    """The evidence graph of a card, with queries.

    Args:
        card: a validated card.

    Attributes:
        graph: the graph; see the module. Nodes and edges are in the card's order.
        alterations: by name, in the card's order, the variable behind each alteration and its level (empty for a true-or-false
            variable).

    Example:
        >>> evidence = EvidenceGraph(load_card("nsclc"))
        >>> for reason in evidence.why("osimertinib", {"EGFR_L858R": True, "ecog": 1, "age": 64}, line=1):
        ...     print(reason)
    """

    def __init__(self, card: Card) -> None:
        self.card = card
        self.graph: nx.DiGraph = build_graph(card)
        self._guideline = Guideline(card)
        self.alterations = alterations_of(card)

    def why(self, regimen: str, facts: Facts, line: int) -> list[Reason]:
        """The rules about a regimen for a patient, for and against, in the card's order; ``str`` makes a sentence.

        Args:
            regimen: name of the regimen.
            facts: what is known; see :data:`Facts`. Variables that the clinic never sees are ignored. Anything left out is
                unknown: findings read as absent, and a rule that compares an unknown number (age, ECOG) does not apply.
            line: the next line of therapy, from 1.

        Raises:
            KnowledgeError: for an invalid name, value or line.
        """
        names = [one.name for one in self.card.regimens]
        if regimen not in names:
            raise KnowledgeError(f"{self.card.id} has no regimen {regimen!r}; expected one of {', '.join(names)}")
        columns = guideline_columns(self.card, facts, line)
        rules = np.flatnonzero(self._guideline.matches(columns)[:, 0] & (self._guideline.regimen == names.index(regimen)))
        return [self._reason(rule, columns) for rule in rules.tolist()]

    def present(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """The alterations that a patient (readable values by variable) has, in the card's order."""
        columns, problems = read_row(self.card, row)
        if problems:
            raise KnowledgeError(problems[0])
        columns = with_derived(self.card, columns)
        return tuple(name for name in self.alterations if self._has(name, columns))

    def implied_by(self, alteration: str) -> tuple[str, ...]:
        """The alterations that each imply a derived one, such as the two BRAF mutations of ``BRAF_V600``."""
        edges = self.graph.in_edges(f"alteration:{alteration}", data="relation")
        return tuple(self.graph.nodes[one]["name"] for one, _, relation in edges if relation == "implies")

    def _reason(self, number: int, columns: dict[str, NDArray[Any]]) -> Reason:
        rule = self.card.guideline[number]
        found = self._deciding(number, columns) if rule.when else ()
        alterations = tuple(name for name, positive in found if positive and not name.startswith("marker_"))
        absent = tuple(name for name, positive in found if not positive and not name.startswith("marker_"))
        markers = tuple(name.removeprefix("marker_") for name, positive in found if positive and name.startswith("marker_"))
        sources = {key: self.card.sources[key] for key in rule.source}
        return Reason(number, rule, alterations, absent, markers, sources)

    def _deciding(self, number: int, columns: dict[str, NDArray[Any]]) -> list[tuple[str, bool]]:
        """(finding, whether it is present) without which the rule would not hold; if none alone decides, all that are present."""
        condition = self._guideline.conditions[number]
        assert condition is not None
        there: list[tuple[str, bool]] = []
        deciding: list[tuple[str, bool]] = []
        for name in condition.names:
            shown, value, other = self._finding(name, columns[name])
            if shown is None:
                continue
            there.append((shown, value))
            if not np.all(condition.holds({**columns, name: other})):
                deciding.append((shown, value))
        return deciding or [(name, value) for name, value in there if value]

    def _finding(self, name: str, values: NDArray[Any]) -> tuple[str | None, bool, NDArray[Any]]:
        """A fact as a finding: its name (None if it is not one), whether it is present, and its column if it were otherwise."""
        if name.startswith("marker_"):
            return name, bool(values[0] > 0.5), 1.0 - values
        if name not in patient_vocabulary(self.card):
            return None, False, values
        variable = owner(self.card, name)
        if isinstance(variable, Categorical) and name == variable.name:
            code = int(values[0])
            shown = level_name(variable, variable.levels[code]) if code >= 0 else ""
            return shown if shown in self.alterations else None, True, np.full_like(values, -1)
        return (name, bool(values[0]), ~values.astype(bool)) if name in self.alterations else (None, False, values)

    def _has(self, alteration: str, columns: Mapping[str, NDArray[Any]]) -> bool:
        variable, level = self.alterations[alteration]
        if variable.name not in columns:
            return False
        value = columns[variable.name][0]
        return bool(value) if not isinstance(variable, Categorical) else variable.levels[int(value)] == level


def guideline_columns(card: Card, facts: Facts, line: int) -> dict[str, NDArray[Any]]:
    """What is known about one patient, as columns of length 1 for :class:`onco_gym.knowledge.Guideline`.

    What follows from the facts is filled in: a flag sets its variable, derived variables follow from their parents, and a
    given finding counts as tested.

    Args:
        card: a validated card.
        facts: see :data:`Facts`.
        line: the next line of therapy, from 1.

    Raises:
        KnowledgeError: for an invalid name, value or line.
    """
    if isinstance(line, bool) or not isinstance(line, int | np.integer) or line < 1:
        raise KnowledgeError(f"line is {line!r}, expected a whole number from 1")
    vocabulary, patient = guideline_vocabulary(card), patient_vocabulary(card)
    changing = [name for name in vocabulary if name not in patient or name == "ecog"]
    for name in facts:
        if name == "line":
            raise KnowledgeError("'line' is among the facts, expected it as a separate argument: the next line of therapy")
        if name not in patient and name not in changing:
            raise KnowledgeError(f"{card.id} has no fact {name!r}; expected some of {', '.join([*patient, *changing])}")
    elsewhere = (*changing, card.performance.variable)
    body = {name: value for name, value in facts.items() if name in patient and name not in elsewhere}
    problems = patient_problems(card, body)
    if problems:
        raise KnowledgeError(problems[0])
    known = with_derived(card, read_row(card, body)[0])
    columns = {name: known.get(name, unknown(card, name)) for name in vocabulary if name not in changing}
    columns["line"] = np.array([float(line - 1)])
    columns["ecog"] = np.array([_number(facts, "ecog", 4, np.nan, card.performance.variable)])
    for test in card.tests:
        tested = any(owner(card, name).test == test.name for name in known)
        columns[f"known_{test.name}"] = np.array([_number(facts, f"known_{test.name}", 1, float(tested))])
    for name in vocabulary:
        if name not in columns:
            highest = 5 if name.startswith("toxicity_") else np.inf if name.startswith("prior_") else 1
            columns[name] = np.array([_number(facts, name, highest, 0.0)])
    return columns


def _number(facts: Facts, name: str, highest: float, otherwise: float, alias: str = "") -> float:
    value = facts.get(name, facts.get(alias))
    if value is None:
        return otherwise
    if not isinstance(value, bool | int | float | np.number | np.bool_) or not 0 <= value <= highest:
        expected = f"a number in 0..{highest:g}" if np.isfinite(highest) else "a number from 0"
        raise KnowledgeError(f"{name} is {value!r}, expected {expected}{', or True or False' if highest == 1 else ''}")
    return float(value)
