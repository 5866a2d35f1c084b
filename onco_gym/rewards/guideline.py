"""The guideline term: what the panel of experts thinks of the decision."""

import jax
import jax.numpy as jnp

from onco_gym.cards.scenarios import Params, Scenario
from onco_gym.foundation.arrays import either
from onco_gym.knowledge.panel import Hearing, Panel
from onco_gym.patients.traits import NEVER
from onco_gym.rewards.scene import Scene, Verdict
from onco_gym.simulator.facts import Facts
from onco_gym.simulator.observation import allowed
from onco_gym.simulator.state import Journey

PATIENCE = 3
"""Before this cycle, and before the first line, waiting for a test result is an option."""


def hear(panel: Panel, scenario: Scenario, params: Params, journey: Journey) -> Hearing:
    """Put patients before the panel."""
    state = journey.state
    awaited = either((state.result_cycle > state.cycle) & (state.result_cycle < NEVER))
    waiting = (state.held > 0.5) | (awaited & (state.line < 0.5) & (state.cycle < PATIENCE))
    return panel.hear(jnp, Facts(scenario, journey), state.treatment, allowed(params, state) > 0.5, waiting)


def verdict(panel: Panel, hearing: Hearing, given: jax.Array) -> Verdict:
    """The verdict on the regimens ``given`` (n,)."""
    return Verdict(*panel.opinion(jnp, hearing, given), first=hearing.first, options=panel.options(jnp, hearing))


def guideline_term(scenario: Scenario, params: Params, scene: Scene) -> jax.Array:
    """(n,) guideline points of the decision, -1 (contraindicated) to 1 (preferred, level A, accepted by all).

    Points are never negative inside the panel's acceptability region. They count for the share of the cycle lived.
    """
    del scenario, params
    return scene.verdict.points * scene.events.lived
