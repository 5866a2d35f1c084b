"""What an agent is."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class AgentError(ValueError):
    """An agent that cannot be made or that answers nonsense; the message says what was expected."""


def remembers(agent: object) -> bool:
    """Whether an agent remembers its patients, and can only be asked in order."""
    return bool(getattr(agent, "remembers", False))


@runtime_checkable
class Agent(Protocol):
    """Chooses an action for every patient of a batch, from what can be seen.

    An agent that can say how likely it was to choose each regimen also has
    ``probabilities(observation, mask) -> (n, R)``. One that remembers its patients from visit to visit says so with an attribute
    ``remembers = True``: it is asked about whole episodes in order, and never out of turn.
    """

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[Any]:
        """(n,) regimen indices; (n, D) intensities for dosing; (n, parts) for the workflow.

        Args:
            observation: (n, F) as the environments give it.
            mask: (n, R) which regimens can be given; for the workflow the choices of all parts in a row.
        """
