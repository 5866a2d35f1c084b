"""A card's guideline rules, applied to what is known about a patient."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.checks import guideline_vocabulary
from onco_gym.cards.expressions import Expression, parse

RECOMMENDED = ("preferred", "option", "later")


class Guideline:
    """The rules of a card, ready for queries.

    ``columns`` below maps the names of :func:`onco_gym.cards.checks.guideline_vocabulary` to (n,) arrays. Unknown facts read
    as false, and unknown levels as -1.
    """

    def __init__(self, card: Card) -> None:
        vocabulary = guideline_vocabulary(card)
        names = [regimen.name for regimen in card.regimens]
        self.rules = card.guideline
        self.regimen = np.array([names.index(rule.regimen) for rule in self.rules])
        self.recommends = np.array([rule.status in RECOMMENDED for rule in self.rules])
        self.prefers = np.array([rule.status == "preferred" for rule in self.rules])
        self.conditions: list[Expression | None] = [parse(rule.when, vocabulary) if rule.when else None for rule in self.rules]

    def matches(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """(rules, n) whether a rule applies to the patient at the next line."""
        line = columns["line"] + 1
        result = np.empty((len(self.rules), len(line)), bool)
        for row, (rule, condition) in enumerate(zip(self.rules, self.conditions, strict=True)):
            result[row] = np.isin(line, rule.lines) if rule.lines else True
            if condition is not None:
                result[row] &= np.broadcast_to(condition.holds(columns), len(line))
        return result

    def first_choice(self, columns: Mapping[str, NDArray[Any]], open_to: NDArray[np.bool_], otherwise: int) -> NDArray[np.int64]:
        """(n,) the regimen of the first matching rule that recommends one ``open_to`` (n, R) the patient, else ``otherwise``.

        Regimens that a matching rule contraindicates or does not recommend are not chosen.
        """
        matches = self.matches(columns)
        advised_against = np.zeros_like(open_to)
        for rule in np.flatnonzero(~self.recommends):
            advised_against[:, self.regimen[rule]] |= matches[rule]
        usable = matches & self.recommends[:, None] & (open_to & ~advised_against)[:, self.regimen].T
        return np.where(usable.any(0), self.regimen[usable.argmax(0)], otherwise)
