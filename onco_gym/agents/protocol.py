"""The agent protocol."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class AgentError(ValueError):
    """An agent cannot be made, or gave an invalid action. The message says what was expected."""


def remembers(agent: object) -> bool:
    """Whether an agent remembers its patients and must be called in order."""
    return bool(getattr(agent, "remembers", False))


@runtime_checkable
class Agent(Protocol):
    """Chooses an action for every patient in a batch from what is observed.

    An agent that can report the probability of each regimen also has ``probabilities(observation, mask) -> (n, R)``. An agent
    that remembers its patients between visits has an attribute ``remembers = True``. It is called for whole episodes, in order.
    """

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[Any]:
        """(n,) regimen indices; (n, D) intensities for dosing; (n, parts) for the workflow.

        Args:
            observation: (n, F) from the environment.
            mask: (n, R) which regimens can be given; for the workflow the choices of all parts, concatenated.
        """
