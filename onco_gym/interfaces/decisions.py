"""Decision points: the visits at which there is something to decide.

Most cycles need no decision. With ``decide="events"`` a step goes on with what was chosen until the next decision point:

- a scan shows progression, or the start or the end of a response;
- a test result arrives, or a resistant clone is found;
- toxicity holds a dose, or stops a regimen for good;
- the chosen regimen can no longer be given;
- in dosing, any scan;
- :data:`LONGEST` cycles have passed, or the interval that was chosen in the workflow.

With ``decide="cycles"`` every cycle is a decision point.
"""

import jax
import jax.numpy as jnp

from onco_gym.cards.scenarios import Params
from onco_gym.foundation.arrays import either
from onco_gym.simulator.observation import allowed
from onco_gym.simulator.state import State

LONGEST = 17
"""Cycles after which the next decision comes at the latest: a year, if a cycle takes three weeks."""
RESPONDING = 0.7
"""RECIST: a response is a sum of diameters of at most this share of the line's baseline."""


def is_decision_point(params: Params, before: State, after: State, regimen: jax.Array) -> jax.Array:
    """(n,) bool: whether a cycle under ``regimen`` (n,) int32 brought something to decide about."""
    response = [state.diameter <= RESPONDING * after.baseline for state in (before, after)]
    known = [state.result_cycle <= state.cycle for state in (before, after)]
    can = jnp.take_along_axis(allowed(params, after), regimen[None], axis=0, mode="clip")[0] > 0.5
    reasons = (
        after.failed > before.failed,
        response[0] != response[1],
        either(known[1] & ~known[0]),
        either(after.marker > before.marker),
        after.held > 0,
        either(after.barred > before.barred),
        ~can,
    )
    found = reasons[0]
    for reason in reasons[1:]:
        found = found | reason
    return found
