"""Random, constant and guideline agents."""

from collections import ChainMap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.observations import Masks, ObservationReader, Observations, ObservedFacts
from onco_gym.agents.protocol import AgentError
from onco_gym.cards import Card
from onco_gym.cards.scenarios import scenario
from onco_gym.knowledge import Guideline


class RandomAgent:
    """Any regimen that can be given, with equal probability.

    Args:
        seed: the same seed gives the same choices.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def act(self, observation: Observations, mask: Masks) -> NDArray[Any]:
        """(n,) regimen indices."""
        return np.where(mask, self._rng.random(mask.shape), -1.0).argmax(1)

    def probabilities(self, observation: Observations, mask: Masks) -> NDArray[np.float64]:
        """(n, R) equal over the mask."""
        return mask / mask.sum(1, keepdims=True)


class ConstantAgent:
    """The same regimen every cycle, whatever happens.

    Args:
        card: the card.
        regimen: name of the regimen.
    """

    def __init__(self, card: Card, regimen: str) -> None:
        names = scenario(card).regimens
        if regimen not in names:
            raise AgentError(f"{card.id} has no regimen {regimen!r}; it has {', '.join(names)}")
        self._index, self._count = names.index(regimen), len(names)

    def act(self, observation: Observations, mask: Masks) -> NDArray[np.int64]:
        """(n,) regimen indices."""
        return np.full(len(observation), self._index)

    def probabilities(self, observation: Observations, mask: Masks) -> NDArray[np.float64]:
        """(n, R) 1 for the regimen."""
        return np.eye(self._count)[self.act(observation, mask)]


class GuidelineAgent:
    """Follows the card's guideline.

    A regimen is kept until progression, its last cycle, or toxicity that stops it. Then comes the first recommended
    regimen that the patient has not had. A patient who stops while responding is watched without treatment until progression.
    If a late test result shows, early in a line, that another regimen is preferred and the current one is not recommended, the
    agent switches.

    Args:
        card: the card.
    """

    RESPONDING = -0.2  # change in the sum of diameters below which a patient who has to stop is watched
    EARLY = 6  # cycles of a line during which a late result can change it

    def __init__(self, card: Card) -> None:
        self._scenario = scenario(card)
        self._guideline = Guideline(card)
        self._known = ObservationReader(card)
        self._active = np.array([regimen.active for regimen in card.regimens])
        self._max_cycles = np.array([regimen.max_cycles or np.inf for regimen in card.regimens])

    def act(self, observation: Observations, mask: Masks) -> NDArray[np.int64]:
        """(n,) regimen indices."""
        known = self._known(observation)
        prior, treated, current = known.cycles > 0.5, known.current >= 0, np.maximum(known.current, 0)
        progressed = known["progressed"] > 0.5
        open_to = mask & ~(prior & self._active)
        choice = self._guideline.first_choice(known, open_to, self._scenario.supportive)

        rows = np.arange(len(observation))
        on_treatment = treated & self._active[current] & ~progressed
        resting = treated & (current == self._scenario.holiday) & (known["line"] > 0) & ~progressed
        done = on_treatment & ~mask[rows, current]
        cycles = known.cycles[rows, current]
        early = on_treatment & ~done & (cycles <= self.EARLY)
        if early.any():
            better = self._better(known, prior, mask, current)
            done |= early & (better >= 0)
            choice = np.where(early & (better >= 0), better, choice)
        finished = np.rint(cycles) >= self._max_cycles[current]
        watched = on_treatment & ~mask[rows, current] & (finished | (known["change_from_baseline"] <= self.RESPONDING))
        choice = np.where(on_treatment & ~done, current, choice)
        return np.where(resting | watched, self._scenario.holiday, choice)

    def _better(
        self, known: ObservedFacts, prior: NDArray[np.bool_], mask: Masks, current: NDArray[np.intp]
    ) -> NDArray[np.int64]:
        """(n,) the regimen now preferred for the current line; -1 where the current regimen is kept."""
        rows = np.arange(len(current))
        before = prior.copy()
        before[rows, current] = False
        facts = ChainMap(
            {f"prior_{name}": before[:, i] for i, name in enumerate(self._scenario.regimens)},
            {"line": known["line"] - 1},
            known,  # type: ignore[arg-type] # read only
        )
        matches = self._guideline.matches(facts)
        stands = (matches & self._guideline.recommends[:, None] & (self._guideline.regimen[:, None] == current)).any(0)
        wanted = self._guideline.first_choice(facts, mask & ~(before & self._active), -1)
        preferred = (matches & self._guideline.prefers[:, None] & (self._guideline.regimen[:, None] == wanted)).any(0)
        return np.where(~stands & preferred & self._active[wanted], wanted, -1)

    def probabilities(self, observation: Observations, mask: Masks) -> NDArray[np.float64]:
        """(n, R) 1 for the choice."""
        return np.eye(len(self._active))[self.act(observation, mask)]
