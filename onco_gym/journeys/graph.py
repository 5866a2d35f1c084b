"""Turns an episode into a clinical event graph."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from onco_gym.cards import Card
from onco_gym.cards.schema import Derived, Sourced
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.single import OncologyEnv, snapshots
from onco_gym.journeys.events import KINDS, MAX_TEXT, RESISTANCE, SIMULATION, JourneyError, check
from onco_gym.journeys.validation import evidence_of
from onco_gym.journeys.visits import Visit, check_visits, visits_of
from onco_gym.knowledge.evidence import Reason
from onco_gym.knowledge.facts import KnowledgeError

RESPONSE = -0.3
"""RECIST 1.1: change in the sum of diameters at which a tumour counts as responding (Eisenhauer, Eur J Cancer 2009;45:228)."""


def from_episode(env: Any) -> nx.DiGraph:
    """The journey of the patient in ``env``, finished or not. See :mod:`onco_gym.journeys.events` for the graph.

    Args:
        env: an :class:`onco_gym.interfaces.single.OncologyEnv`, wrapped or not.

    Raises:
        JourneyError: if ``env`` is not such an environment, or has no patient yet.
    """
    inner = getattr(env, "unwrapped", None)
    if not isinstance(inner, OncologyEnv):
        raise JourneyError(f"expected an environment of onco_gym with a single patient, got {type(env).__name__}")
    if inner.origin is None:
        raise JourneyError("the environment has no patient yet: call reset() first")
    return from_actions(inner.engine, *inner.origin, inner.actions)


def from_actions(engine: Engine, row: int, key: str, actions: Iterable[Any]) -> nx.DiGraph:
    """The journey of one patient under given actions.

    Args:
        engine: the compiled environment.
        row: the patient's row in its cohort.
        key: the key of its chance, in hexadecimal digits.
        actions: the actions from the first visit on. ``Episodes.of(i)`` gives row, key and actions of an episode.
    """
    history, ended = snapshots(engine, row, key, actions)
    patient = engine.cohort.row(engine.card, row)
    return from_visits(engine.card, patient, list(visits_of(engine.card, history, ended)))


def from_visits(card: Card, patient_row: Mapping[str, Any], visits: Sequence[Visit]) -> nx.DiGraph:
    """A journey from plain visits.

    Args:
        card: a validated card.
        patient_row: the patient's readable values by variable, as from :meth:`onco_gym.patients.Cohort.row`.
        visits: the visits in order, every cycle once, from the first visit on.

    Raises:
        JourneyError: if a visit does not fit the card or the one before it.
    """
    check_visits(card, visits)
    try:
        return _Builder(card, patient_row, visits).build()
    except KnowledgeError as error:
        raise JourneyError(str(error)) from None


@dataclass
class _Event:
    """A node in the making."""

    kind: str
    name: str
    label: str
    cycle: int
    source: str
    value: float = 0.0
    confidence: float = 1.0
    doses: list[float] = field(default_factory=list)

    @property
    def place(self) -> tuple[int, int]:
        """Its place in order: by cycle, then by kind, with an end last."""
        return self.cycle, len(KINDS) if self.name in ("death", "end") else KINDS.index(self.kind)


class _Builder:
    """Goes through the visits of one patient and notes events and their causes."""

    def __init__(self, card: Card, row: Mapping[str, Any], visits: Sequence[Visit]) -> None:
        self._card, self._row, self._visits = card, dict(row), visits
        self._evidence = evidence_of(card)
        self._regimens = {regimen.name: regimen for regimen in card.regimens}
        self._events: dict[str, _Event] = {}
        self._causes: dict[tuple[str, str], None] = {}
        self._received: dict[str, float] = defaultdict(float)  # cycles, by regimen
        self._line = 0
        self._treatment: str | None = None  # regimen of the line
        self._latest: dict[str, str] = {}  # the last event of a kind or name
        self._answered: set[tuple[str, bool]] = set()  # progression, and whether the answer was an active treatment
        self._confidence = 1.0 - card.observation.scan_error

    def build(self) -> nx.DiGraph:
        """The graph."""
        present = self._evidence.present(self._row)
        before: Visit | None = None
        for visit in self._visits:
            new_line = self._note_treatment(before, visit) if before is not None else False
            self._note_visit(before, visit, present, new_line)
            before = visit
        return self._graph()

    def _graph(self) -> nx.DiGraph:
        weeks = self._card.cycle_weeks
        patient = {name: value for name, value in self._row.items() if value is not None}
        graph = nx.DiGraph(card=self._card.id, title=_one_line(self._card.title), cycle_weeks=weeks, patient=patient)
        keys = sorted(self._events, key=lambda key: self._events[key].place)
        for key in keys:
            event = self._events[key]
            times = {"week": event.cycle * weeks, "until": event.cycle + len(event.doses)}
            value = float(sum(event.doses)) if event.doses else event.value
            graph.add_node(key, **vars(event) | times | {"value": value, "doses": " ".join(map(repr, event.doses))})
        graph.add_edges_from(itertools.pairwise(keys), relation="before")
        graph.add_edges_from(self._causes, relation="causes")
        check(graph)
        return graph

    def _note(self, kind: str, name: str, label: str, cycle: int, source: str, **figures: Any) -> str:
        key = f"{kind}:{name}@{cycle}"
        self._events[key] = _Event(kind, name, _one_line(label), cycle, source, **figures)
        self._latest[kind] = self._latest[f"{kind}:{name}"] = key
        return key

    def _cause(self, first: str | None, second: str) -> None:
        if first is not None:
            self._causes[first, second] = None

    def _note_treatment(self, before: Visit, visit: Visit) -> bool:
        """Note the treatment in the cycle between two visits. Returns whether it starts a line."""
        assert visit.given is not None
        regimen = self._regimens[visit.given]
        new_line = regimen.active and visit.given != self._treatment
        if before.given != visit.given:
            self._start(before, visit.given, new_line)
        self._events[self._latest["treatment"]].doses.append(float(visit.dose))
        self._received[visit.given] += visit.dose
        if new_line:
            self._line, self._treatment = self._line + 1, visit.given
        return new_line

    def _start(self, before: Visit, name: str, new_line: bool) -> None:
        """Note a treatment that begins at visit ``before``."""
        reasons = self._reasons(before, name, new_line)
        source = self._source(reasons[0].rule) if reasons else SIMULATION
        treatment = self._note("treatment", name, self._regimens[name].title, before.cycle, source)
        for finding in dict.fromkeys(key for reason in reasons for key in self._findings(reason)):
            self._cause(finding, treatment)
        if before.progressed:
            self._answer_progression(treatment, active=self._regimens[name].active)
        if before.stopped:
            self._cause(self._latest.get("outcome:stopped"), treatment)

    def _reasons(self, before: Visit, name: str, new_line: bool) -> list[Reason]:
        """The rules that recommend a treatment that begins at visit ``before``.

        A treatment that replaces another before progression, for example because a late result shows a target, may also rest on
        the rules of the line that it takes over.
        """
        facts, resumed = self._facts(before), self._regimens[name].active and not new_line
        reasons = self._evidence.why(name, facts, self._line if resumed else self._line + 1)
        found = [reason for reason in reasons if reason.recommends]
        if not found and new_line and self._line and not before.progressed:
            facts.pop(f"prior_{self._treatment}", None)
            found = [reason for reason in self._evidence.why(name, facts, self._line) if reason.recommends]
        return found

    def _answer_progression(self, treatment: str, active: bool) -> None:
        """Link progression to the next change of treatment and, if that was a break, to the next line."""
        progression = self._latest.get("outcome:progression")
        if progression is not None and (progression, active) not in self._answered:
            self._answered.add((progression, active))
            self._cause(progression, treatment)

    def _facts(self, visit: Visit) -> dict[str, Any]:
        """What the clinic knows at a visit, by the names that guideline rules use."""
        facts: dict[str, Any] = {f"known_{test.name}": test.name in visit.tests for test in self._card.tests}
        for variable in self._card.variables:
            if variable.observed and variable.name in self._row and (variable.test is None or variable.test in visit.tests):
                facts[variable.name] = self._row[variable.name]
        if visit.ecog is not None:
            facts["ecog"] = visit.ecog
        facts["progressed"] = visit.progressed
        facts |= {f"prior_{name}": cycles for name, cycles in self._received.items() if self._regimens[name].active}
        facts |= {f"marker_{name}": True for name in visit.markers}
        return facts | {f"toxicity_{organ}": min(max(grade, 0.0), 5.0) for organ, grade in visit.grades.items()}

    def _findings(self, reason: Reason) -> Iterator[str]:
        """Events so far of the findings that a rule rests on. A derived finding rests on those that imply it."""
        names = [finding for name in reason.alterations for finding in (name, *self._evidence.implied_by(name))]
        for name in (*names, *reason.markers):
            if f"biomarker:{name}" in self._latest:
                yield self._latest[f"biomarker:{name}"]

    def _note_visit(self, before: Visit | None, visit: Visit, present: Sequence[str], new_line: bool) -> None:
        treatment = self._latest.get("treatment")
        toxicity = self._note_toxicity(visit, treatment)
        if not visit.alive:
            death = self._note("outcome", "death", "Death", visit.cycle, SIMULATION)
            self._cause(toxicity, death)
            self._cause(self._latest.get("outcome:progression"), death)
            return
        self._note_tests(before, visit, present)
        if visit.ecog is not None and (before is None or visit.ecog != before.ecog):
            worse = before is not None and before.ecog is not None and visit.ecog > before.ecog
            symptom = self._note("symptom", "ecog", f"ECOG {visit.ecog}", visit.cycle, SIMULATION, value=float(visit.ecog))
            self._cause(toxicity if worse else None, symptom)
        markers = self._note_markers(before, visit)
        self._note_scan(before, visit, markers, new_line)
        if visit.ended:
            self._note("outcome", "end", "Alive at the end of follow-up", visit.cycle, SIMULATION)

    def _note_toxicity(self, visit: Visit, treatment: str | None) -> str | None:
        """Note a grade 3+ event in the cycle that ends here, and whether it stopped the treatment."""
        toxicity = None
        if visit.severe:
            organ = next(organ for organ in self._card.organs if organ.name == visit.severe)
            source = self._source(self._regimens[visit.given]) if visit.given else SIMULATION
            label, grade = f"Grade 3+: {organ.title}", visit.grades.get(visit.severe, 3.0)
            toxicity = self._note("toxicity", visit.severe, label, visit.cycle, source, value=float(grade))
            self._cause(treatment, toxicity)
        if visit.stopped and visit.alive:
            stop = self._note("outcome", "stopped", "Stopped for toxicity", visit.cycle, SIMULATION)
            self._cause(toxicity or treatment, stop)
        return toxicity

    def _note_tests(self, before: Visit | None, visit: Visit, present: Sequence[str]) -> None:
        """Note results that arrived since the last visit. Findings that need no test are known at the first."""
        fresh = [test for test in self._card.tests if test.name in visit.tests and (not before or test.name not in before.tests)]
        for test in fresh:
            self._note("test", test.name, test.title, visit.cycle, self._source(test))
        for name in present:
            variable, _ = self._evidence.alterations[name]
            shown = variable.observed and not (isinstance(variable, Derived) and self._evidence.implied_by(name))
            arrived = variable.test in [test.name for test in fresh] if variable.test else before is None
            if shown and arrived:
                finding = self._note("biomarker", name, _words(name), visit.cycle, self._source(variable), value=1.0)
                self._cause(self._latest[f"test:{variable.test}"] if variable.test else None, finding)

    def _note_markers(self, before: Visit | None, visit: Visit) -> list[str]:
        """Note resistant clones found now. Returns those selected by the line's treatment, which they escape."""
        escaping = []
        for clone in self._card.clones[1:]:
            if clone.name not in visit.markers or (before is not None and clone.name in before.markers):
                continue
            label = f"{RESISTANCE}{clone.title}"
            key = self._note("biomarker", clone.name, label, visit.cycle, self._source(clone), value=1.0)
            if self._treatment and any(clone.resistance.get(name, 0) > 0 for name in self._regimens[self._treatment].kill):
                self._cause(self._latest[f"treatment:{self._treatment}"], key)
                escaping.append(key)
        return escaping

    def _note_scan(self, before: Visit | None, visit: Visit, markers: Sequence[str], new_line: bool) -> None:
        scan = None
        if visit.diameter is not None:
            change = "" if visit.change is None or before is None else f" ({visit.change:+.0%})"
            label = f"Scan: {visit.diameter:.0f} mm{change}"
            figures = {"value": float(visit.diameter), "confidence": self._confidence}
            scan = self._note("scan", "scan", label, visit.cycle, SIMULATION, **figures)
        if new_line:
            self._latest.pop("outcome:response", None)
        if _progresses(before, visit, new_line):
            progression = self._note_outcome("progression", "Progression", visit.cycle)
            self._cause(scan, progression)
            for marker in markers:
                self._cause(marker, progression)
        elif self._line and not visit.progressed and (visit.change or 0.0) <= RESPONSE and "outcome:response" not in self._latest:
            response = self._note_outcome("response", "Response", visit.cycle)
            self._cause(scan, response)
            self._cause(self._latest.get(f"treatment:{self._treatment}"), response)

    def _note_outcome(self, name: str, label: str, cycle: int) -> str:
        return self._note("outcome", name, label, cycle, SIMULATION, confidence=self._confidence)

    def _source(self, table: Sourced) -> str:
        """The first citation that is not an estimate; if all are, the first."""
        published = [key for key in table.source if self._card.sources[key].checked != "estimate"]
        return (published or list(table.source))[0]


def _progresses(before: Visit | None, visit: Visit, new_line: bool) -> bool:
    """Whether progression was found at this visit."""
    if before is not None and before.progressions is not None and visit.progressions is not None:
        return visit.progressions > before.progressions
    return visit.progressed and (before is None or not before.progressed or new_line)


def _words(name: str) -> str:
    return name.replace("_", " ").replace("=", ": ")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_TEXT]
