"""The transition function: one cycle of a patient's life under a decision.

All code that moves patients forward uses :func:`step`. A decision is the index of a regimen or, in the expected reading, a
weight per regimen.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onco_gym.cards.scenarios import Params, Scenario
from onco_gym.foundation.arrays import one_turn, settled
from onco_gym.simulator import survival, tumour
from onco_gym.simulator.chance import Chance, Channel, Expected, Sampled
from onco_gym.simulator.observation import allowed, allowed_where, one_hot, scan
from onco_gym.simulator.state import Journey, State
from onco_gym.simulator.toxicity import suffer


class Events(NamedTuple):
    """What happened in a cycle. Rewards are computed from it."""

    given: jax.Array  # (R, n) share of each regimen given
    lived: jax.Array  # (n,) share of the cycle lived
    utility: jax.Array  # (n,) health utility while alive
    died: jax.Array  # (n,)
    severe: jax.Array  # (n,) grade 3+ event
    hospital: jax.Array  # (n,) days
    scanned: jax.Array  # (n,)
    new_line: jax.Array  # (n,)


class Orders(NamedTuple):
    """What is ordered besides the regimen. None means the usual: full dose, scheduled scans, every visit."""

    dose: jax.Array | None = None  # (n,) share of the standard dose given
    keep: jax.Array | None = None  # (n,) share of a cycle's drug level that remains a cycle later
    level: jax.Array | None = None  # (n,) drug level of the last cycle; 1 is that of the standard dose
    imaging: jax.Array | None = None  # (n,) int32: 0 no scan, 1 CT, 2 MRI
    visits: jax.Array | None = None  # (n,) share of the regimen's visits made
    prompts: jax.Array | None = None  # (n,) questions to a language model
    extra_kg: jax.Array | None = None  # (n,) kg CO2e of other tests


USUAL_ORDERS = Orders()


def step(
    scenario: Scenario,
    params: Params,
    journey: Journey,
    decision: jax.Array,
    expected: bool = False,
    orders: Orders = USUAL_ORDERS,
    draw: Callable[[jax.Array, jax.Array], Sampled] = Sampled,
) -> tuple[Journey, Events]:
    """Move every patient forward by one cycle.

    Args:
        scenario: static side of the card.
        params: arrays of the card.
        journey: n patients and their states.
        decision: (n,) int32 regimen index; in the expected reading (R, n) weights that add up to 1.
        expected: use the mean of chance instead of sampling it; the journey must have been admitted in the same way.
        orders: dose, imaging and the like, if they differ from the usual.
        draw: makes the chance of a cycle from keys and cycles; :class:`onco_gym.simulator.chance.Weighed` does not sample
            death.

    Returns:
        The journey a cycle later, and what happened. Dead patients stay dead and gain no more time.
    """
    patient, state, key = journey
    chance: Chance = Expected() if expected else draw(key, state.cycle + 1)
    turns = None if expected else one_turn(state.cycle >= 0)  # derivatives do not go through loops
    choose = _choose_mixture if expected else _choose_one
    given, last, exposure, rows, acts, treatment, new_line = choose(scenario, params, state, decision)
    free = params.changeover * new_line * _under_treatment(params, state)  # share of the cycle before the new drug acts
    state = _start_line(state, treatment, new_line)
    mechanisms, organs = len(scenario.mechanisms), len(scenario.organs)
    kill, severe = rows[:mechanisms], rows[mechanisms : mechanisms + organs]
    burden, discontinue, oral, infusions = rows[mechanisms + organs :]
    dose = (1 - state.held) * jnp.clip(state.cycle + 1 - patient.delay, 0.0, 1.0)
    infused = dose if orders.dose is None else dose * (orders.dose > 0)
    dose = dose if orders.dose is None else dose * orders.dose
    acting = dose
    if orders.level is not None and orders.keep is not None:
        acting = orders.keep * orders.level + (1 - orders.keep) * dose
    taken = acting * (1 - oral * (1 - patient.adherence))
    beyond = 1 - (1 - params.beyond) * state.progressed
    acting, taken, strength = settled(turns, (acting, taken, taken * (1 - free) * beyond))

    harm = suffer(
        params,
        chance,
        state.toxicity,
        severe * patient.frailty,
        burden * patient.frailty,
        discontinue,
        exposure,
        taken,
    )
    immune = np.flatnonzero(scenario.immune)
    static = np.flatnonzero(scenario.static)
    effect = kill * patient.sensitivity * strength
    response = tumour.immune_response(params, state.response, [effect[mechanism] for mechanism in immune])
    effect = effect * jnp.exp(-params.fading[:, None] * state.adapted)
    harm, effect, response = settled(turns, (harm, effect, response))
    killed = tumour.clone_kill(params, effect, response, immune, static)
    growth = patient.growth * tumour.brake(params, effect, static)
    clones, volume = tumour.grow(params, growth, state.clones, state.volume, killed)
    ecog = survival.performance(params, state.performance, patient.ecog, volume, harm.toxicity)
    lived, died = chance.lived(survival.hazard(params, patient.hazard, volume, ecog, state.failed) + harm.fatal, Channel.DEATH)

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
        barred=state.barred + (1 - state.barred) * given * harm.stop,
        exposure=state.exposure + given * acting,
        adapted=state.adapted + acts * acting,
        last=last,
    )
    after = scan(scenario, params, patient, after, chance, orders.imaging, turns)
    events = Events(
        given=given,
        lived=lived * state.alive,
        utility=survival.utility(params, ecog, after.uncontrolled, harm.toxicity, infusions * infused),
        died=died * state.alive,
        severe=harm.severe,
        hospital=harm.hospital,
        scanned=(after.since_scan == 0).astype(jnp.float32),
        new_line=new_line,
    )
    return Journey(patient, after, key), events


class _Choice(NamedTuple):
    """The consequences of a decision."""

    given: jax.Array  # (R, n) share of each regimen
    last: jax.Array  # (n,) int32 the regimen with the largest share
    exposure: jax.Array  # (n,) cycles of it already received
    rows: jax.Array  # (M + O + 4, n) its figures for the cycle: a mix of rows of Params.regimens
    acts: jax.Array  # (M, n) share of it that acts by each mechanism
    treatment: jax.Array  # State.treatment after it
    new_line: jax.Array  # (n,) share that starts a line


def _choose_one(scenario: Scenario, params: Params, state: State, decision: jax.Array) -> _Choice:
    """Look up one regimen per patient."""
    count = len(scenario.regimens)

    def at(values: jax.Array, index: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, index[None], axis=0, mode="clip")[0]

    picked = jnp.clip(decision, 0, count - 1)
    max_ecog, max_cycles, is_active = (
        jnp.take(jnp.asarray(values), picked) for values in (params.max_ecog, params.max_cycles, params.active)
    )
    had, barred = at(state.exposure, picked), at(state.barred, picked)
    can = allowed_where(max_ecog, max_cycles, is_active, state.performance, had, picked == state.treatment, barred)
    index = jnp.where(can > 0.5, picked, scenario.holiday).astype(jnp.int32)
    exposure = at(state.exposure, index)
    late = (exposure >= jnp.take(jnp.asarray(params.induction), index)).astype(jnp.int32)
    active = jnp.take(jnp.asarray(params.active), index)
    exposure, row = settled(one_turn(state.cycle >= 0), (exposure, index + count * late))
    rows = settled(one_turn(state.cycle >= 0), jnp.take(jnp.asarray(params.regimens), row, axis=0, mode="clip").T)
    return _Choice(
        given=one_hot(index, count),
        last=index,
        exposure=exposure,
        rows=rows,
        acts=(rows[: len(scenario.mechanisms)] > 0).astype(jnp.float32),
        treatment=jnp.where(active > 0.5, index, state.treatment),
        new_line=active * (index != state.treatment),
    )


def _choose_mixture(scenario: Scenario, params: Params, state: State, decision: jax.Array) -> _Choice:
    """Mix regimens by weight; the weight of regimens that cannot be given goes to the holiday."""
    given = decision * allowed(params, state)
    given = given.at[scenario.holiday].add(1.0 - jnp.sum(given, 0))
    late = (state.exposure >= params.induction[:, None]).astype(jnp.float32)
    weights = jnp.concatenate([given * (1 - late), given * late])
    active = given * params.active[:, None]
    share = jnp.sum(active, 0)
    regimens = jnp.asarray(params.regimens)

    def mixed(table: jax.Array) -> jax.Array:
        return jax.lax.dot_general(table, weights, (((0,), (0,)), ((), ())), precision=jax.lax.Precision.HIGHEST)

    return _Choice(
        given=given,
        last=jnp.argmax(given, 0).astype(jnp.int32),
        exposure=jnp.sum(given * state.exposure, 0),
        rows=mixed(regimens),
        acts=mixed((regimens[:, : len(scenario.mechanisms)] > 0).astype(jnp.float32)),
        treatment=state.treatment * (1 - share) + active,
        new_line=share - jnp.sum(jnp.minimum(active, state.treatment), 0),
    )


def _under_treatment(params: Params, state: State) -> jax.Array:
    """(n,) 1 where the last cycle had anti-cancer treatment; in the expected reading, the share of lines begun."""
    begun = jnp.sum(state.treatment, 0) if state.treatment.ndim == 2 else (state.treatment >= 0).astype(jnp.float32)
    return begun * jnp.take(jnp.asarray(params.active), state.last, mode="clip")


def _start_line(state: State, treatment: jax.Array, new: jax.Array) -> State:
    """Start a line where an anti-cancer regimen is new: RECIST starts again from the last measured sum."""
    return state._replace(
        line=state.line + new,
        treatment=treatment,
        progressed=state.progressed * (1 - new),
        baseline=state.baseline + new * (state.diameter - state.baseline),
        nadir=state.nadir + new * (state.diameter - state.nadir),
    )
