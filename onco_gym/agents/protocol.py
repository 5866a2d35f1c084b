"""What an agent is."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class AgentError(ValueError):
    """An agent that cannot be made or that answers nonsense; the message says what was expected."""


@runtime_checkable
class Agent(Protocol):
    """Chooses an action for every patient of a batch, from what can be seen.

    An agent that can say how likely it was to choose each regimen also has
    ``probabilities(observation, mask) -> (n, R)``.
    """

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[Any]:
        """(n,) regimen indices; (n, D) intensities for dosing; (n, parts) for the workflow.

        Args:
            observation: (n, F) as the environments give it.
            mask: (n, R) which regimens can be given; for the workflow the choices of all parts in a row.
        """
