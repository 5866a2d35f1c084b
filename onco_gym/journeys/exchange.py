"""Event graphs as JSON and GraphML. Graphs are checked by :func:`onco_gym.journeys.events.check`; nothing is unpickled.

The JSON form is a dictionary::

    {"format": "onco_gym journey", "version": 1, "card": "NSCLC", "title": "...", "cycle_weeks": 3.0,
     "patient": {"age": 64.0, ...},
     "events": [{"id": "test:ngs@0", "kind": "test", "name": "ngs", "label": "...", "cycle": 0, "week": 0.0, "until": 0,
                 "value": 0.0, "confidence": 1.0, "source": "nile", "doses": ""}, ...],
     "links": [{"from": "test:ngs@0", "to": "biomarker:ALK@0", "relation": "causes"}, ...]}
"""

import json
import re
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn
from xml.etree.ElementTree import ParseError

import networkx as nx

from onco_gym.journeys.events import FIELDS, MAX_EVENTS, MAX_LINKS, JourneyError, check, check_text

FORMAT, VERSION = "onco_gym journey", 1
MAX_BYTES = 8_000_000
"""Longer text is refused before it is parsed."""

_HEADER = ("card", "title", "cycle_weeks", "patient")


def to_json(graph: nx.DiGraph) -> dict[str, Any]:
    """A journey as a dictionary that ``json.dumps`` can write; see the module.

    Raises:
        JourneyError: if ``graph`` is not a journey.
    """
    check(graph)
    return {
        "format": FORMAT,
        "version": VERSION,
        **{name: graph.graph[name] for name in _HEADER[:-1]},
        "patient": dict(graph.graph["patient"]),
        "events": [{"id": node, **{name: event[name] for name in FIELDS}} for node, event in graph.nodes(data=True)],
        "links": [{"from": one, "to": two, "relation": relation} for one, two, relation in graph.edges(data="relation")],
    }


def from_json(data: Mapping[str, Any] | str | bytes) -> nx.DiGraph:
    """A journey from the dictionary of :func:`to_json`, or from JSON text of it.

    Raises:
        JourneyError: if the data are not as :func:`to_json` writes them.
    """
    if isinstance(data, str | bytes):
        data = _parsed(_text(data))
    if not isinstance(data, Mapping):
        raise JourneyError(f"expected a dictionary, got {type(data).__name__}")
    if data.get("format") != FORMAT:
        raise JourneyError(f"format is {str(data.get('format'))[:80]!r}, expected {FORMAT!r}")
    if isinstance(data.get("version"), bool) or data.get("version") != VERSION:
        raise JourneyError(f"version is {str(data.get('version'))[:80]!r}, expected {VERSION}")
    _same_keys("the journey", data, ("format", "version", *_HEADER, "events", "links"))
    graph = nx.DiGraph(**{name: data[name] for name in _HEADER})
    for event in _rows("events", data["events"], ("id", *FIELDS), MAX_EVENTS):
        check_text("an event's id", event["id"])
        if event["id"] in graph:
            raise JourneyError(f"event {event['id']!r} occurs twice, expected each id once")
        graph.add_node(event["id"], **{name: event[name] for name in FIELDS})
    for link in _rows("links", data["links"], ("from", "to", "relation"), MAX_LINKS):
        for end in ("from", "to"):
            check_text(f"a link's {end!r}", link[end])
            if link[end] not in graph:
                raise JourneyError(f"a link's {end!r} is {link[end]!r}, expected the id of an event")
        if graph.has_edge(link["from"], link["to"]):
            raise JourneyError(f"link {link['from']!r} -> {link['to']!r} occurs twice, expected each link once")
        graph.add_edge(link["from"], link["to"], relation=link["relation"])
    check(graph)
    return graph


def to_graphml(graph: nx.DiGraph) -> str:
    """A journey as GraphML text, which yEd, Gephi, Cytoscape and igraph can read. The patient is in it as JSON text.

    Raises:
        JourneyError: if ``graph`` is not a journey.
    """
    data = to_json(graph)
    plain = nx.DiGraph(**{name: data[name] for name in ("format", "version", "card", "title")})
    plain.graph["cycle_weeks"] = float(data["cycle_weeks"])
    plain.graph["patient"] = json.dumps(data["patient"])
    for event in data["events"]:
        numbers = {name: float(event[name]) for name in ("week", "value", "confidence")}
        plain.add_node(event["id"], **{name: event[name] for name in FIELDS} | numbers)
    plain.add_edges_from((link["from"], link["to"], {"relation": link["relation"]}) for link in data["links"])
    return "\n".join(nx.generate_graphml(plain))


def from_graphml(text: str | bytes) -> nx.DiGraph:
    """A journey from the text of :func:`to_graphml`.

    Document types and entities are refused before the text is parsed, because they can make a small file fill the memory.

    Raises:
        JourneyError: if the text is not as :func:`to_graphml` writes it.
    """
    content = _text(text)
    if re.search(r"<!(?!--)", content):
        raise JourneyError("the text declares a document type, an entity or a section, expected plain GraphML without them")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what networkx warns about is checked below
            plain = nx.parse_graphml(content)
    except (ParseError, nx.NetworkXError, LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise JourneyError(f"the text is not GraphML: {str(error)[:200]}") from None
    if plain.is_multigraph() or not plain.is_directed():
        raise JourneyError("the text holds an undirected graph or several links between two events, expected a directed graph")
    header = {name: value for name, value in plain.graph.items() if name not in ("node_default", "edge_default")}
    patient = header.get("patient")
    return from_json(
        {
            **header,
            "patient": _parsed(patient) if isinstance(patient, str) else patient,
            # Other tools leave out empty text when they save a file.
            "events": [{"id": node, "doses": "", **event} for node, event in plain.nodes(data=True)],
            "links": [{"from": one, "to": two, **link} for one, two, link in plain.edges(data=True)],
        }
    )


def _text(data: str | bytes) -> str:
    if not isinstance(data, str | bytes):
        raise JourneyError(f"expected text, got {type(data).__name__}")
    if len(data) > MAX_BYTES:
        raise JourneyError(f"the text has length {len(data)}, expected at most {MAX_BYTES}")
    try:
        return data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise JourneyError(f"the text is not UTF-8: {error.reason} at byte {error.start}") from None


def _parsed(text: str) -> Any:
    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a JSON number")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise JourneyError(f"the text is not JSON: {str(error)[:200]}") from None


def _same_keys(where: str, data: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    if set(data) != set(keys):
        found = ", ".join(sorted(str(key)[:40] for key in list(data)[:30]))
        raise JourneyError(f"{where} has {found or 'nothing'}; expected {', '.join(sorted(keys))}")


def _rows(what: str, rows: Any, keys: tuple[str, ...], most: int) -> list[Mapping[str, Any]]:
    if not isinstance(rows, list | tuple):
        raise JourneyError(f"{what} is {type(rows).__name__}, expected a list")
    if len(rows) > most:
        raise JourneyError(f"there are {len(rows)} {what}, expected at most {most}")
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise JourneyError(f"{what}[{number}] is {type(row).__name__}, expected a dictionary")
        _same_keys(f"{what}[{number}]", row, keys)
    return list(rows)
