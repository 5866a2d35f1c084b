"""The outcome term: quality-adjusted life."""

import jax

from onco_gym.cards.scenarios import Params, Scenario
from onco_gym.foundation.units import WEEKS_PER_YEAR
from onco_gym.rewards.scene import Scene


def outcome_term(scenario: Scenario, params: Params, scene: Scene) -> jax.Array:
    """(n,) quality-adjusted life years gained in this cycle.

    This is the share of the cycle lived times its utility. It is never negative, so living longer in the same state
    never pays less. Toxicity costs utility while it lasts.
    """
    del params
    return scene.events.lived * scene.events.utility * (scenario.cycle_weeks / WEEKS_PER_YEAR)
