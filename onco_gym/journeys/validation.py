"""Checks whether a journey is possible for its card and patient, beyond the form of its graph."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np

from onco_gym.cards import Card
from onco_gym.journeys.events import OUTCOMES, SIMULATION, JourneyError, check, read_doses
from onco_gym.knowledge.evidence import EvidenceGraph
from onco_gym.knowledge.plausibility import history_problems, patient_problems


def validate(card: Card, graph: nx.DiGraph) -> list[str]:
    """The problems of a journey, one message each; an empty list if the journey is possible.

    Besides the form of the graph, this checks the patient and the treatments with :mod:`onco_gym.knowledge.plausibility`. It also
    checks that names are the card's, that findings are the patient's and come after their test, and that nothing follows death.
    """
    try:
        check(graph)
    except JourneyError as error:
        return [str(error)]
    if graph.graph["card"] != card.id:
        return [f"the journey is from card {graph.graph['card']!r}, expected {card.id!r}"]
    if graph.graph["cycle_weeks"] != card.cycle_weeks:
        return [f"cycles of the journey last {graph.graph['cycle_weeks']:g} weeks, expected {card.cycle_weeks:g}"]
    events = [event for _, event in graph.nodes(data=True)]
    patient = dict(graph.graph["patient"])
    strange = patient_problems(card, patient)
    problems = _name_problems(card, events) + strange + ([] if strange else _finding_problems(card, patient, events))
    deaths = sorted(event["cycle"] for event in events if event["kind"] == "outcome" and event["name"] == "death")
    problems += history_problems(card, patient, list(_history(events)), deaths[0] if deaths else None, _results(events))
    if len(deaths) > 1:
        problems.append(f"the patient dies {len(deaths)} times, expected at most once")
    for event in events:
        if deaths and event["cycle"] > deaths[0] and event["kind"] != "treatment":
            problems.append(f"{event['label']!r} at cycle {event['cycle']} comes after death at cycle {deaths[0]}")
    return problems


def _history(events: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str, float]]:
    """(cycle, regimen, dose) of every treated cycle, in order of time."""
    for event in sorted((event for event in events if event["kind"] == "treatment"), key=lambda event: event["cycle"]):
        yield from ((event["cycle"] + number, event["name"], dose) for number, dose in enumerate(read_doses(event)))


def _results(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The cycle of each test's first result."""
    found: dict[str, int] = {}
    for event in events:
        if event["kind"] == "test":
            found[event["name"]] = min(event["cycle"], found.get(event["name"], event["cycle"]))
    return found


def _name_problems(card: Card, events: Sequence[Mapping[str, Any]]) -> list[str]:
    evidence = evidence_of(card)
    names: dict[str, Sequence[str]] = {
        "test": [test.name for test in card.tests],
        "biomarker": [*evidence.alterations, *(clone.name for clone in card.clones[1:])],
        "toxicity": [organ.name for organ in card.organs],
        "symptom": ["ecog"],
        "scan": ["scan"],
        "outcome": OUTCOMES,
    }
    problems = []
    for event in events:
        allowed = names.get(event["kind"])
        if allowed is not None and event["name"] not in allowed:
            problems.append(f"{event['kind']} {event['name']!r} at cycle {event['cycle']}: expected one of {', '.join(allowed)}")
        if event["source"] not in card.sources and event["source"] != SIMULATION:
            problems.append(f"{event['label']!r} has source {event['source']!r}, expected one of the card's or {SIMULATION!r}")
    return problems


def _finding_problems(card: Card, patient: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> list[str]:
    evidence = evidence_of(card)
    present, tested = evidence.present(patient), _results(events)
    problems = []
    for event in events:
        if event["kind"] != "biomarker" or event["name"] not in evidence.alterations:
            continue
        variable, _ = evidence.alterations[event["name"]]
        if variable.name in patient and event["name"] not in present:
            problems.append(f"{event['name']} is found at cycle {event['cycle']}, but the patient does not have it")
        if variable.test and tested.get(variable.test, np.inf) > event["cycle"]:
            problems.append(f"{event['name']} is found at cycle {event['cycle']}, expected a result of {variable.test} by then")
    return problems


@functools.lru_cache(maxsize=8)
def evidence_of(card: Card) -> EvidenceGraph:
    """The evidence of a card, computed once."""
    return EvidenceGraph(card)
