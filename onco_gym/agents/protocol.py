"""What an agent is."""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class AgentError(ValueError):
    """An agent that cannot be made or that answers nonsense; the message says what was expected."""


@runtime_checkable
class Agent(Protocol):
    """Chooses a regimen for every patient of a batch, from what can be seen.

    An agent that can say how likely it was to choose each regimen also has
    ``probabilities(observation, mask) -> (n, R)``.
    """

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """(n,) regimen indices.

        Args:
            observation: (n, F) as the environments give it.
            mask: (n, R) which regimens can be given.
        """
