"""A policy that is unfair by a known amount, for trying out audits."""

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import AgentError, GuidelineAgent
from onco_gym.agents.observations import ObservationReader
from onco_gym.cards import Card
from onco_gym.cards.checks import owner
from onco_gym.cards.scenarios import columns_of, scenario
from onco_gym.cards.schema import Ordinal
from onco_gym.fairness.counterfactual import group_index
from onco_gym.knowledge import Guideline


class BiasedAgent:
    """Follows the guideline, but in a share of cases gives one group the next best regimen at the start of a line.

    The next best is the regimen that the guideline names after its first choice, or best supportive care if it names no other.
    Each decision is drawn independently.

    Args:
        card: the card.
        attribute: a protected attribute that observations show.
        group: the group that it treats worse, e.g. ``"medicaid"``.
        share: share of cases, 0..1; 1 always withholds the first choice.
        seed: the same seed gives the same choices.
    """

    def __init__(self, card: Card, attribute: str, group: str, share: float, seed: int = 0) -> None:
        if not 0 <= share <= 1:
            raise AgentError(f"share is {share}, expected 0..1")
        self._layout, self._share = scenario(card), share
        index, variable = group_index(card, attribute, group), owner(card, attribute)
        if not set(columns_of(variable)) <= {field.name for field in self._layout.fields}:
            raise AgentError(f"observations do not show {attribute!r}, so no policy can treat its groups differently")
        self._attribute, self._value = attribute, variable.values[index] if isinstance(variable, Ordinal) else index
        self._guideline, self._follow = Guideline(card), GuidelineAgent(card)
        self._knowledge = ObservationReader(card)
        self._active = np.array([regimen.active for regimen in card.regimens])
        self._rng = np.random.default_rng(seed)

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """(n,) regimen indices."""
        choice, worse = self._choices(observation, mask)
        return np.where(self._rng.random(len(choice)) < self._share, worse, choice)

    def probabilities(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(n, R) probability of each regimen."""
        choice, worse = self._choices(observation, mask)
        every = np.eye(len(self._active))
        return (1 - self._share) * every[choice] + self._share * every[worse]

    def _choices(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """((n,) the guideline's choice, (n,) what the group gets instead, which differs only at the start of a line)."""
        choice = np.asarray(self._follow.act(observation, mask), np.int64)
        worse = choice.copy()
        known = self._knowledge(observation)
        starts = self._active[choice] & (known.current != choice)
        singled_out = np.flatnonzero(starts & (np.abs(known[self._attribute] - self._value) < 1e-2))
        if len(singled_out):
            known = self._knowledge(observation[singled_out])
            had = (known.cycles > 0.5) & self._active
            had[np.arange(len(singled_out)), choice[singled_out]] = True
            worse[singled_out] = self._guideline.first_choice(known, mask[singled_out] & ~had, self._layout.supportive)
        return choice, worse
