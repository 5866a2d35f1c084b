"""The evidence graph of a card as a :class:`networkx.DiGraph`.

Nodes are named ``kind:name``, for example ``regimen:osimertinib``, and have the attributes ``kind`` and ``name``:

=============  ==========================================================================================
kind           what it is
=============  ==========================================================================================
disease        the card
alteration     a finding in the tumour or the patient's body, such as ``ALK`` or ``pdl1=from_50``
regimen        a treatment that can be given
mechanism      a way of killing tumour cells
clone          a resistant subpopulation
rule           a guideline statement, named by its position on the card
source         a citation
=============  ==========================================================================================

Edges have the attribute ``relation``: disease *treated_by* regimen, regimen *has_mechanism* mechanism, mechanism *acts_on*
or *modified_by* alteration, alteration *implies* alteration, alteration *harbours* clone, clone *resists* mechanism, rule
*recommends* or *discourages* regimen, rule *requires* alteration or clone, and all of them *cites* source. Further attributes
carry the card's figures; all are text or numbers, so the graph can be written in any networkx format.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

import networkx as nx
import numpy as np

from onco_gym.cards import Card
from onco_gym.cards.checks import patient_vocabulary
from onco_gym.cards.expressions import parse
from onco_gym.cards.schema import Bernoulli, Case, Categorical, Derived, Sourced, Variable
from onco_gym.knowledge.facts import read_row, unknown
from onco_gym.knowledge.guideline import RECOMMENDED

KINDS = ("disease", "alteration", "regimen", "mechanism", "clone", "rule", "source")


def level_name(variable: Categorical, level: str) -> str:
    """The name of a level as an alteration: its flag, or ``variable=level``, as in observation fields."""
    return level if level in variable.flags else f"{variable.name}={level}"


def _findings(card: Card) -> Iterator[tuple[str, Variable, str]]:
    """(name, variable, level) of every possible alteration; the level is empty for true-or-false variables."""
    for variable in card.variables:
        if variable.tier != "biology":
            continue
        if isinstance(variable, Bernoulli | Derived):
            yield variable.name, variable, ""
        elif isinstance(variable, Categorical):
            yield from ((level_name(variable, level), variable, level) for level in variable.levels)


def alterations_of(card: Card) -> dict[str, tuple[Variable, str]]:
    """The alterations of a card: findings that a test shows, or that rules or figures depend on."""
    texts = [rule.when for rule in card.guideline]
    texts += [case.when for mechanism in card.mechanisms for case in mechanism.sensitivity]
    texts += [effect.of for mechanism in card.mechanisms for effect in mechanism.modifiers]
    texts += [case.when for clone in card.clones for case in clone.log10_fraction]
    asked = {name for text in texts if text for name in mentions(card, text)}
    result: dict[str, tuple[Variable, str]] = {}
    for name, variable, level in _findings(card):
        reference = isinstance(variable, Categorical) and bool(variable.flags) and level not in variable.flags
        if (variable.test and not reference) or name in asked:
            result[name] = variable, level
    return result


def mentions(card: Card, text: str) -> dict[str, str]:
    """The findings that a condition names, and whether it asks for each to be ``present``, ``absent`` or ``either``.

    Markers of resistant clones are named ``marker_<clone>``.
    """
    found: dict[str, str] = {}
    names = {name for name, _, level in _findings(card) if not level}
    names |= {level for _, variable, level in _findings(card) if isinstance(variable, Categorical) and level in variable.flags}
    names |= {f"marker_{clone.name}" for clone in card.clones[1:]}
    categorical = {variable.name: variable for variable in card.variables if isinstance(variable, Categorical)}

    def note(name: str, sign: str) -> None:
        found[name] = sign if found.get(name, sign) == sign else "either"

    def walk(node: ast.AST, sign: str) -> None:
        opposite = {"present": "absent", "absent": "present"}.get(sign, sign)
        match node:
            case ast.Name(id=name) if name in names:
                note(name, sign)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                walk(operand, opposite)
            case ast.BoolOp(values=values):
                for value in values:
                    walk(value, sign)
            case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[right]) if name in categorical:
                if categorical[name].tier == "biology":
                    for level in (constant.value for constant in ast.walk(right) if isinstance(constant, ast.Constant)):
                        plain = isinstance(op, ast.Eq | ast.In)
                        note(level_name(categorical[name], str(level)), sign if plain else opposite)
            case _:
                for child in ast.iter_child_nodes(node):
                    walk(child, "either")

    walk(ast.parse(text.strip(), mode="eval").body, "present")
    return found


def build_graph(card: Card) -> nx.DiGraph:
    """Build the graph; see the module. Nodes and edges are in the card's order."""
    graph = nx.DiGraph(card=card.id, title=card.title)
    disease = _add(graph, "disease", card.id, title=card.title, cycle_weeks=card.cycle_weeks)
    for key, source in card.sources.items():
        _add(graph, "source", key, cite=source.cite, doi=source.doi, checked=source.checked)
    for table in (card.growth, card.immune, card.survival, card.performance, card.toxicity, card.utility, card.observation):
        _cite(graph, disease, table)
    alterations = alterations_of(card)
    for name, (variable, level) in alterations.items():
        shown = {"test": variable.test or "", "observed": variable.observed}
        _cite(graph, _add(graph, "alteration", name, variable=variable.name, level=level, **shown), variable)
    _add_treatments(graph, card, disease)
    _add_clones(graph, card)
    _add_rules(graph, card)
    _add_implications(graph, card, alterations)
    return graph


def _add(graph: nx.DiGraph, kind: str, name: str, **figures: Any) -> str:
    node = f"{kind}:{name}"
    graph.add_node(node, kind=kind, name=name, **figures)
    return node


def _cite(graph: nx.DiGraph, node: str, table: Sourced) -> None:
    for key in table.source:
        graph.add_edge(node, f"source:{key}", relation="cites")


def _add_treatments(graph: nx.DiGraph, card: Card, disease: str) -> None:
    for mechanism in card.mechanisms:
        node = _add(graph, "mechanism", mechanism.name, title=mechanism.title, acts=mechanism.kind, spread=mechanism.spread)
        _cite(graph, node, mechanism)
        for effect in mechanism.modifiers:
            for name, sign in mentions(card, effect.of).items():
                graph.add_edge(node, f"alteration:{name}", relation="modified_by", sign=sign, times=effect.times, when=effect.of)
        for name, figures in _by_alteration(card, mechanism.sensitivity).items():
            graph.add_edge(node, f"alteration:{name}", **{"relation": "acts_on", **figures})
    for regimen in card.regimens:
        limits = {"max_cycles": regimen.max_cycles or 0, "max_ecog": regimen.max_ecog, "burden": regimen.burden}
        node = _add(graph, "regimen", regimen.name, title=regimen.title, route=regimen.route, active=regimen.active, **limits)
        graph.add_edge(disease, node, relation="treated_by")
        _cite(graph, node, regimen)
        for name, kill in regimen.kill.items():
            graph.add_edge(node, f"mechanism:{name}", relation="has_mechanism", kill=kill)


def _by_alteration(card: Card, cases: tuple[Case, ...]) -> dict[str, dict[str, Any]]:
    """Figures of each alteration in the cases. Cases go from special to general, so the last one that names it has its value."""
    result: dict[str, dict[str, Any]] = {}
    for case in cases[:-1]:
        for name, sign in mentions(card, case.when).items():
            result[name] = {"sign": sign, "value": case.value, "otherwise": cases[-1].value, "when": case.when}
    return result


def _add_clones(graph: nx.DiGraph, card: Card) -> None:
    for clone in card.clones:
        node = _add(graph, "clone", clone.name, title=clone.title, spread=clone.spread, fitness_cost=clone.fitness_cost)
        _cite(graph, node, clone)
        for name, share in clone.resistance.items():
            graph.add_edge(node, f"mechanism:{name}", relation="resists", share=share)
        for name, figures in _by_alteration(card, clone.log10_fraction).items():
            graph.add_edge(f"alteration:{name}", node, **{"relation": "harbours", **figures})


def _add_rules(graph: nx.DiGraph, card: Card) -> None:
    for number, rule in enumerate(card.guideline):
        lines = " ".join(map(str, rule.lines)) or "any"
        figures = {"status": rule.status, "level": rule.level, "escat": rule.escat, "lines": lines, "when": rule.when}
        node = _add(graph, "rule", str(number), **figures)
        relation = "recommends" if rule.status in RECOMMENDED else "discourages"
        graph.add_edge(node, f"regimen:{rule.regimen}", relation=relation, **figures)
        _cite(graph, node, rule)
        for name, sign in mentions(card, rule.when).items() if rule.when else ():
            clone = name.removeprefix("marker_") if name.startswith("marker_") else ""
            graph.add_edge(node, f"clone:{clone}" if clone else f"alteration:{name}", relation="requires", sign=sign)


def _add_implications(graph: nx.DiGraph, card: Card, alterations: Mapping[str, tuple[Variable, str]]) -> None:
    """Link alterations to the derived ones that they imply, with all else unknown."""
    vocabulary = patient_vocabulary(card)
    nothing = {name: unknown(card, name) for name in vocabulary}
    derived = [(name, variable) for name, (variable, _) in alterations.items() if isinstance(variable, Derived)]
    for name, (variable, level) in alterations.items():
        something = {**nothing, **read_row(card, {variable.name: level or True})[0]}
        for other, defined in derived:
            condition = parse(defined.holds, vocabulary)
            if other != name and np.all(condition.holds(something)) and not np.all(condition.holds(nothing)):
                graph.add_edge(f"alteration:{name}", f"alteration:{other}", relation="implies")
