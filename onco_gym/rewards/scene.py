"""The input of a reward term: one cycle, the decision behind it, and the verdict on it."""

from typing import NamedTuple

import jax

from onco_gym.simulator.state import Journey
from onco_gym.simulator.transition import Events, Orders


class Verdict(NamedTuple):
    """The panel's verdict on a decision; see :mod:`onco_gym.knowledge.panel`."""

    code: jax.Array  # (n,) int32 index into VERDICTS
    share: jax.Array  # (n,) share of experts who accept it
    points: jax.Array  # (n,) guideline points
    first: jax.Array  # (n,) int32 the guideline's first choice
    options: jax.Array  # (R, n) bool, regimens that at least one expert would accept


class Scene(NamedTuple):
    """One cycle of n patients."""

    before: Journey
    after: Journey
    orders: Orders
    events: Events
    verdict: Verdict
    surprise: jax.Array  # (A, n) nats, how much the choice tells about each protected attribute; 0 where nothing was decided
