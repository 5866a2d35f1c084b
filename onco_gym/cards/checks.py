"""Checks across the tables of a card: references, the patient graph, and where social position may act."""

import graphlib
from collections.abc import Iterable, Iterator
from typing import NoReturn

from onco_gym.cards.expressions import ExpressionError, Levels, parse
from onco_gym.cards.folder import CardError
from onco_gym.cards.grid import zones
from onco_gym.cards.protocols import ProtocolError, parse_protocol
from onco_gym.cards.schema import (
    Access,
    Bernoulli,
    Card,
    Case,
    Categorical,
    Derived,
    Discrete,
    Effect,
    Lognormal,
    Normal,
    Ordinal,
    Sourced,
    Table,
    Variable,
    WeightCase,
)
from onco_gym.foundation.words import shown

SUPPORTIVE, HOLIDAY = "best_supportive_care", "drug_holiday"
"""The two regimens that every card has, without anti-cancer drugs: one leaves treatment for good, one pauses it."""


def check(card: Card) -> None:
    """Raise :class:`CardError` for the first inconsistency. It names the key, the value and what was expected."""
    vocabulary = patient_vocabulary(card)
    _unique("variables", [name for v in card.variables for name in (v.name, *getattr(v, "flags", ()))])
    for table in ("mechanisms", "regimens", "clones", "organs", "tests", "experts"):
        _unique(table, [row.name for row in getattr(card, table)])
    _unique("footprints", [row.item for row in card.footprints])
    _sources(card)
    _graph(card, vocabulary)
    _biology(card, vocabulary)
    _treatment(card)
    _access(card)
    _carbon(card)
    _guideline(card)
    _arms(card, vocabulary)


def patient_vocabulary(card: Card) -> dict[str, tuple[str, ...] | None]:
    """Every variable and flag of a patient, with the levels of the categorical ones."""
    return _vocabulary(card.variables)


def guideline_vocabulary(card: Card) -> dict[str, tuple[str, ...] | None]:
    """The names a guideline rule may use: what the clinic knows about the patient, never what is still hidden."""
    known = [variable for variable in card.variables if variable.observed and variable.name != card.performance.variable]
    return {
        **dict.fromkeys(("line", "ecog", "progressed")),
        **_vocabulary(known),
        **dict.fromkeys(f"known_{test.name}" for test in card.tests),
        **dict.fromkeys(f"prior_{regimen.name}" for regimen in card.regimens if regimen.active),
        **dict.fromkeys(f"marker_{clone.name}" for clone in card.clones[1:]),
        **dict.fromkeys(f"toxicity_{organ.name}" for organ in card.organs),
    }


def _vocabulary(variables: Iterable[Variable]) -> dict[str, tuple[str, ...] | None]:
    names: dict[str, tuple[str, ...] | None] = {}
    for variable in variables:
        names[variable.name] = variable.levels if isinstance(variable, Categorical) else None
        names.update(dict.fromkeys(variable.flags if isinstance(variable, Categorical) else ()))
    return names


def conditions(table: Table) -> Iterator[tuple[str, str]]:
    """(key, expression) of every condition in the cases and effects of a table."""
    for key in type(table).model_fields:
        value = getattr(table, key)
        for item in value if isinstance(value, tuple) else ():
            if isinstance(item, Case | WeightCase) and item.when:
                yield key, item.when
            elif isinstance(item, Effect):
                yield key, item.of
    if isinstance(table, Derived):
        yield "holds", table.holds


def _tables(card: Card) -> Iterator[tuple[str, Table]]:
    """(key, table) of every table of a card; the key of a row is like ``regimens[osimertinib]``."""
    for key in type(card).model_fields:
        value = getattr(card, key)
        for number, row in enumerate(value if isinstance(value, tuple) else ()):
            yield f"{key}[{getattr(row, 'name', number)}]", row
        if isinstance(value, Table):
            yield key, value


def _fail(key: str, value: object, expected: str) -> NoReturn:
    raise CardError(f"{key} = {shown(value)}: expected {expected}")


def _unique(table: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            _fail(table, name, "each name once")


def _known(key: str, name: str, names: Iterable[str], what: str) -> None:
    allowed = list(names)
    if name not in allowed:
        _fail(key, name, f"one of the {what}: {', '.join(allowed)}")


def _expression(key: str, text: str, vocabulary: Levels) -> tuple[str, ...]:
    try:
        return parse(text, vocabulary).names
    except ExpressionError as error:
        _fail(key, text, f"a valid condition ({error})")


def _sources(card: Card) -> None:
    for key, table in _tables(card):
        for name in table.source if isinstance(table, Sourced) else ():
            _known(f"{key}.source", name, card.sources, "sources")


def owner(card: Card, name: str) -> Variable:
    """The variable that a name, of a variable or a flag, belongs to."""
    for variable in card.variables:
        if name in _vocabulary([variable]):
            return variable
    raise KeyError(name)


def _graph(card: Card, vocabulary: Levels) -> None:
    tiers = {variable.name: variable.tier for variable in card.variables}
    for variable in card.variables:
        key = f"variables[{variable.name}]"
        for parent in variable.parents:
            _known(f"{key}.parents", parent, tiers, "variables")
            if variable.tier in ("demographic", "biology") and tiers[parent] in ("social", "access"):
                why = "social position acts on access to care, never on biology"
                _fail(f"{key}.parents", parent, f"no {tiers[parent]} variable: {why}")
        for _, text in conditions(variable):
            for name in _expression(key, text, vocabulary):
                read = owner(card, name).name
                if read not in variable.parents:
                    _fail(f"{key}.parents", list(variable.parents), f"{read!r} among the parents, because {text!r} reads it")
    try:
        order(card)
    except graphlib.CycleError as error:
        _fail("variables", " <- ".join(error.args[1]), "a patient graph without cycles")


def order(card: Card) -> list[str]:
    """Variable names, parents before children."""
    graph = {variable.name: set(variable.parents) for variable in card.variables}
    return list(graphlib.TopologicalSorter(graph).static_order())


def _biology(card: Card, vocabulary: Levels) -> None:
    """Social position acts on access to care only. The variables have been checked before."""
    others = [(key, table) for key, table in _tables(card) if not isinstance(table, Variable | Access)]
    texts = [(f"{key}.{name}", text) for key, table in others for name, text in conditions(table)]
    if card.observation.not_measurable:
        texts.append(("observation.not_measurable", card.observation.not_measurable))
    for key, text in texts:
        for name in _expression(key, text, vocabulary):
            if owner(card, name).tier in ("social", "access"):
                _fail(key, text, f"no social or access variable ({name!r} is one): social position never acts on biology")
    bodily = [v.name for v in card.variables if v.tier in ("demographic", "biology") and isinstance(v, Ordinal | Normal)]
    _known("performance.variable", card.performance.variable, bodily, "numeric variables of demography or biology")
    if card.growth.capacity_cm3 <= card.growth.reference_cm3:
        _fail("growth.capacity_cm3", card.growth.capacity_cm3, f"more than reference_cm3, which is {card.growth.reference_cm3:g}")


def _treatment(card: Card) -> None:
    mechanisms = [mechanism.name for mechanism in card.mechanisms]
    organs = [organ.name for organ in card.organs]
    clones = [clone.name for clone in card.clones]
    for name in (SUPPORTIVE, HOLIDAY):
        _known("regimens", name, [regimen.name for regimen in card.regimens if not regimen.active], "regimens without kill")
    for regimen in card.regimens:
        key = f"regimens[{regimen.name}]"
        for mechanism in [*regimen.kill, *(regimen.induction.drops if regimen.induction else ())]:
            _known(f"{key}.kill", mechanism, mechanisms, "mechanisms")
        for organ in regimen.toxicity:
            _known(f"{key}.toxicity", organ, organs, "organs")
    for number, clone in enumerate(card.clones):
        for mechanism in clone.resistance:
            _known(f"clones[{clone.name}].resistance", mechanism, mechanisms, "mechanisms")
        if clone.acquired:
            _known(f"clones[{clone.name}].acquired.origin", clone.acquired.origin, clones[:number], "clones before it")


def _access(card: Card) -> None:
    access = [variable for variable in card.variables if variable.tier == "access"]
    numeric = [variable.name for variable in access if isinstance(variable, Normal | Lognormal)]
    done = [variable.name for variable in access if isinstance(variable, Bernoulli)]
    tests = [test.name for test in card.tests]
    for variable in card.variables:
        if variable.test is not None:
            _known(f"variables[{variable.name}].test", variable.test, tests, "tests")
        if variable.protected and not isinstance(variable, Bernoulli | Discrete):
            expected = "false, because only bernoulli, categorical and ordinal variables have groups"
            _fail(f"variables[{variable.name}].protected", True, expected)
    for test in card.tests:
        _known(f"tests[{test.name}].access", test.access, done, "access variables that are true or false")
        if test.delay:
            _known(f"tests[{test.name}].delay", test.delay, numeric, "numeric access variables")
    for key in ("treatment_delay", "adherence"):
        _known(f"access.{key}", getattr(card.access, key), numeric, "numeric access variables")
    for key, text in conditions(card.access):
        _expression(f"access.{key}", text, patient_vocabulary(card))


def _carbon(card: Card) -> None:
    _known("grid_zone", card.grid_zone, zones(), "grid zones")
    for footprint in card.footprints:
        if footprint.grid_share:
            _known(f"footprints[{footprint.item}].measured_in", footprint.measured_in, zones(), "grid zones")


def _guideline(card: Card) -> None:
    vocabulary = guideline_vocabulary(card)
    for expert in card.experts:
        if expert.frail:
            _expression(f"experts[{expert.name}].frail", expert.frail, vocabulary)
    regimens = [regimen.name for regimen in card.regimens]
    for number, rule in enumerate(card.guideline):
        _known(f"guideline[{number}].regimen", rule.regimen, regimens, "regimens")
        if rule.when:
            _expression(f"guideline[{number}].when", rule.when, vocabulary)


def _arms(card: Card, vocabulary: Levels) -> None:
    regimens = [regimen.name for regimen in card.regimens]
    for arm in card.arms:
        key = f"arms[{arm.trial}: {arm.protocol}]"
        _expression(f"{key}.population", arm.population, vocabulary)
        for name, text in (("protocol", arm.protocol), ("prior", arm.prior or SUPPORTIVE)):
            try:
                parse_protocol(text, regimens)
            except ProtocolError as error:
                _fail(f"{key}.{name}", text, f"a valid sequence of regimens ({error})")
