"""Admission: from traits to a patient at the first visit."""

import jax
import jax.numpy as jnp

from onco_gym.cards.scenarios import Params, Scenario
from onco_gym.patients.traits import Traits
from onco_gym.simulator.chance import Chance, Expected, Sampled
from onco_gym.simulator.observation import measure, visible_volume
from onco_gym.simulator.state import Journey, Patient, State
from onco_gym.simulator.tumour import log_volume


def embody(params: Params, traits: Traits) -> Patient:
    """Apply the card's figures to traits: growth rates, sensitivities, clone sizes, hazards."""
    growth = _pick(params.growth, traits.growth_case) * jnp.exp(params.growth_spread * traits.growth_effect)
    own = _correlated(params, traits.sensitivity_effect)
    sensitivity = _pick_rows(params.sensitivity, traits.sensitivity_case) * jnp.exp(
        params.sensitivity_spread[:, None] * own + traits.sensitivity_shift
    )
    log10 = _pick_rows(params.fraction, traits.fraction_case) + params.fraction_spread[:, None] * traits.fraction_effect
    share = 10.0 ** jnp.clip(log10[1:], -12.0, -0.15)
    share = share / jnp.maximum(jnp.sum(share, 0) / 0.95, 1.0)
    shares = jnp.concatenate([1.0 - jnp.sum(share, 0, keepdims=True), share])
    volume = jnp.log(_pick(params.initial, traits.initial_case)) + params.initial_spread * traits.initial_effect
    return Patient(
        growth=-jnp.expm1(-growth / (params.log_capacity - params.log_reference)),
        sensitivity=sensitivity,
        clones=jnp.log(shares) + jnp.minimum(volume, params.log_capacity - 0.5),
        lesions=_pick(params.lesions, traits.lesions_case),
        frailty=jnp.exp(params.toxicity_spread * traits.frailty_effect + traits.frailty_shift),
        hazard=jnp.exp(params.hazard_spread * traits.hazard_effect + traits.hazard_shift),
        shedding=0.5 + params.ctdna_spread * traits.shedding_effect,
        ecog=jnp.asarray(traits.ecog),
        adherence=jnp.asarray(traits.adherence),
        delay=jnp.asarray(traits.delay),
        result_cycle=jnp.asarray(traits.result_cycle),
        wait=jnp.asarray(traits.wait),
        shown=jnp.asarray(traits.shown),
        travel=_pick(params.travel, traits.travel_case),
        groups=jnp.asarray(traits.groups),
    )


def admit(scenario: Scenario, params: Params, patient: Patient, key: jax.Array, expected: bool = False) -> Journey:
    """Start a journey at the first visit, with a baseline scan and nothing given yet.

    Args:
        patient: (…, n).
        key: (words, n) uint32, the source of this journey's chance.
        expected: use the mean of chance instead of sampling it.
    """
    n = patient.growth.shape[0]
    cycle, zero = jnp.zeros(n, jnp.int32), jnp.zeros(n, jnp.float32)
    chance: Chance = Expected() if expected else Sampled(key, cycle)
    volume = log_volume(patient.clones)
    measured = measure(params, patient, volume, chance)
    measured = measured + zero
    none = jnp.zeros((len(scenario.regimens), n), jnp.float32)
    state = State(
        cycle=cycle,
        alive=zero + 1.0,
        clones=patient.clones,
        volume=volume,
        response=jnp.zeros((sum(scenario.immune), n), jnp.float32),
        toxicity=jnp.zeros((len(scenario.organs), n), jnp.float32),
        performance=patient.ecog,
        held=zero,
        hospital=zero,
        barred=none,
        exposure=none,
        adapted=jnp.zeros((len(scenario.mechanisms), n), jnp.float32),
        last=cycle - 1,
        treatment=none if expected else cycle - 1,
        line=zero,
        progressed=zero,
        uncontrolled=zero,
        failed=zero,
        diameter=measured,
        baseline=measured,
        nadir=measured,
        scanned=visible_volume(volume),
        since_scan=zero,
        marker=jnp.zeros((len(scenario.clones) - 1, n), jnp.float32),
        result_cycle=patient.result_cycle,
    )
    return Journey(patient, state, key)


def _correlated(params: Params, effect: jax.Array) -> jax.Array:
    """(M, n) standard normal; the part that immune mechanisms share comes from the first of them."""
    shared = jnp.asarray(params.immune_shared)[:, None]
    first = jnp.sum(jnp.asarray(params.first_immune)[:, None] * effect, 0)
    return jnp.sqrt(1 - shared**2) * effect + shared * first


def _pick(values: jax.Array, case: jax.Array) -> jax.Array:
    return jnp.take(jnp.asarray(values), case)


def _pick_rows(table: jax.Array, case: jax.Array) -> jax.Array:
    """(rows, n): table[row, case[row]]."""
    return jnp.take_along_axis(jnp.asarray(table), case, axis=1)
