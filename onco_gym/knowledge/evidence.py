"""The evidence graph of a card: what acts on what, what resists what, what rules recommend, and the sources.

The graph itself is described in :mod:`onco_gym.knowledge.relations`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.checks import guideline_vocabulary, owner, patient_vocabulary
from onco_gym.cards.schema import Categorical, Rule, Sourced, Variable
from onco_gym.knowledge.facts import KnowledgeError, case_value, read_row, unknown, with_derived
from onco_gym.knowledge.guideline import RECOMMENDED, Guideline
from onco_gym.knowledge.plausibility import NO_TARGET, patient_problems
from onco_gym.knowledge.relations import alterations_of, build_graph, level_name

STATUSES = ("preferred", "option", "later", "not_recommended", "contraindicated")
LEVELS = "ABCDE"

RESISTANT = 0.8
"""Escaping at least this share of a regimen's kill counts as resistance; calibration uses the same figure."""

LARGE = -1.0
"""log10 share of the tumour from which a clone counts at diagnosis."""

Facts = Mapping[str, Any]
"""What is known about a patient, by name: patient variables and flags (level names, numbers, true or false), and ``ecog``,
``progressed``, ``known_<test>``, ``prior_<regimen>`` (cycles, or true), ``marker_<clone>``, ``toxicity_<organ>`` (grade)."""


@dataclass(frozen=True)
class Citation:
    """A source of the card."""

    key: str
    cite: str
    doi: str
    checked: str  # how far its figures were verified

    def __str__(self) -> str:
        return f"{self.cite}{f' (doi:{self.doi})' if self.doi else ''}"


@dataclass(frozen=True)
class Reason:
    """A guideline rule that applies to a patient.

    Attributes:
        rule: its position on the card, from 0; the card's order is the order of preference.
        regimen: the regimen it is about.
        status: ``preferred``, ``option``, ``later``, ``not_recommended`` or ``contraindicated``.
        level: level of evidence, A to E.
        escat: tier of the ESMO scale for the target, or empty.
        lines: lines of therapy at which it applies; empty means any.
        when: its condition as written on the card, or empty.
        alterations: findings whose presence made it apply.
        absent: findings whose absence made it apply.
        markers: detected resistant clones that made it apply.
        sources: its citations.
    """

    rule: int
    regimen: str
    status: str
    level: str
    escat: str
    lines: tuple[int, ...]
    when: str
    alterations: tuple[str, ...]
    absent: tuple[str, ...]
    markers: tuple[str, ...]
    sources: tuple[Citation, ...]

    @property
    def recommends(self) -> bool:
        """Whether it recommends the regimen."""
        return self.status in RECOMMENDED

    def __str__(self) -> str:
        grade = f"level {self.level}{f', ESCAT {self.escat}' if self.escat else ''}"
        facts = [*self.alterations, *(f"{name} found" for name in self.markers), *(f"no {name}" for name in self.absent)]
        because = f" because of {', '.join(facts)}" if facts else ""
        return f"{self.regimen} is {_words(self.status)} ({grade}){because}. {'; '.join(map(str, self.sources))}"


@dataclass(frozen=True)
class Option:
    """A regimen that the guideline recommends for a patient; ``reasons`` in the card's order of preference.

    ``status``, ``level`` and ``escat`` are those of the best reason.
    """

    regimen: str
    title: str
    status: str
    level: str
    escat: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return f"{self.title}: {_words(self.status)}, level {self.level}{f', ESCAT {self.escat}' if self.escat else ''}"


@dataclass(frozen=True)
class Escape:
    """A way to escape one mechanism of a regimen.

    Attributes:
        mechanism: the mechanism that is escaped.
        share: share of its kill that is escaped, 0..1.
        clone: the subpopulation that escapes, or empty if the tumour as a whole is insensitive.
        alteration: the finding that causes it, or empty.
        log10_fraction: the clone's share of the tumour at diagnosis, given the alteration, in log10 units.
        sources: its citations.
    """

    mechanism: str
    share: float
    clone: str
    alteration: str
    log10_fraction: float | None
    sources: tuple[Citation, ...]

    def __str__(self) -> str:
        size = self.log10_fraction
        by = "" if size is None else f", harboured by {self.alteration} at 10^{size:g} of the tumour"
        cited = "; ".join(map(str, self.sources))
        return f"{self.clone or self.alteration} escapes {self.share:.0%} of {self.mechanism}{by}. {cited}"


@dataclass(frozen=True)
class Resistance:
    """Whether an alteration or a clone is known to resist a regimen; usable as a boolean.

    Attributes:
        name: the alteration or clone.
        regimen: the regimen.
        resistant: whether it escapes at least :data:`RESISTANT` of the regimen's kill.
        escaped: the share of the regimen's kill (at sensitivity 1) that it escapes. A clone that an alteration harbours
            counts if it is large at diagnosis and the mechanism does not act on the alteration itself.
        escapes: the ways of escape, largest share first; smaller clones are listed too.
    """

    name: str
    regimen: str
    resistant: bool
    escaped: float
    escapes: tuple[Escape, ...]

    def __bool__(self) -> bool:
        return self.resistant

    def __str__(self) -> str:
        verdict = "is known to resist" if self.resistant else "is not known to resist"
        return "\n  ".join([f"{self.name} {verdict} {self.regimen} ({self.escaped:.0%} escaped)", *map(str, self.escapes)])


class EvidenceGraph:
    """The evidence graph of a card, with queries.

    Args:
        card: a validated card.

    Attributes:
        graph: the graph; see the module. Nodes and edges are in the card's order.
        alterations: names of the alterations, in the card's order.

    Example:
        >>> evidence = EvidenceGraph(load_card("nsclc"))
        >>> for option in evidence.options({"EGFR_L858R": True, "ecog": 1, "age": 64}, line=1):
        ...     print(option)
    """

    def __init__(self, card: Card) -> None:
        self.card = card
        self.graph: nx.DiGraph = build_graph(card)
        self._guideline = Guideline(card)
        self._regimens = {regimen.name: regimen for regimen in card.regimens}
        self._clones = {clone.name: clone for clone in card.clones}
        self._mechanisms = {mechanism.name: mechanism for mechanism in card.mechanisms}
        self._findings = alterations_of(card)
        self.alterations: tuple[str, ...] = tuple(self._findings)

    def options(self, facts: Facts, line: int) -> list[Option]:
        """Regimens that the guideline recommends for a patient and nowhere advises against, best status and level first.

        Ties are in the card's order. The environment's action mask says whether a regimen can still be given (earlier lines
        are closed).

        Args:
            facts: what is known; see :data:`Facts`. Variables that the clinic never sees are ignored. Anything left out is
                unknown: findings read as absent, and a rule that compares an unknown number (age, ECOG) does not apply.
            line: the next line of therapy, from 1.

        Raises:
            KnowledgeError: for an invalid name, value or line.
        """
        reasons: dict[str, list[Reason]] = {}
        for reason in self._reasons(facts, line):
            reasons.setdefault(reason.regimen, []).append(reason)
        found = []
        for name, rules in reasons.items():
            if all(reason.recommends for reason in rules):
                best = min(rules, key=_rank)
                found.append(Option(name, self._regimens[name].title, best.status, best.level, best.escat, tuple(rules)))
        return sorted(found, key=lambda option: (*_rank(option), option.reasons[0].rule))

    def why(self, regimen: str, facts: Facts, line: int) -> list[Reason]:
        """The rules about a regimen for a patient, for and against, in the card's order; ``str`` makes a sentence.

        Args:
            regimen: name of the regimen.
            facts: as for :meth:`options`.
            line: the next line of therapy, from 1.

        Raises:
            KnowledgeError: for an invalid name, value or line.
        """
        self._known("regimen", regimen, self._regimens)
        return self._reasons(facts, line, regimen)

    def known_resistant(self, alteration_or_clone: str, regimen: str) -> Resistance:
        """Whether an alteration or a resistant clone is known to make a regimen fail, and how.

        Args:
            alteration_or_clone: name, such as ``"RAS_mutant"`` or ``"gatekeeper"``.
            regimen: name of the regimen.

        Raises:
            KnowledgeError: for an unknown name.
        """
        self._known("regimen", regimen, self._regimens)
        self._known("alteration or clone", alteration_or_clone, [*self.alterations, *self._clones])
        kill = self._regimens[regimen].kill
        if alteration_or_clone in self._clones:
            escapes = self._clone_escapes(alteration_or_clone, kill)
            counted = {escape.mechanism: escape.share for escape in escapes}
        else:
            escapes, counted = self._alteration_escapes(alteration_or_clone, kill)
        whole = sum(kill.values())
        escaped = sum(kill[name] * share for name, share in counted.items()) / whole if whole else 0.0
        return Resistance(alteration_or_clone, regimen, escaped >= RESISTANT, escaped, tuple(_largest_first(escapes)))

    def resistance_of(self, regimen: str) -> list[Escape]:
        """Every clone and every alteration that escapes a mechanism of ``regimen``, largest share first.

        Raises:
            KnowledgeError: for an unknown regimen.
        """
        self._known("regimen", regimen, self._regimens)
        kill = self._regimens[regimen].kill
        escapes = [escape for name in self._clones for escape in self._clone_escapes(name, kill)]
        for name in self.alterations:
            columns = self._given(name)
            for mechanism in kill:
                value, default = self._sensitivity(mechanism, columns), self._mechanisms[mechanism].sensitivity[-1].value
                if value is not None and value <= NO_TARGET < default:
                    escapes.append(self._insensitive(name, mechanism, value))
        return _largest_first(escapes)

    def present(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """The alterations that a patient (readable values by variable) has, in the card's order."""
        columns, problems = read_row(self.card, row)
        if problems:
            raise KnowledgeError(problems[0])
        columns = with_derived(self.card, columns)
        return tuple(name for name in self.alterations if self._has(name, columns))

    def variable_of(self, alteration: str) -> tuple[Variable, str]:
        """The variable behind an alteration, and its level (empty for a true-or-false variable)."""
        self._known("alteration", alteration, self.alterations)
        return self._findings[alteration]

    def implied_by(self, alteration: str) -> tuple[str, ...]:
        """The alterations that each imply a derived one, such as the two BRAF mutations of ``BRAF_V600``."""
        self._known("alteration", alteration, self.alterations)
        node = f"alteration:{alteration}"
        edges = self.graph.in_edges(node, data="relation")
        return tuple(self.graph.nodes[one]["name"] for one, _, relation in edges if relation == "implies")

    def _known(self, what: str, name: str, names: Iterable[str]) -> None:
        if name not in names:
            raise KnowledgeError(f"{self.card.id} has no {what} {name!r}; expected one of {', '.join(names)}")

    def _reasons(self, facts: Facts, line: int, regimen: str | None = None) -> list[Reason]:
        columns = guideline_columns(self.card, facts, line)
        rules = np.flatnonzero(self._guideline.matches(columns)[:, 0]).tolist()
        return [self._reason(rule, columns) for rule in rules if regimen in (None, self.card.guideline[rule].regimen)]

    def _reason(self, number: int, columns: dict[str, NDArray[Any]]) -> Reason:
        rule: Rule = self.card.guideline[number]
        found = self._deciding(number, columns) if rule.when else ()
        alterations = tuple(name for name, positive in found if positive and not name.startswith("marker_"))
        absent = tuple(name for name, positive in found if not positive and not name.startswith("marker_"))
        markers = tuple(name.removeprefix("marker_") for name, positive in found if positive and name.startswith("marker_"))
        said = (rule.regimen, rule.status, rule.level, rule.escat, rule.lines, rule.when)
        return Reason(number, *said, alterations, absent, markers, _citations(self.card, rule))

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

    def _given(self, alteration: str) -> dict[str, NDArray[Any]]:
        """What follows for a patient if only this alteration is known."""
        variable, level = self._findings[alteration]
        columns, _ = read_row(self.card, {variable.name: level or True})
        return with_derived(self.card, columns)

    def _has(self, alteration: str, columns: Mapping[str, NDArray[Any]]) -> bool:
        variable, level = self._findings[alteration]
        if variable.name not in columns:
            return False
        value = columns[variable.name][0]
        return bool(value) if not isinstance(variable, Categorical) else variable.levels[int(value)] == level

    def _sensitivity(self, mechanism: str, columns: Mapping[str, NDArray[Any]]) -> float | None:
        return case_value(self.card, self._mechanisms[mechanism].sensitivity, columns)

    def _target(self, mechanism: str, alteration: str) -> bool:
        """Whether the mechanism acts on tumours with this alteration, according to the card's cases."""
        edge = self.graph.get_edge_data(f"mechanism:{mechanism}", f"alteration:{alteration}", default={})
        return edge.get("relation") == "acts_on" and edge["sign"] == "present" and edge["value"] > NO_TARGET

    def _insensitive(self, alteration: str, mechanism: str, value: float) -> Escape:
        return Escape(mechanism, 1.0 - value, "", alteration, None, _citations(self.card, self._mechanisms[mechanism]))

    def _clone_escapes(
        self, name: str, kill: Mapping[str, float], alteration: str = "", size: float | None = None
    ) -> list[Escape]:
        clone = self._clones[name]
        cited = _citations(self.card, clone)
        shares = {mechanism: clone.resistance.get(mechanism, 0.0) for mechanism in kill}
        return [Escape(mechanism, share, name, alteration, size, cited) for mechanism, share in shares.items() if share > 0]

    def _alteration_escapes(self, name: str, kill: Mapping[str, float]) -> tuple[list[Escape], dict[str, float]]:
        """The ways to escape each mechanism, and the share of its kill that counts as escaped."""
        columns = self._given(name)
        held = [other for other in self.alterations if self._has(other, columns)]
        escapes: list[Escape] = []
        counted: dict[str, float] = {}
        values = {mechanism: self._sensitivity(mechanism, columns) for mechanism in kill}
        for mechanism, value in values.items():
            if value is not None and value <= NO_TARGET:
                escapes.append(self._insensitive(name, mechanism, value))
                counted[mechanism] = 1.0 - value
        for clone in self._clones:
            if not any(self.graph.has_edge(f"alteration:{other}", f"clone:{clone}") for other in held):
                continue
            size = case_value(self.card, self._clones[clone].log10_fraction, columns)
            found = self._clone_escapes(clone, kill, name, size)
            escapes += found
            for escape in found:
                if size is not None and size >= LARGE and not any(self._target(escape.mechanism, other) for other in held):
                    counted[escape.mechanism] = max(counted.get(escape.mechanism, 0.0), escape.share)
        return escapes, counted


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


def _words(status: str) -> str:
    return {"option": "an option", "later": "for later lines", "not_recommended": "not recommended"}.get(status, status)


def _rank(reason: Reason | Option) -> tuple[int, int]:
    return STATUSES.index(reason.status), LEVELS.index(reason.level)


def _largest_first(escapes: list[Escape]) -> list[Escape]:
    return sorted(escapes, key=lambda escape: -escape.share)


def _citations(card: Card, table: Sourced) -> tuple[Citation, ...]:
    cited = [(key, card.sources[key]) for key in dict.fromkeys(table.source)]
    return tuple(Citation(key, source.cite, source.doi, source.checked) for key, source in cited)
