"""What a reward term looks at: one cycle, the decision behind it, and what was made of it."""

from typing import NamedTuple

import jax

from onco_gym.simulator.state import Journey
from onco_gym.simulator.transition import Events, Orders


class Verdict(NamedTuple):
    """What the panel says of a decision; see :mod:`onco_gym.knowledge.panel`."""

    code: jax.Array  # (n,) int32 index into VERDICTS
    share: jax.Array  # (n,) of experts who accept it
    points: jax.Array  # (n,) guideline points
    first: jax.Array  # (n,) int32 the guideline's first choice
    options: jax.Array  # (R, n) bool, what at least one expert would accept


class Scene(NamedTuple):
    """One cycle of n patients."""

    before: Journey
    after: Journey
    orders: Orders
    events: Events
    verdict: Verdict
    surprise: jax.Array  # (A, n) nats, how much the choice tells of each protected attribute; 0 where nothing was decided
