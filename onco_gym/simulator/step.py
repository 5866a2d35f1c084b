"""The one transition function: a cycle of a patient's life under a decision.

Every interface, trial and solver moves patients with :func:`step`. A decision is a regimen's index, or, in the
expected reading, a weight per regimen.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onco_gym.cards.scenario import Params, Scenario
from onco_gym.simulator import survival, tumour
from onco_gym.simulator.chance import Chance, Channel, Expected, Sampled
from onco_gym.simulator.observation import allowed, one_hot, scan
from onco_gym.simulator.state import Journey, Patient, State, total
from onco_gym.simulator.toxicity import suffer


class Events(NamedTuple):
    """What happened in a cycle; the rewards are made of it."""

    given: jax.Array  # (R, n) share of each regimen given
    lived: jax.Array  # (n,) share of the cycle lived
    utility: jax.Array  # (n,) health utility while alive
    died: jax.Array  # (n,)
    severe: jax.Array  # (n,) grade 3+ event
    hospital: jax.Array  # (n,) days
    scanned: jax.Array  # (n,)
    new_line: jax.Array  # (n,)


def step(
    scenario: Scenario, params: Params, journey: Journey, decision: jax.Array, expected: bool = False
) -> tuple[Journey, Events]:
    """Move every patient by one cycle.

    Args:
        scenario: static side of the card.
        params: arrays of the card.
        journey: n patients under way.
        decision: (n,) int32 regimen index, or (R, n) weights that add up to 1.
        expected: read chance by its mean instead of sampling it.

    Returns:
        The journey a cycle later, and what happened. A dead patient stays dead and lives no more.
    """
    patient, state, key = journey
    regimens = len(scenario.regimens)
    weights = decision if decision.ndim == 2 else one_hot(decision, regimens)
    chance: Chance = Expected() if expected else Sampled(key, state.cycle + 1)

    given = weights * allowed(params, state)
    given = given.at[scenario.holiday].add(1.0 - jnp.sum(given, 0))
    state, new_line = _start_line(params, state, given)

    rows = _regimen_rows(params, state, given, exact=decision.ndim == 1)
    mechanisms, organs = len(scenario.mechanisms), len(scenario.organs)
    kill, severe = rows[:mechanisms], rows[mechanisms : mechanisms + organs]
    burden, discontinue, oral, infusions = rows[mechanisms + organs :]
    dose = (1 - state.held) * jnp.clip(state.cycle + 1 - patient.delay, 0.0, 1.0)
    taken = dose * (1 - oral * (1 - patient.adherence))

    harm = suffer(
        params,
        chance,
        state.toxicity,
        severe * patient.frailty,
        burden * patient.frailty,
        discontinue,
        jnp.sum(given * state.exposure, 0),
        taken,
    )
    immune = np.asarray(scenario.immune, np.float32)
    effect = kill * patient.sensitivity * taken
    drive = total(effect[np.flatnonzero(immune)]) if any(scenario.immune) else jnp.zeros_like(taken)
    response = tumour.immune_response(params, state.response, drive)
    clones, volume = tumour.grow(
        params, patient.growth, state.clones, state.volume, tumour.clone_kill(params, effect, response, immune)
    )
    ecog = survival.performance(params, state.performance, patient.ecog, volume, harm.toxicity)
    lived, died = chance.lived(survival.hazard(params, patient.hazard, volume, ecog) + harm.fatal, Channel.DEATH)

    active = given * params.active[:, None]
    after = state._replace(
        cycle=state.cycle + 1,
        alive=state.alive * (1 - died),
        clones=clones,
        volume=volume,
        response=response,
        toxicity=harm.toxicity,
        performance=ecog,
        held=harm.severe,
        hospital=harm.hospital,
        barred=state.barred + (1 - state.barred) * active * harm.stop,
        exposure=state.exposure + given,
        last=jnp.argmax(given, 0).astype(jnp.int32),
    )
    after = scan(scenario, params, patient, after, chance)
    events = Events(
        given=given,
        lived=lived * state.alive,
        utility=survival.utility(params, ecog, after.progressed, harm.toxicity, infusions),
        died=died * state.alive,
        severe=harm.severe,
        hospital=harm.hospital,
        scanned=(after.since_scan == 0).astype(jnp.float32),
        new_line=new_line,
    )
    return Journey(patient, after, key), events


def _start_line(params: Params, state: State, given: jax.Array) -> tuple[State, jax.Array]:
    """A new anti-cancer regimen starts a line: RECIST begins anew at the last measured sum."""
    active = given * params.active[:, None]
    share = jnp.sum(active, 0)
    new = share - jnp.sum(jnp.minimum(active, state.treatment), 0)
    switch = state._replace(
        line=state.line + new,
        treatment=state.treatment * (1 - share) + active,
        progressed=state.progressed * (1 - new),
        baseline=state.baseline + new * (state.diameter - state.baseline),
        nadir=state.nadir + new * (state.diameter - state.nadir),
    )
    return switch, new


def _regimen_rows(params: Params, state: State, given: jax.Array, exact: bool) -> jax.Array:
    """(M + O + 4, n) everything that what is given brings into a cycle, induction or maintenance.

    ``exact`` says that one regimen is given whole: its row is looked up. Otherwise rows are mixed.
    """
    late = (state.exposure >= params.induction[:, None]).astype(jnp.float32)
    if exact:
        row = jnp.argmax(given, 0) + given.shape[0] * jnp.max(given * late, 0).astype(jnp.int32)
        return jnp.take(jnp.asarray(params.regimens).T, row, axis=1, mode="clip")
    weights = jnp.concatenate([given * (1 - late), given * late])
    return jax.lax.dot_general(
        jnp.asarray(params.regimens), weights, (((0,), (0,)), ((), ())), precision=jax.lax.Precision.HIGHEST
    )


__all__ = ["Events", "Journey", "Patient", "State", "step"]
