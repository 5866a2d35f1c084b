"""The causal generator: ancestral sampling of a card's patient graph from explicit exogenous noise.

Each variable is a function of its parents and one uniform number. The numbers are kept, so interventions (``do``) and
the exact counterfactual of a given patient (abduction, action, prediction) only need the same functions to be run again.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from onco_gym.cards import Card, digest
from onco_gym.cards.checks import order, owner, patient_vocabulary
from onco_gym.cards.expressions import parse
from onco_gym.cards.scenarios import effect_names
from onco_gym.cards.schema import Bernoulli, Case, Categorical, Derived, Discrete, Effect, Lognormal, Normal, Ordinal, Variable
from onco_gym.knowledge.facts import case_index, with_flags
from onco_gym.patients.cohort import Cohort, CohortError

Columns = Mapping[str, NDArray[Any]]
_TINY = 1e-12


class CausalGenerator:
    """Draws cohorts for one card.

    Args:
        card: a validated card.
    """

    def __init__(self, card: Card) -> None:
        self.card = card
        self._by_name = {variable.name: variable for variable in card.variables}
        self._order = order(card)
        self._vocabulary = patient_vocabulary(card)

    def sample(
        self, n: int, seed: int = 0, where: str | None = None, do: Mapping[str, Any] | None = None, max_draws: int = 4_000_000
    ) -> Cohort:
        """Draw ``n`` patients.

        Args:
            n: number of patients.
            seed: the same seed gives the same cohort.
            where: keep only patients for whom this holds, e.g. ``"EGFR_L858R and age > 70"``. ``cohort.drawn`` says how many
                were drawn to find them.
            do: interventions, e.g. ``{"insurance": "medicaid"}``; variables that depend on them follow.
            max_draws: stop looking after this many draws.

        Raises:
            CohortError: if ``where`` is so rare that ``max_draws`` draws contain fewer than ``n`` such patients.
        """
        if n < 1:
            raise CohortError(f"n is {n}, expected at least one patient")
        condition = parse(where, self._vocabulary) if where else None
        fixed = self._interventions(do or {})
        parts: list[Cohort] = []
        found = drawn = 0
        size = n
        while found < n:
            part = self._draw(size, [seed, len(parts)], fixed)
            drawn += size
            if condition is not None:
                part = part.take(np.flatnonzero(np.broadcast_to(condition.holds(with_flags(self.card, part.columns)), size)))
            parts.append(part)
            found += len(part)
            hopeless = drawn >= 250_000 and 2 * found * max_draws < n * drawn  # far too rare: fail early
            if found < n and (drawn >= max_draws or hopeless):
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
        fixed = self._interventions(do)
        kept = set()
        for name in hold:
            tier = [variable.name for variable in self.card.variables if variable.tier == name]
            if not tier and name not in self._by_name:
                raise CohortError(f"hold names {name!r}, expected a variable or a tier of {self.card.id}")
            kept.update(tier or [name])
        noise = self.abduct(cohort.columns, cohort.noise)
        columns: dict[str, NDArray[Any]] = {}
        for name in self._order:
            variable = self._by_name[name]
            if name in fixed:
                columns[name] = np.full(len(cohort), fixed[name])
            elif name in kept:
                columns[name] = cohort.columns[name]
            else:
                columns[name] = self._value(variable, noise[name], columns)
        return Cohort(self.card.id, digest(self.card), self._in_card_order(columns), noise, cohort.effects)

    def abduct(self, columns: Columns, noise: Columns | None = None, seed: int = 0) -> dict[str, NDArray[np.float64]]:
        """Noise under which the graph produces exactly ``columns``.

        The given ``noise`` is kept where it already does. Elsewhere it is inferred: exactly for continuous variables, and
        uniformly over the numbers that give the observed level for discrete ones.
        """
        size = len(next(iter(columns.values())))
        rng = np.random.default_rng([seed, 0xAB])
        result = {}
        for name in self._order:
            variable, value = self._by_name[name], columns[name]
            given = None if noise is None else noise.get(name)
            inferred = self._noise_of(variable, value, columns, rng.random(size))
            if given is None:
                result[name] = inferred
            else:
                result[name] = np.where(_same(self._value(variable, given, columns), value), given, inferred)
        return {variable.name: result[variable.name] for variable in self.card.variables}

    def complete(self, columns: Columns, seed: int = 0) -> Cohort:
        """Make a cohort from a bare table of patients: noise is abducted, random effects are drawn."""
        size = len(next(iter(columns.values())))
        effects = np.random.default_rng([seed, 0xEF]).standard_normal((size, len(effect_names(self.card))))
        return Cohort(
            self.card.id,
            digest(self.card),
            self._in_card_order(columns),
            self.abduct(columns, seed=seed),
            dict(zip(effect_names(self.card), effects.T, strict=True)),
        )

    def _draw(self, n: int, seed: list[int], fixed: Mapping[str, Any]) -> Cohort:
        rng = np.random.default_rng(seed)
        uniform = np.clip(rng.random((len(self._order), n)), _TINY, 1 - _TINY)
        noise = {variable.name: uniform[i] for i, variable in enumerate(self.card.variables)}
        effects = dict(zip(effect_names(self.card), rng.standard_normal((len(effect_names(self.card)), n)), strict=True))
        columns: dict[str, NDArray[Any]] = {}
        for name in self._order:
            variable = self._by_name[name]
            columns[name] = np.full(n, fixed[name]) if name in fixed else self._value(variable, noise[name], columns)
        return Cohort(self.card.id, digest(self.card), self._in_card_order(columns), noise, effects)

    def _in_card_order(self, columns: Columns) -> dict[str, NDArray[Any]]:
        return {variable.name: columns[variable.name] for variable in self.card.variables}

    def _interventions(self, do: Mapping[str, Any]) -> dict[str, Any]:
        fixed = {}
        for name, value in do.items():
            if name not in self._vocabulary:
                raise CohortError(f"do names {name!r}; expected some of {', '.join(self._vocabulary)}")
            variable = owner(self.card, name)
            if isinstance(variable, Categorical) and name in variable.flags:
                if value is not True:
                    raise CohortError(
                        f"do[{name!r}] = {value!r}: expected True, as for every flag; to unset it, set {variable.name!r}"
                    )
                value = name
            fixed[variable.name] = _coded(variable, value)
        return fixed

    def _value(self, variable: Variable, noise: NDArray[np.float64], columns: Columns) -> NDArray[Any]:
        """The value that the graph gives for ``noise`` and the parents in ``columns``."""
        match variable:
            case Bernoulli():
                return noise < self._probability(variable, columns, len(noise))
            case Discrete():
                bounds = self._cumulative(variable, columns, len(noise))
                code = (noise[:, None] >= bounds[:, 1:-1]).sum(1)
                return np.asarray(variable.values)[code] if isinstance(variable, Ordinal) else code.astype(np.int8)
            case Normal():
                below, above, mean = self._normal(variable, columns, len(noise))
                return np.clip(mean + variable.sd * ndtri(below + noise * (above - below)), variable.low, variable.high)
            case Lognormal():
                median, share = self._lognormal(variable, columns, len(noise))
                return np.minimum(median * np.exp(variable.sd * ndtri(noise * share)), variable.high)
            case Derived():
                return np.array(np.broadcast_to(self._holds(variable.holds, columns), len(noise)))
        raise AssertionError(f"unknown kind of variable: {variable}")

    def _noise_of(
        self, variable: Variable, value: NDArray[Any], columns: Columns, uniform: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Noise that gives ``value``; if there are many, ``uniform`` picks one."""
        n = len(value)
        match variable:
            case Bernoulli():
                p = self._probability(variable, columns, n)
                noise = np.where(value, uniform * p, p + uniform * (1 - p))
            case Discrete():
                bounds = self._cumulative(variable, columns, n)
                code = np.searchsorted(variable.values, value) if isinstance(variable, Ordinal) else value.astype(int)
                low, high = bounds[np.arange(n), code], bounds[np.arange(n), code + 1]
                noise = low + uniform * (high - low)
            case Normal():
                below, above, mean = self._normal(variable, columns, n)
                noise = (ndtr((value - mean) / variable.sd) - below) / (above - below)
            case Lognormal():
                median, share = self._lognormal(variable, columns, n)
                noise = ndtr(np.log(np.maximum(value, _TINY) / median) / variable.sd) / share
            case _:
                noise = uniform
        return np.clip(noise, _TINY, 1 - _TINY)

    def _on(self, text: str, columns: Columns) -> Any:
        return parse(text, self._vocabulary)(_Flagged(self.card, columns))

    def _holds(self, text: str, columns: Columns) -> Any:
        return parse(text, self._vocabulary).holds(_Flagged(self.card, columns))

    def _case(self, cases: tuple[Case, ...], columns: Columns, n: int) -> NDArray[np.float64]:
        return np.array([case.value for case in cases])[case_index(cases, functools.partial(self._holds, columns=columns), n)]

    def _odds(self, effects: tuple[Effect, ...], columns: Columns, n: int, level: str = "") -> NDArray[np.float64]:
        return np.exp(log_effects([e for e in effects if e.level == level], functools.partial(self._on, columns=columns), n))

    def _probability(self, variable: Bernoulli, columns: Columns, n: int) -> NDArray[np.float64]:
        p = self._case(variable.probability, columns, n)
        odds = p * self._odds(variable.odds, columns, n)
        return odds / (odds + 1 - p)

    def _cumulative(self, variable: Discrete, columns: Columns, n: int) -> NDArray[np.float64]:
        """(n, levels + 1) bounds of the noise interval of each level."""
        table = np.array([case.weights for case in variable.weights], float)
        weights = table[case_index(variable.weights, functools.partial(self._holds, columns=columns), n)]
        for position, level in enumerate(variable.outcomes):
            weights[:, position] *= self._odds(variable.odds, columns, n, level)
        bounds = np.concatenate([np.zeros((n, 1)), np.cumsum(weights / weights.sum(1, keepdims=True), 1)], 1)
        bounds[:, -1] = 1.0
        return bounds

    def _normal(self, variable: Normal, columns: Columns, n: int) -> tuple[NDArray[np.float64], ...]:
        mean = self._case(variable.mean, columns, n)
        return ndtr((variable.low - mean) / variable.sd), ndtr((variable.high - mean) / variable.sd), mean

    def _lognormal(self, variable: Lognormal, columns: Columns, n: int) -> tuple[NDArray[np.float64], ...]:
        median = self._case(variable.median, columns, n) * self._odds(variable.effects, columns, n)
        return median, ndtr(np.log(variable.high / median) / variable.sd)


class _Flagged(dict[str, Any]):
    """Columns that compute a flag such as ``EGFR_L858R`` from its categorical variable."""

    def __init__(self, card: Card, columns: Columns) -> None:
        super().__init__(columns)
        self._card = card

    def __missing__(self, name: str) -> Any:
        variable = owner(self._card, name)
        assert isinstance(variable, Categorical)
        return self[variable.name] == variable.levels.index(name)


def log_effects(effects: Iterable[Effect], evaluate: Any, n: int) -> NDArray[np.float64]:
    """(n,) log of the product of ``times ** of``."""
    total = np.zeros(n)
    for effect in effects:
        total = total + np.log(effect.times) * np.asarray(evaluate(effect.of), float)
    return total


def _coded(variable: Variable, value: Any) -> Any:
    match variable:
        case Categorical():
            if value not in variable.levels:
                raise CohortError(f"do[{variable.name!r}] = {value!r}: expected one of {list(variable.levels)}")
            return np.int8(variable.levels.index(value))
        case Ordinal():
            if value not in variable.values:
                raise CohortError(f"do[{variable.name!r}] = {value!r}: expected one of {list(variable.values)}")
            return float(value)
        case Bernoulli():
            if not isinstance(value, bool | np.bool_):
                raise CohortError(f"do[{variable.name!r}] = {value!r}: expected True or False")
            return bool(value)
        case Derived():
            raise CohortError(
                f"do names {variable.name!r}, which is derived from {', '.join(variable.parents)}: set those instead"
            )
    low, high = (variable.low, variable.high) if isinstance(variable, Normal) else (0.0, getattr(variable, "high", np.inf))
    if not isinstance(value, int | float | np.number) or not low <= value <= high:
        raise CohortError(f"do[{variable.name!r}] = {value!r}: expected a number in {low:g}..{high:g}")
    return float(value)


def _same(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isclose(a, b, rtol=1e-12, atol=0) if a.dtype.kind == "f" else a == b
