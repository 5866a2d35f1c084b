"""Populations on which an entry's robustness is measured. They follow from the card, so every disease has them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onco_gym.cards import Card
from onco_gym.cards.schema import Bernoulli, Categorical
from onco_gym.patients import Cohort
from onco_gym.trials.ensemble import ensemble_file, load_ensemble
from onco_gym.trials.parameters import figures_at, with_figures

OLD = 75
"""Years from which patients are called older."""
POOR = 2
"""ECOG performance status from which it is called poor."""
RARE = (0.003, 0.05)
"""Shares of patients between which a biomarker is called rare."""
TESTED = "tested_"
"""Prefix of the variables that say whether a patient was tested before the first visit."""


@dataclass(frozen=True)
class Shift:
    """Another population.

    Attributes:
        name: short.
        about: what differs, in words.
        where: a condition that all its patients meet.
        do: an intervention on all of them.
    """

    name: str
    about: str
    where: str | None = None
    do: Mapping[str, Any] | None = None


def shifts(card: Card, cohort: Cohort) -> Iterator[Shift]:
    """The populations of a card. ``cohort`` tells how common its biomarkers are."""
    yield Shift("older", f"patients of {OLD} years and more", f"age >= {OLD}")
    yield Shift("frail", f"ECOG performance status of {POOR} and more", f"{card.performance.variable} >= {POOR}")
    rare = list(rare_biomarkers(card, cohort))
    if rare:
        yield Shift("rare biomarkers", f"one of {', '.join(rare)}".replace("_", " "), " or ".join(rare))
    tests = [one.name for one in card.variables if isinstance(one, Bernoulli) and one.name.startswith(TESTED)]
    if tests:
        yield Shift("era before testing", "nobody was tested before the first visit", do=dict.fromkeys(tests, False))


def rare_biomarkers(card: Card, cohort: Cohort) -> Iterator[str]:
    """Findings that a test reveals and that few patients have, as names for conditions."""
    for variable in card.variables:
        if variable.tier != "biology" or variable.test is None:
            continue
        values = cohort.columns[variable.name]
        if isinstance(variable, Bernoulli) and _is_rare(values.mean()):
            yield variable.name
        if isinstance(variable, Categorical):
            yield from (flag for flag in variable.flags if _is_rare((values == variable.levels.index(flag)).mean()))


def _is_rare(share: float) -> bool:
    return RARE[0] <= share <= RARE[1]


def other_figures(card: Card) -> Card | None:
    """The card with other figures for the disease, which fit the published trials about as well; None if there are none.

    It is the member of the card's ensemble that is farthest from the card.
    """
    ensemble = load_ensemble(card, ensemble_file(card.id.lower()))
    if ensemble is None:
        return None
    distance = np.abs(ensemble.offsets / ensemble.offsets.std(0)).mean(1)
    return with_figures(card, figures_at(ensemble.parameters, ensemble.offsets[distance.argmax()]))
