"""The carbon term: kg CO2e of care, travel and computing."""

import jax
import jax.numpy as jnp

from onco_gym.cards.scenarios import ITEMS, Params, Scenario
from onco_gym.foundation.arrays import total
from onco_gym.rewards.scene import Scene


def carbon_kg(scenario: Scenario, params: Params, scene: Scene) -> jax.Array:
    """(n,) kg CO2e of the cycle.

    Drugs, infusions, visits and travel to the clinic count for the share of the cycle lived. Added to these are scans, tests
    whose results arrived, days in hospital, one inference for the decision, and the prompts that were asked for.
    """
    del scenario
    kg = dict(zip(ITEMS, params.items_kg, strict=True))
    events, orders, patient = scene.events, scene.orders, scene.before.patient
    drugs, clinic, visits = (
        total(values[:, None] * events.given) for values in (params.drug_kg, params.clinic_kg, params.visits)
    )
    if orders.visits is not None:
        clinic, visits = clinic * orders.visits, visits * orders.visits
    if orders.dose is not None:
        drugs = drugs * orders.dose
    imaging = jnp.where(orders.imaging == 2, kg["mri"], kg["ct"]) if orders.imaging is not None else kg["ct"]
    came = scene.after.state.result_cycle <= scene.after.state.cycle
    known = (scene.before.state.result_cycle <= scene.before.state.cycle) & (scene.before.state.cycle > 0)
    tests = total(params.tests_kg[:, None] * (came & ~known))
    other = kg["inference"] if orders.prompts is None else kg["inference"] + kg["prompt"] * orders.prompts
    if orders.extra_kg is not None:
        other = other + orders.extra_kg
    used = (drugs + clinic + visits * patient.travel * kg["km"]) * events.lived
    made = events.scanned * imaging + events.hospital * kg["bed_day"] + tests + other
    return used + made * scene.before.state.alive


def carbon_term(scenario: Scenario, params: Params, scene: Scene) -> jax.Array:
    """(n,) minus the tonnes CO2e of the cycle."""
    return -0.001 * carbon_kg(scenario, params, scene)
