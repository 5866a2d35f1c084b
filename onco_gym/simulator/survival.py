"""Performance status, death and health utility."""

import jax
import jax.numpy as jnp

from onco_gym.cards.scenarios import Params
from onco_gym.foundation.arrays import total

MOST_FAILED = 3.0
"""Progressions after which the hazard rises no further."""


def performance(params: Params, before: jax.Array, ecog: jax.Array, volume: jax.Array, toxicity: jax.Array) -> jax.Array:
    """(n,) ECOG after a cycle. It moves towards the patient's own level plus burden plus toxicity.

    Args:
        before: (n,) continuous ECOG.
        ecog: (n,) ECOG at diagnosis, the patient's own level at the reference volume.
        volume: (n,) log cm3.
        toxicity: (O, n) grades.
    """
    room = params.log_capacity - params.log_reference
    burden = jnp.clip((volume - params.log_reference) / room, -0.25, 1.0)
    target = ecog + params.burden_weight * burden + params.toxicity_weight * total(toxicity)
    return jnp.clip(before + params.performance_rate * (target - before), 0.0, 4.0)


def hazard(params: Params, factor: jax.Array, volume: jax.Array, ecog: jax.Array, failed: jax.Array) -> jax.Array:
    """(n,) hazard of death per cycle from the disease and the background.

    A disease that has progressed under treatment kills faster than one of the same volume that has not, because it has spread
    to more places. This effect stops growing after :data:`MOST_FAILED` progressions.

    Args:
        factor: (n,) the patient's own factor.
        volume: (n,) log cm3.
        ecog: (n,) continuous ECOG.
        failed: (n,) progressions so far.
    """
    log_tumour = params.burden_exponent * (volume - params.log_reference) + params.ecog_log_hazard * (ecog - 1.0)
    log_tumour = log_tumour + params.failed_log_hazard * jnp.minimum(failed, MOST_FAILED)
    return factor * (params.background + params.tumour_hazard * jnp.exp(log_tumour))


def utility(params: Params, ecog: jax.Array, uncontrolled: jax.Array, toxicity: jax.Array, infusions: jax.Array) -> jax.Array:
    """(n,) health utility of a cycle, 0 (as bad as death) to 1 (full health); never negative.

    The loss from progression ends when the tumour no longer grows, not when another drug is given.
    """
    base, per_ecog, per_progression, per_infusion = params.utility
    loss = per_ecog * ecog + per_progression * uncontrolled + per_infusion * infusions
    loss = loss + total(params.disutility[:, None] * toxicity)
    return jnp.clip(base - loss, 0.0, 1.0)
