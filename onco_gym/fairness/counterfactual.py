"""A patient's twin: the same body and the same chance, with another value of a protected attribute."""

import functools
from collections.abc import Collection
from typing import Any, Literal, get_args

import jax
import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.checks import owner
from onco_gym.cards.scenarios import scenario
from onco_gym.cards.schema import Bernoulli, Ordinal
from onco_gym.interfaces.engine import Engine
from onco_gym.patients.traits import encode
from onco_gym.simulator.admission import embody
from onco_gym.simulator.state import Patient

Effect = Literal["total", "direct"]
"""What else changes with the attribute. ``"total"``: its social and access descendants (insurance, deprivation; tests, delays,
adherence). ``"direct"``: nothing, only the attribute as the chart shows it."""
EFFECTS: tuple[Effect, ...] = get_args(Effect)

SOCIAL = ("social", "access")
"""Tiers of variables that may change with a protected attribute. Demographic and biological variables stay fixed."""
CHANGED: dict[Effect, tuple[str, ...]] = {
    "total": ("adherence", "delay", "result_cycle", "wait", "shown", "travel", "groups"),
    "direct": ("shown", "groups"),
}
"""Fields of :class:`onco_gym.simulator.state.Patient` that can differ in a twin. All others are the patient's, bit for bit."""


class FairnessError(ValueError):
    """A question about fairness that cannot be answered. The message says what was expected."""


def engine_of(source: Any) -> Engine:
    """``source`` if it is an engine, or the engine of an environment."""
    engine = source if isinstance(source, Engine) else getattr(getattr(source, "unwrapped", None), "engine", None)
    if not isinstance(engine, Engine):
        raise FairnessError(f"expected an engine or an environment of onco_gym, got {type(source).__name__}")
    return engine


def groups_of(card: Card, attribute: str) -> tuple[str, ...]:
    """The groups of a protected attribute, by name.

    Raises:
        FairnessError: if ``attribute`` is not a protected attribute.
    """
    known = dict(scenario(card).groups)
    if attribute not in known:
        raise FairnessError(f"{attribute!r} is not a protected attribute of {card.id}: expected one of {', '.join(known)}")
    return known[attribute]


def checked_effect(effect: Effect) -> Effect:
    """Check that ``effect`` is one of :data:`EFFECTS` and return it."""
    if effect not in EFFECTS:
        raise FairnessError(f"effect is {effect!r}, expected one of {list(EFFECTS)}")
    return effect


def group_index(card: Card, attribute: str, value: Any) -> int:
    """The index of the group that ``value`` names, by its name or by its value (``3`` for ``"3"``, ``True`` for ``"yes"``)."""
    names = groups_of(card, attribute)
    variable = owner(card, attribute)
    text = str(value)
    if isinstance(value, bool | np.bool_):
        text = "yes" if value else "no"
    elif isinstance(variable, Ordinal) and isinstance(value, int | float | np.number):
        text = next((name for name, known in zip(names, variable.values, strict=True) if known == value), text)
    if text not in names:
        raise FairnessError(f"{attribute} is {value!r}, expected one of {', '.join(names)}")
    return names.index(text)


def twin_patients(engine: Engine, rows: NDArray[np.intp], attribute: str, group: int, effect: Effect) -> Patient:
    """The twins of the cohort's patients ``rows`` (n,) with ``attribute`` set to ``group``; batch last.

    Twins keep the exogenous noise and the random effects. :data:`Effect` says what changes with the attribute. A patient
    who is already in that group is their own twin.
    """
    card = engine.card
    held = [variable.name for variable in card.variables if effect == "direct" or variable.tier not in SOCIAL]
    variable = owner(card, attribute)
    value = variable.values[group] if isinstance(variable, Ordinal) else groups_of(card, attribute)[group]
    do = {attribute: bool(group) if isinstance(variable, Bernoulli) else value}
    other = engine.generator.counterfactual(engine.cohort.take(rows), do, held)
    made = _embody(engine, encode(card, other))
    return engine.patients(rows)._replace(**{name: getattr(made, name) for name in CHANGED[effect]})


def chosen_attributes(card: Card, attributes: Collection[str] | None) -> tuple[str, ...]:
    """``attributes``, or all protected attributes, in the card's order."""
    every = tuple(name for name, _ in scenario(card).groups)
    if attributes is None:
        return every
    if isinstance(attributes, str) or not attributes:
        raise FairnessError(f"attributes is {attributes!r}, expected a list with some of {', '.join(every)}")
    for name in attributes:
        groups_of(card, name)
    return tuple(name for name in every if name in attributes)


@functools.partial(jax.jit, static_argnums=0)
def _embody(engine: Engine, traits: Any) -> Patient:
    return embody(engine.params, traits)
