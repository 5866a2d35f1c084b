"""A cohort as numbers: which case of each rule applies to each patient, and the random effects."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Scenario, column_range, columns_of, scenario
from onco_gym.cards.schema import Categorical, Ordinal, Variable
from onco_gym.knowledge.conditions import Conditions, with_flags
from onco_gym.patients.cohort import Cohort

NEVER = 1e6
"""Cycle of a test result that never comes."""

Floats = Any  # float32 arrays: NumPy, or JAX inside compiled functions
Cases = Any  # int32 arrays, likewise


class Traits(NamedTuple):
    """Patients, batch last. Nothing here depends on a card's fitted figures, so calibration can vary them."""

    growth_case: Cases  # (n,)
    growth_effect: Floats  # (n,) standard normal, like all effects
    initial_case: Cases  # (n,)
    initial_effect: Floats  # (n,)
    lesions_case: Cases  # (n,)
    sensitivity_case: Cases  # (M, n)
    sensitivity_effect: Floats  # (M, n)
    sensitivity_shift: Floats  # (M, n) log
    fraction_case: Cases  # (K, n)
    fraction_effect: Floats  # (K, n)
    frailty_effect: Floats  # (n,)
    frailty_shift: Floats  # (n,) log
    hazard_effect: Floats  # (n,)
    hazard_shift: Floats  # (n,) log
    shedding_effect: Floats  # (n,)
    ecog: Floats  # (n,) at baseline
    adherence: Floats  # (n,) share of tablets taken
    delay: Floats  # (n,) cycles by which treatment starts late
    result_cycle: Floats  # (T, n) cycle from which a test's result is known
    wait: Floats  # (T, n) cycles that a test takes for this patient, done or not
    shown: Floats  # (traits + biomarkers, n) observed columns, scaled to 0..1
    travel_case: Cases  # (n,)
    groups: Floats  # (A, n) group of each protected attribute, as a number from 0


def encode(card: Card, cohort: Cohort) -> Traits:
    """Turn a cohort into :class:`Traits`."""
    n, layout = len(cohort), scenario(card)
    on = Conditions(card, with_flags(card, cohort.columns), n)

    def cases(rows: Any) -> Cases:
        return np.stack([on.case(row) for row in rows]).astype(np.int32)

    def effects(*names: str) -> Floats:
        return np.stack([cohort.effects[name] for name in names]).astype(np.float32)

    growth, days = card.growth, 7 * card.cycle_weeks
    nothing = np.zeros(n)
    waits = [np.floor((t.turnaround_days + (cohort.columns[t.delay] if t.delay else nothing)) / days) for t in card.tests]
    results = [np.where(cohort.columns[test.access], wait, NEVER) for test, wait in zip(card.tests, waits, strict=True)]
    values = Traits(
        growth_case=cases([growth.per_cycle])[0],
        growth_effect=effects("growth")[0],
        initial_case=cases([growth.initial_cm3])[0],
        initial_effect=effects("initial")[0],
        lesions_case=cases([growth.lesions])[0],
        sensitivity_case=cases(mechanism.sensitivity for mechanism in card.mechanisms),
        sensitivity_effect=effects(*(f"mechanism:{mechanism.name}" for mechanism in card.mechanisms)),
        sensitivity_shift=np.stack([on.log_effects(mechanism.modifiers) for mechanism in card.mechanisms]),
        fraction_case=cases(clone.log10_fraction for clone in card.clones),
        fraction_effect=effects(*(f"clone:{clone.name}" for clone in card.clones)),
        frailty_effect=effects("frailty")[0],
        frailty_shift=on.log_effects(card.toxicity.effects),
        hazard_effect=effects("hazard")[0],
        hazard_shift=on.log_effects(card.survival.effects),
        shedding_effect=effects("ctdna")[0],
        ecog=cohort.columns[card.performance.variable],
        adherence=cohort.columns[card.access.adherence],
        delay=np.maximum(cohort.columns[card.access.treatment_delay] - card.access.usual_delay_days, 0.0) / days,
        result_cycle=np.stack(results),
        wait=np.stack(waits),
        shown=_shown(card, layout, cohort),
        travel_case=cases([card.access.travel_km])[0],
        groups=np.stack([_group(variable, cohort.columns[variable.name]) for variable in card.variables if variable.protected]),
    )
    return Traits(*(value if value.dtype == np.int32 else np.asarray(value, np.float32) for value in values))


def _shown(card: Card, layout: Scenario, cohort: Cohort) -> Floats:
    rows = dict(pair for v in card.variables for pair in zip(columns_of(v), _scaled(v, cohort.columns[v.name]), strict=True))
    return np.stack([rows[name] for name in (*layout.traits, *layout.biomarkers)]).astype(np.float32)


def _group(variable: Variable, values: NDArray[Any]) -> NDArray[Any]:
    return np.searchsorted(variable.values, values) if isinstance(variable, Ordinal) else values.astype(int)


def _scaled(variable: Variable, values: NDArray[Any]) -> list[NDArray[Any]]:
    if isinstance(variable, Categorical):
        return [values == code for code in range(len(variable.levels))]
    low, high = column_range(variable)
    return [(values.astype(float) - low) / (high - low)]
