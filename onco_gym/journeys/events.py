"""The parts of a clinical event graph, and a check of graphs.

A journey is a :class:`networkx.DiGraph`. Its nodes are events with these attributes:

==========  ======================================================================================================
kind        one of :data:`KINDS`
name        what the card calls it: alteration or clone, test, regimen, organ class; ``ecog``, ``scan``, or an outcome
label       the same, for people to read
cycle       when it happened or began, in cycles since the first visit
week        the same, in weeks
until       the cycle at which a treatment ended; for other events the same as ``cycle``
value       sum of diameters (mm), grade, ECOG, doses received, 1 for a finding; 0 where there is nothing to count
confidence  0..1: 1 minus the relative error of scans for what is read off a scan, otherwise 1
source      a key of the card's sources, or ``simulation``
doses       for a treatment: the share of each cycle's dose that was given, separated by spaces
==========  ======================================================================================================

Its edges have the attribute ``relation``: ``before`` leads from an event to the next in time, ``causes`` from a cause to its
effect. If an event causes the next one, their edge is ``causes``. A cause always comes before its effect.
The graph's own attributes are ``card`` (id), ``title``, ``cycle_weeks``, and ``patient`` (readable values by variable).
"""

import math
from collections.abc import Mapping
from typing import Any

import networkx as nx

from onco_gym.foundation.words import shown

KINDS = ("test", "biomarker", "toxicity", "symptom", "scan", "outcome", "treatment")
"""Kinds of events. Events in the same cycle are in this order; death and the end of follow-up come last."""

OUTCOMES = ("response", "progression", "stopped", "death", "end")
RELATIONS = ("before", "causes")
SIMULATION = "simulation"
"""The source of an event without a citation."""

RESISTANCE = "Resistance: "
"""The prefix of the label of a resistant clone that was found."""

MAX_EVENTS, MAX_LINKS, MAX_CYCLE, MAX_TEXT = 10_000, 50_000, 10_000, 400
"""Larger graphs are refused. A journey of ten years has a few hundred events."""

_TEXTS = ("kind", "name", "label", "source")
_NUMBERS = {"week": 1e7, "value": 1e9, "confidence": 1.0}
FIELDS = ("kind", "name", "label", "cycle", "week", "until", "value", "confidence", "source", "doses")


class JourneyError(ValueError):
    """An event graph cannot be made or read. The message says why."""


def check(graph: nx.DiGraph) -> None:
    """Raise :class:`JourneyError` if ``graph`` is not as the module describes. The first problem is reported."""
    if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
        raise JourneyError(f"expected a networkx.DiGraph, got {type(graph).__name__}")
    if len(graph) > MAX_EVENTS or graph.number_of_edges() > MAX_LINKS:
        raise JourneyError(
            f"there are {len(graph)} events and {graph.number_of_edges()} links, expected at most {MAX_EVENTS} and {MAX_LINKS}"
        )
    _check_header(graph.graph)
    for node, event in graph.nodes(data=True):
        check_text("an event's id", node)
        _check_event(node, event, graph.graph["cycle_weeks"])
    for first, second, link in graph.edges(data=True):
        _check_link(graph, first, second, link)
    if not nx.is_directed_acyclic_graph(graph):
        steps = " -> ".join(str(first) for first, _ in nx.find_cycle(graph))
        raise JourneyError(f"the links form a cycle: {steps} -> ...; expected every link to lead forward in time")


def check_text(what: str, value: object) -> None:
    """Raise unless ``value`` is printable text of sensible length that every format can hold."""
    if not isinstance(value, str) or not value.isprintable() or not 1 <= len(value) <= MAX_TEXT:
        raise JourneyError(f"{what} is {shown(value)}, expected printable text of 1 to {MAX_TEXT} characters")


def read_doses(event: Mapping[str, Any]) -> tuple[float, ...]:
    """The doses of a treatment, one per cycle."""
    try:
        return tuple(float(dose) for dose in event["doses"].split())
    except ValueError:
        raise JourneyError(f"doses are {shown(event['doses'])}, expected numbers separated by spaces") from None


def _check_header(header: Mapping[str, Any]) -> None:
    for name in ("card", "title"):
        check_text(f"the graph's {name!r}", header.get(name))
    _check_number("the graph's 'cycle_weeks'", header.get("cycle_weeks"), 1e-6, 1e3)
    patient = header.get("patient")
    if not isinstance(patient, Mapping) or len(patient) > MAX_EVENTS:
        raise JourneyError(f"the graph's 'patient' is {shown(patient)}, expected a dictionary of values by variable")
    for name, value in patient.items():
        check_text("a variable of the patient", name)
        if isinstance(value, str):
            check_text(f"patient {name!r}", value)
        elif not isinstance(value, bool):
            _check_number(f"patient {name!r}", value, -1e12, 1e12)


def _check_event(node: str, event: Mapping[str, Any], cycle_weeks: float) -> None:
    where = f"event {shown(node)}"
    if set(event) != set(FIELDS):
        raise JourneyError(f"{where} has {sorted(map(str, event))}, expected {sorted(FIELDS)}")
    for field in _TEXTS:
        check_text(f"{where}: {field}", event[field])
    if event["kind"] not in KINDS:
        raise JourneyError(f"{where}: kind is {event['kind']!r}, expected one of {', '.join(KINDS)}")
    for field in ("cycle", "until"):
        value = event[field]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_CYCLE:
            raise JourneyError(f"{where}: {field} is {shown(value)}, expected a whole number in 0..{MAX_CYCLE}")
    for field, highest in _NUMBERS.items():
        _check_number(f"{where}: {field}", event[field], 0, highest)
    if not math.isclose(event["week"], event["cycle"] * cycle_weeks, rel_tol=1e-6, abs_tol=1e-6):
        raise JourneyError(f"{where}: week is {event['week']:g}, expected {event['cycle'] * cycle_weeks:g} for its cycle")
    if event["until"] < event["cycle"] or (event["until"] > event["cycle"] and event["kind"] != "treatment"):
        raise JourneyError(f"{where}: until is {event['until']}, expected {event['cycle']}, or more for a treatment")
    if not isinstance(event["doses"], str):
        raise JourneyError(f"{where}: doses are {shown(event['doses'])}, expected text")
    doses = read_doses(event)
    if len(doses) != event["until"] - event["cycle"] or not all(0 <= dose <= 1 for dose in doses):
        raise JourneyError(f"{where}: doses are {shown(event['doses'])}, expected a share for each of its cycles")


def _check_link(graph: nx.DiGraph, first: str, second: str, link: Mapping[str, Any]) -> None:
    where = f"link {shown(first)} -> {shown(second)}"
    if set(link) != {"relation"} or link["relation"] not in RELATIONS:
        raise JourneyError(f"{where} has {shown(dict(link))}, expected relation as one of {', '.join(RELATIONS)}")
    if graph.nodes[first]["cycle"] > graph.nodes[second]["cycle"]:
        raise JourneyError(
            f"{where} leads back in time, from cycle {graph.nodes[first]['cycle']} to cycle {graph.nodes[second]['cycle']}"
        )


def _check_number(what: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise JourneyError(f"{what} is {shown(value)}, expected a number in {low:g}..{high:g}")
