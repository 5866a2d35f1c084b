"""Checks across the tables of a card: references, the patient graph, and where social position may act."""

import graphlib
import re
from collections.abc import Iterable, Iterator
from typing import NoReturn

from onco_gym.cards.expressions import ExpressionError, Levels, parse
from onco_gym.cards.grid import zones
from onco_gym.cards.protocols import ProtocolError, parse_protocol
from onco_gym.cards.schema import (
    SMALLEST,
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
    Variable,
    WeightCase,
)

SUPPORTIVE, HOLIDAY = "best_supportive_care", "drug_holiday"
"""The two regimens that every card has, without anti-cancer drugs: one leaves treatment for good, one pauses it."""


class MismatchError(Exception):
    """A card with inconsistent tables: ``key``, ``value`` and what was ``expected``."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        super().__init__(key, value, expected)
        self.key, self.value, self.expected = key, value, expected


def check(card: Card) -> None:
    """Raise :class:`MismatchError` for the first inconsistency."""
    _sources(card)
    for table in ("variables", "mechanisms", "regimens", "clones", "organs", "tests", "footprints", "experts"):
        _unique(table, [getattr(row, "name", getattr(row, "item", "")) for row in getattr(card, table)])
    vocabulary = patient_vocabulary(card)
    _unique("variables", [*(v.name for v in card.variables), *(flag for v in _categoricals(card) for flag in v.flags)])
    _graph(card, vocabulary)
    _biology(card, vocabulary)
    _treatment(card)
    _access(card)
    _carbon(card)
    _guideline(card)
    _arms(card, vocabulary)


def patient_vocabulary(card: Card) -> dict[str, tuple[str, ...] | None]:
    """Every variable and flag of a patient, with the levels of the categorical ones."""
    names: dict[str, tuple[str, ...] | None] = {}
    for variable in card.variables:
        names[variable.name] = variable.levels if isinstance(variable, Categorical) else None
        if isinstance(variable, Categorical):
            names.update(dict.fromkeys(variable.flags))
    return names


def guideline_vocabulary(card: Card) -> dict[str, tuple[str, ...] | None]:
    """The names a guideline rule may use: what the clinic knows about the patient, never what is still hidden."""
    names: dict[str, tuple[str, ...] | None] = dict.fromkeys(("line", "ecog", "progressed"))
    for variable in card.variables:
        if variable.observed and variable.name != card.performance.variable:
            names[variable.name] = variable.levels if isinstance(variable, Categorical) else None
            if isinstance(variable, Categorical):
                names.update(dict.fromkeys(variable.flags))
    names.update(dict.fromkeys(f"known_{test.name}" for test in card.tests))
    names.update(dict.fromkeys(f"prior_{regimen.name}" for regimen in card.regimens if regimen.active))
    names.update(dict.fromkeys(f"marker_{clone.name}" for clone in card.clones[1:]))
    names.update(dict.fromkeys(f"toxicity_{organ.name}" for organ in card.organs))
    return names


def conditions(variable: Variable) -> Iterator[str]:
    """The expressions in a variable's distribution."""
    cases: Iterable[Case | WeightCase] = ()
    effects: tuple[Effect, ...] = ()
    match variable:
        case Bernoulli():
            cases, effects = variable.probability, variable.odds
        case Discrete():
            cases, effects = variable.weights, variable.odds
        case Normal():
            cases = variable.mean
        case Lognormal():
            cases, effects = variable.median, variable.effects
        case Derived():
            yield variable.holds
    yield from (case.when for case in cases if case.when)
    yield from (effect.of for effect in effects)


def _categoricals(card: Card) -> Iterator[Categorical]:
    return (variable for variable in card.variables if isinstance(variable, Categorical))


def _fail(key: str, value: object, expected: str) -> NoReturn:
    raise MismatchError(key, value, expected)


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
    def walk(value: object, key: str) -> None:
        if isinstance(value, Sourced):
            for name in value.source:
                _known(f"{key}.source", name, card.sources, "sources")
        if isinstance(value, tuple):
            for number, item in enumerate(value):
                walk(item, f"{key}[{getattr(item, 'name', number)}]")

    for field in type(card).model_fields:
        walk(getattr(card, field), field)


def owner(card: Card, name: str) -> Variable:
    """The variable that a name, of a variable or a flag, belongs to."""
    for variable in card.variables:
        if name == variable.name or (isinstance(variable, Categorical) and name in variable.flags):
            return variable
    raise KeyError(name)


def _graph(card: Card, vocabulary: Levels) -> None:
    names = [variable.name for variable in card.variables]
    for variable in card.variables:
        key = f"variables[{variable.name}]"
        for case in variable.median if isinstance(variable, Lognormal) else ():
            if case.value < SMALLEST:
                _fail(f"{key}.median", case.value, f"a number of at least {SMALLEST:g}")
        for parent in variable.parents:
            _known(f"{key}.parents", parent, names, "variables")
        for text in conditions(variable):
            for name in _expression(key, text, vocabulary):
                if owner(card, name).name not in variable.parents:
                    _fail(
                        f"{key}.parents",
                        list(variable.parents),
                        f"{owner(card, name).name!r} among the parents, because {text!r} reads it",
                    )
    try:
        order(card)
    except graphlib.CycleError as error:
        _fail("variables", " <- ".join(error.args[1]), "a patient graph without cycles")
    tiers = {variable.name: variable.tier for variable in card.variables}
    for variable in card.variables:
        for parent in variable.parents:
            if variable.tier in ("demographic", "biology") and tiers[parent] in ("social", "access"):
                _fail(
                    f"variables[{variable.name}].parents",
                    parent,
                    f"no {tiers[parent]} variable: social position acts on access to care, never on biology",
                )


def order(card: Card) -> list[str]:
    """Variable names, parents before children."""
    graph = {variable.name: set(variable.parents) for variable in card.variables}
    return list(graphlib.TopologicalSorter(graph).static_order())


def _biology(card: Card, vocabulary: Levels) -> None:
    def biological(key: str, text: str) -> None:
        for name in _expression(key, text, vocabulary):
            if owner(card, name).tier in ("social", "access"):
                _fail(key, text, f"no social or access variable ({name!r} is one): social position never acts on biology")

    def cases(key: str, values: tuple[Case, ...]) -> None:
        for case in values:
            if case.when:
                biological(f"{key}.when", case.when)

    def effects(key: str, values: tuple[Effect, ...]) -> None:
        for effect in values:
            biological(f"{key}.of", effect.of)

    for mechanism in card.mechanisms:
        cases(f"mechanisms[{mechanism.name}].sensitivity", mechanism.sensitivity)
        effects(f"mechanisms[{mechanism.name}].modifiers", mechanism.modifiers)
    for clone in card.clones:
        cases(f"clones[{clone.name}].log10_fraction", clone.log10_fraction)
    for field in ("per_cycle", "initial_cm3", "lesions"):
        cases(f"growth.{field}", getattr(card.growth, field))
    if card.observation.not_measurable:
        biological("observation.not_measurable", card.observation.not_measurable)
    effects("survival.effects", card.survival.effects)
    effects("toxicity.effects", card.toxicity.effects)
    bodily = [v.name for v in card.variables if v.tier in ("demographic", "biology") and isinstance(v, Ordinal | Normal)]
    _known("performance.variable", card.performance.variable, bodily, "numeric variables of demography or biology")
    if card.growth.capacity_cm3 <= card.growth.reference_cm3:
        _fail("growth.capacity_cm3", card.growth.capacity_cm3, f"more than reference_cm3, which is {card.growth.reference_cm3:g}")
    for field in ("per_cycle", "initial_cm3", "lesions"):
        for case in getattr(card.growth, field):
            if case.value < SMALLEST:
                _fail(f"growth.{field}", case.value, f"a number of at least {SMALLEST:g}")
    for mechanism in card.mechanisms:
        for case in mechanism.sensitivity:
            if case.value < 0:
                _fail(f"mechanisms[{mechanism.name}].sensitivity", case.value, "a non-negative number")


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
    access = [
        variable.name for variable in card.variables if variable.tier == "access" and isinstance(variable, Normal | Lognormal)
    ]
    done = [variable.name for variable in card.variables if variable.tier == "access" and isinstance(variable, Bernoulli)]
    tests = [test.name for test in card.tests]
    for variable in card.variables:
        if variable.test is not None:
            _known(f"variables[{variable.name}].test", variable.test, tests, "tests")
    for test in card.tests:
        _known(f"tests[{test.name}].access", test.access, done, "access variables that are true or false")
        if test.delay:
            _known(f"tests[{test.name}].delay", test.delay, access, "numeric access variables")
    _known("access.treatment_delay", card.access.treatment_delay, access, "numeric access variables")
    _known("access.adherence", card.access.adherence, access, "numeric access variables")
    for case in card.access.travel_km:
        if case.when:
            _expression("access.travel_km.when", case.when, patient_vocabulary(card))
        if case.value < 0:
            _fail("access.travel_km", case.value, "a non-negative number")
    for variable in card.variables:
        if variable.protected and not isinstance(variable, Bernoulli | Discrete):
            _fail(
                f"variables[{variable.name}].protected",
                True,
                "false, because only bernoulli, categorical and ordinal variables have groups",
            )


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
        for mark in arm.landmarks:
            if not re.fullmatch(r"(PFS|OS)\d{1,3}", mark):
                _fail(f"{key}.landmarks", mark, "PFS or OS followed by a number of months, as in OS60")
