"""Kinds of environment. A kind defines what an action is, what an agent sees, and what a step does.

Everything else (patients, simulator, rewards, single and vector environments) is the same for all kinds. A kind may keep a
memory of each patient next to the journey, in arrays with the batch last.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from onco_gym.cards.scenarios import Field
from onco_gym.rewards import Tally
from onco_gym.simulator.observation import allowed, observe
from onco_gym.simulator.state import Journey

if TYPE_CHECKING:
    from onco_gym.interfaces.engine import Engine, Outcome


class Encounter(NamedTuple):
    """Patients during an episode, and what the kind of environment remembers about them."""

    journey: Journey
    memory: Any


class Kind(Protocol):
    """A kind of environment. Methods that take an engine run inside compiled code.

    Attributes:
        name: a key of :data:`onco_gym.interfaces.registry.KINDS`.
        space: the space of one patient's action.
        fields: what each number of an observation is.
        mask_size: length of an action mask, which has the choices of all parts of an action in one row.
        parts: the parts of an action and how many choices each has; empty if actions are continuous.
    """

    name: str
    space: spaces.Space[Any]
    fields: tuple[Field, ...]
    mask_size: int
    parts: Mapping[str, int]

    def begin(self, engine: "Engine", journey: Journey) -> Encounter:
        """The first visit."""

    def look(self, engine: "Engine", encounter: Encounter) -> tuple[jax.Array, jax.Array]:
        """((F, n) observation, (mask_size, n) bool action mask)."""

    def order(self, engine: "Engine", encounter: Encounter, action: jax.Array) -> tuple[Encounter, Any]:
        """What is done at a visit before any time passes, and the plan of ``action`` (n, ...) until the next visit."""

    def interval(self, plan: Any) -> jax.Array | None:
        """(n,) cycles until the next visit, if the plan says so."""

    def cycle(
        self, engine: "Engine", encounter: Encounter, tally: Tally, plan: Any, number: jax.Array | int
    ) -> tuple[Encounter, Tally, "Outcome"]:
        """Cycle ``number`` of the plan, from 0, for every patient."""

    def planned(self, plan: Any) -> jax.Array:
        """(n,) int32 the regimen of the plan."""

    def news(self, before: Encounter, after: Encounter) -> jax.Array | None:
        """(n,) bool: whether a cycle brought something to decide about that only this kind knows; None if there never is."""

    def read(self, engine: "Engine", encounter: Encounter, plan: Any) -> Encounter:
        """What is read at the next visit before the agent sees it."""

    def checked(self, actions: Any, n: int | None) -> NDArray[Any]:
        """Check the actions of ``n`` patients, or of one if ``n`` is None, and return them as an array for :meth:`advance`.

        Raises:
            InvalidAction: if they are not valid. The message says what was expected.
        """

    def regimens(self, actions: NDArray[Any]) -> NDArray[np.int64]:
        """(n,) the regimen that each of ``actions`` (n, ...) asks for."""


class Plain:
    """The parts of a kind that most kinds need not define: nothing is ordered or read, and the action is the plan."""

    def order(self, engine: "Engine", encounter: Encounter, action: jax.Array) -> tuple[Encounter, Any]:
        """The action itself is the plan."""
        return encounter, action

    def interval(self, plan: Any) -> jax.Array | None:
        """None: the plan does not say."""
        return None

    def news(self, before: Encounter, after: Encounter) -> jax.Array | None:
        """None: there is nothing else to know."""
        return None

    def read(self, engine: "Engine", encounter: Encounter, plan: Any) -> Encounter:
        """Nothing is read."""
        return encounter


class Regimens(Plain):
    """The plain kind: an action is a regimen."""

    name = "regimen"

    def __init__(self, engine: "Engine") -> None:
        names = engine.scenario.regimens
        self.space: spaces.Space[Any] = spaces.Discrete(len(names))
        self.fields = engine.scenario.fields
        self.mask_size = len(names)
        self.parts: Mapping[str, int] = {"regimen": len(names)}

    def begin(self, engine: "Engine", journey: Journey) -> Encounter:
        """The first visit; nothing else is remembered."""
        return Encounter(journey, ())

    def look(self, engine: "Engine", encounter: Encounter) -> tuple[jax.Array, jax.Array]:
        """((F, n) observation, (R, n) which regimens can be given)."""
        journey = encounter.journey
        return observe(engine.scenario, engine.params, journey), allowed(engine.params, journey.state) > 0.5

    def cycle(
        self, engine: "Engine", encounter: Encounter, tally: Tally, plan: jax.Array, number: jax.Array | int
    ) -> tuple[Encounter, Tally, "Outcome"]:
        """One cycle under the regimen."""
        journey, tally, outcome = engine.cycle(encounter.journey, tally, plan)
        return Encounter(journey, ()), tally, outcome

    def planned(self, plan: jax.Array) -> jax.Array:
        """The regimen."""
        return plan

    def checked(self, actions: Any, n: int | None) -> NDArray[Any]:
        """Check that actions are indices of regimens."""
        if n is None and type(actions) is int and 0 <= actions < self.mask_size:
            return np.asarray(actions, np.int32)
        values, expected = np.asarray(actions), () if n is None else (n,)
        if values.shape != expected or values.dtype.kind not in "iu":
            raise InvalidAction(f"the action is {_shown(actions)}, expected whole numbers of shape {expected}")
        if values.size and (values.min() < 0 or values.max() >= self.mask_size):
            wrong = (values < 0) | (values >= self.mask_size)
            raise InvalidAction(f"action {values[wrong].flat[0]} is not a regimen: expected 0..{self.mask_size - 1}")
        return values.astype(np.int32)

    def regimens(self, actions: NDArray[Any]) -> NDArray[np.int64]:
        """The action itself."""
        return actions.astype(np.int64)


def _shown(actions: Any) -> str:
    values = np.asarray(actions)
    return f"{values.dtype} of shape {values.shape}" if values.ndim else repr(actions)
