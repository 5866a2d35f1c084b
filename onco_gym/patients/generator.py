"""The interface of patient generators. Engines, trials, the planner and the fairness audit draw patients only through it."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from onco_gym.cards import Card
from onco_gym.patients.causal import CausalGenerator
from onco_gym.patients.cohort import Cohort


class Generator(Protocol):
    """Draws patients for one card."""

    card: Card

    def sample(self, n: int, seed: int = 0, where: str | None = None, do: Mapping[str, Any] | None = None) -> Cohort:
        """Draw ``n`` patients; see :meth:`onco_gym.patients.CausalGenerator.sample`."""

    def counterfactual(self, cohort: Cohort, do: Mapping[str, Any], hold: Iterable[str] = ()) -> Cohort:
        """The same patients under ``do``; see :meth:`onco_gym.patients.CausalGenerator.counterfactual`."""


def default_generator(card: Card) -> Generator:
    """The default generator: the card's own causal graph."""
    return CausalGenerator(card)
