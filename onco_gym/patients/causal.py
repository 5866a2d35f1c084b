"""The causal generator: ancestral sampling of a card's patient graph from explicit exogenous noise.

Each variable is a function of its parents and one uniform number. The numbers are kept, so interventions (``do``) and
the exact counterfactual of a given patient (abduction, action, prediction) only need the same functions to be run again.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from onco_gym.cards import Card, digest
from onco_gym.cards.checks import order, owner, patient_vocabulary
from onco_gym.cards.expressions import parse
from onco_gym.cards.scenarios import effect_names
from onco_gym.cards.schema import Bernoulli, Derived, Discrete, Lognormal, Normal, Ordinal, Variable
from onco_gym.knowledge.conditions import Conditions, flags_of, with_flags
from onco_gym.patients.cohort import Cohort, CohortError, coded

Columns = Mapping[str, NDArray[Any]]
MOST_DRAWS = 4_000_000
"""Patients who are drawn to find those for whom a condition holds."""
_TINY = 1e-12


class CausalGenerator:
    """Draws cohorts for one card.

    Args:
        card: a validated card.
    """

    def __init__(self, card: Card) -> None:
        self.card = card
        by_name = {variable.name: variable for variable in card.variables}
        self._in_order = [by_name[name] for name in order(card)]

    def sample(self, n: int, seed: int = 0, where: str | None = None, do: Mapping[str, Any] | None = None) -> Cohort:
        """Draw ``n`` patients.

        Args:
            n: number of patients.
            seed: the same seed gives the same cohort.
            where: keep only patients for whom this holds, e.g. ``"EGFR_L858R and age > 70"``. ``cohort.drawn`` says how many
                were drawn to find them.
            do: interventions, e.g. ``{"insurance": "medicaid"}``; variables that depend on them follow.

        Raises:
            CohortError: if ``where`` is so rare that :data:`MOST_DRAWS` draws contain fewer than ``n`` such patients.
        """
        if n < 1:
            raise CohortError(f"n is {n}, expected at least one patient")
        condition = parse(where, patient_vocabulary(self.card)) if where else None
        parts: list[Cohort] = []
        found = drawn = 0
        size = n
        while found < n:
            part = self._draw(size, [seed, len(parts)], self._interventions(do or {}, size))
            drawn += size
            if condition is not None:
                part = part.take(np.flatnonzero(np.broadcast_to(condition.holds(with_flags(self.card, part.columns)), size)))
            parts.append(part)
            found += len(part)
            hopeless = drawn >= 250_000 and 2 * found * MOST_DRAWS < n * drawn  # far too rare: fail early
            if found < n and (drawn >= MOST_DRAWS or hopeless):
                raise CohortError(f"{where!r} holds for {found} of {drawn} patients drawn, expected at least {n}")
            rate = max(found, 1) / drawn
            size = int(min(max(1024, 1.2 * (n - found) / rate), 262_144))
        cohort = Cohort.concatenate(parts).take(np.arange(n))
        cohort.drawn = drawn
        return cohort

    def counterfactual(self, cohort: Cohort, do: Mapping[str, Any], hold: Iterable[str] = ()) -> Cohort:
        """The same patients under the interventions ``do``: same noise, same random effects; descendants follow.

        Args:
            cohort: the patients as they are.
            do: interventions, e.g. ``{"race_ethnicity": "black"}``.
            hold: variables, or tiers such as ``"biology"``, that keep their factual values.
        """
        known = {}
        for name in hold:
            held = [variable.name for variable in self.card.variables if name in (variable.tier, variable.name)]
            if not held:
                raise CohortError(f"hold names {name!r}, expected a variable or a tier of {self.card.id}")
            known.update({name: cohort.columns[name] for name in held})
        noise = self.abduct(cohort.columns, cohort.noise)
        known.update(self._interventions(do, len(cohort)))
        return self._cohort(self._follow(noise, known), noise, cohort.effects)

    def abduct(self, columns: Columns, noise: Columns | None = None, seed: int = 0) -> dict[str, NDArray[np.float64]]:
        """Noise under which the graph produces exactly ``columns``.

        The given ``noise`` is kept where it already does. Elsewhere it is inferred: exactly for continuous variables, and
        uniformly over the numbers that give the observed level for discrete ones.
        """
        size = len(next(iter(columns.values())))
        rng, on = np.random.default_rng([seed, 0xAB]), Conditions(self.card, with_flags(self.card, columns), size)
        result = {}
        for variable in self._in_order:
            name = variable.name
            result[name] = _noise_of(variable, columns[name], on, rng.random(size))
            if noise is not None and name in noise:
                result[name] = np.where(_same(_value(variable, noise[name], on), columns[name]), noise[name], result[name])
        return self._in_card_order(result)

    def complete(self, columns: Columns, seed: int = 0) -> Cohort:
        """Make a cohort from a bare table of patients: noise is abducted, random effects are drawn."""
        names = effect_names(self.card)
        size = len(next(iter(columns.values())))
        effects = np.random.default_rng([seed, 0xEF]).standard_normal((size, len(names))).T
        return self._cohort(columns, self.abduct(columns, seed=seed), dict(zip(names, effects, strict=True)))

    def _draw(self, n: int, seed: list[int], fixed: Columns) -> Cohort:
        rng, names = np.random.default_rng(seed), effect_names(self.card)
        uniform = np.clip(rng.random((len(self.card.variables), n)), _TINY, 1 - _TINY)
        noise = {variable.name: uniform[i] for i, variable in enumerate(self.card.variables)}
        effects = dict(zip(names, rng.standard_normal((len(names), n)), strict=True))
        return self._cohort(self._follow(noise, fixed), noise, effects)

    def _follow(self, noise: Columns, known: Columns) -> dict[str, NDArray[Any]]:
        """The ``known`` columns, and all others as the graph gives them for ``noise``."""
        columns: dict[str, NDArray[Any]] = {}
        on = Conditions(self.card, columns, len(next(iter(noise.values()))))
        for variable in self._in_order:
            name = variable.name
            columns[name] = known[name] if name in known else _value(variable, noise[name], on)
            columns.update(flags_of(variable, columns[name]))
        return columns

    def _in_card_order(self, columns: Columns) -> dict[str, NDArray[Any]]:
        return {variable.name: columns[variable.name] for variable in self.card.variables}

    def _cohort(self, columns: Columns, noise: dict[str, NDArray[Any]], effects: dict[str, NDArray[Any]]) -> Cohort:
        return Cohort(self.card.id, digest(self.card), self._in_card_order(columns), noise, effects)

    def _interventions(self, do: Mapping[str, Any], n: int) -> dict[str, NDArray[Any]]:
        """Variable to (n,) values that ``do`` sets."""
        fixed, known = {}, patient_vocabulary(self.card)
        for name, value in do.items():
            if name not in known:
                raise CohortError(f"do names {name!r}; expected some of {', '.join(known)}")
            variable = owner(self.card, name)
            if isinstance(variable, Derived):
                parents = ", ".join(variable.parents)
                raise CohortError(f"do names {name!r}, which is derived from {parents}: set those instead")
            if name != variable.name and value is not True:
                expected = f"expected True, as for every flag; to unset it, set {variable.name!r}"
                raise CohortError(f"do[{name!r}] = {value!r}: {expected}")
            given = np.array([value if name == variable.name else name])
            fixed[variable.name] = np.repeat(coded(variable, given, f"do[{name!r}]"), n)
        return fixed


def _value(variable: Variable, noise: NDArray[np.float64], on: Conditions) -> NDArray[Any]:
    """The value that the graph gives for ``noise`` and the parents that ``on`` reads."""
    match variable:
        case Bernoulli():
            return noise < _probability(variable, on)
        case Discrete():
            code = (noise[:, None] >= _cumulative(variable, on)[:, 1:-1]).sum(1)
            return np.asarray(variable.values)[code] if isinstance(variable, Ordinal) else code.astype(np.int8)
        case Normal():
            below, above, mean = _normal(variable, on)
            return np.clip(mean + variable.sd * ndtri(below + noise * (above - below)), variable.low, variable.high)
        case Lognormal():
            median, share = _lognormal(variable, on)
            return np.minimum(median * np.exp(variable.sd * ndtri(noise * share)), variable.high)
        case Derived():
            return np.array(on.holds(variable.holds))
    raise AssertionError(f"unknown kind of variable: {variable}")


def _noise_of(variable: Variable, value: NDArray[Any], on: Conditions, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Noise that gives ``value``; if there are many, ``uniform`` picks one."""
    match variable:
        case Bernoulli():
            p = _probability(variable, on)
            noise = np.where(value, uniform * p, p + uniform * (1 - p))
        case Discrete():
            bounds, rows = _cumulative(variable, on), np.arange(len(value))
            code = np.searchsorted(variable.values, value) if isinstance(variable, Ordinal) else value.astype(int)
            noise = bounds[rows, code] + uniform * (bounds[rows, code + 1] - bounds[rows, code])
        case Normal():
            below, above, mean = _normal(variable, on)
            noise = (ndtr((value - mean) / variable.sd) - below) / (above - below)
        case Lognormal():
            median, share = _lognormal(variable, on)
            noise = ndtr(np.log(np.maximum(value, _TINY) / median) / variable.sd) / share
        case _:
            noise = uniform
    return np.clip(noise, _TINY, 1 - _TINY)


def _probability(variable: Bernoulli, on: Conditions) -> NDArray[np.float64]:
    p = on.value(variable.probability)
    odds = p * np.exp(on.log_effects(variable.odds))
    return odds / (odds + 1 - p)


def _cumulative(variable: Discrete, on: Conditions) -> NDArray[np.float64]:
    """(n, levels + 1) bounds of the noise interval of each level."""
    weights = np.array([case.weights for case in variable.weights], float)[on.case(variable.weights)]
    for position, level in enumerate(variable.outcomes):
        weights[:, position] *= np.exp(on.log_effects(effect for effect in variable.odds if effect.level == level))
    bounds = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights / weights.sum(1, keepdims=True), 1)], 1)
    bounds[:, -1] = 1.0
    return bounds


def _normal(variable: Normal, on: Conditions) -> tuple[NDArray[np.float64], ...]:
    mean = on.value(variable.mean)
    return ndtr((variable.low - mean) / variable.sd), ndtr((variable.high - mean) / variable.sd), mean


def _lognormal(variable: Lognormal, on: Conditions) -> tuple[NDArray[np.float64], ...]:
    median = on.value(variable.median) * np.exp(on.log_effects(variable.effects))
    return median, ndtr(np.log(variable.high / median) / variable.sd)


def _same(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isclose(a, b, rtol=1e-12, atol=0) if a.dtype.kind == "f" else a == b
