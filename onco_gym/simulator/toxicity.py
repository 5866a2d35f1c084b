"""Toxicity by organ class: standing grades, grade 3+ events, and their consequences."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from onco_gym.cards.scenarios import Params
from onco_gym.foundation.arrays import total
from onco_gym.simulator.chance import Chance, Channel


class Harm(NamedTuple):
    """Harm from treatment in one cycle."""

    toxicity: jax.Array  # (O, n) grades after the cycle
    severe: jax.Array  # (n,) a grade 3+ event happened, so the next cycle is held
    hospital: jax.Array  # (n,) days
    fatal: jax.Array  # (n,) hazard of death that it adds to this cycle
    stop: jax.Array  # (n,) the regimen is stopped for good


def suffer(
    params: Params,
    chance: Chance,
    toxicity: jax.Array,
    severe_hazard: jax.Array,
    burden: jax.Array,
    discontinue: jax.Array,
    exposure: jax.Array,
    dose: jax.Array,
) -> Harm:
    """Simulate one cycle of toxicity.

    Args:
        toxicity: (O, n) grades before.
        severe_hazard: (O, n) hazard of a grade 3+ event in the regimen's first cycle, frailty included.
        burden: (n,) standing grade of the regimen, frailty included.
        discontinue: (n,) probability of stopping, given a grade 3+ event.
        exposure: (n,) cycles of the regimen already received; the risk fades with them.
        dose: (n,) share of the dose given.
    """
    hazard = severe_hazard * (dose * jnp.exp(-exposure / params.onset_cycles))
    events, stop = chance.one_of(hazard, discontinue, Channel.SEVERE)
    standing = severe_hazard * (burden * dose / jnp.maximum(total(severe_hazard), 1e-9))
    recovery = params.recovery[:, None]
    level = toxicity + recovery * (standing - toxicity)
    level = level + events * jnp.maximum(3.5 - level, 0.0)
    return Harm(
        toxicity=jnp.clip(level, 0.0, 5.0),
        severe=total(events),
        hospital=total(events * params.hospital_days[:, None]),
        fatal=total(events * params.fatal[:, None]),
        stop=stop,
    )
