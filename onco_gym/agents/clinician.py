"""A simulated clinician: mostly follows the guideline, with the practice variation and disparities seen in real cohorts.

The clinician is for making offline data. Its choices vary, and it reports the probability of each. Its unfairness is deliberate:
you can test whether a method that learns from such data also learns the disparities.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.observations import Masks, ObservationReader, Observations, ObservedFacts
from onco_gym.agents.simple import GuidelineAgent
from onco_gym.cards import Card
from onco_gym.cards.scenarios import scenario
from onco_gym.cards.schema import Categorical
from onco_gym.knowledge import Guideline


@dataclass(frozen=True)
class Odds:
    """How one observed feature of a patient changes the odds of guideline treatment.

    Attributes:
        variable: the observation field or categorical variable.
        level: the level of a categorical variable; None for a number.
        above: for a number, the threshold: the odds ratio applies to each unit above it, or once if ``once``.
        once: whether the odds ratio applies once, however far the number is above the threshold.
        times: the odds ratio.
        source: the key of its source on the cards, or ``"estimate"``.
    """

    variable: str
    times: float
    source: str
    level: str | None = None
    above: float = 0.0
    once: bool = True


ODDS: tuple[Odds, ...] = (
    # Any first-line treatment, Medicaid against commercial: hazard ratio 0.72, in biomarker-driven treatment 0.70 (gross2022:
    # Gross, JNCCN 2022;20:479, advanced NSCLC, n = 7,010). We use the hazard ratio as an odds ratio.
    Odds("insurance", 0.72, "gross2022", level="medicaid"),
    # Not in that cohort. Assumed to be no better than Medicaid.
    Odds("insurance", 0.65, "estimate", level="uninsured"),
    # Between 0.83 (adamson2021: Adamson, AJMC 2021;27(7): treated within 30 days 43.7% and 48.4% where Medicaid was not
    # expanded) and 0.43 (Hardy, Cancer 2009;115:2199, doi:10.1002/cncr.24248: chemotherapy in stages III-IV, 1991-2002).
    Odds("race_ethnicity", 0.75, "estimate", level="black"),
    # Quintiles of area deprivation above the middle, and distance. Directions are published; sizes are our estimates.
    Odds("deprivation", 0.85, "estimate", above=3.0, once=False),
    Odds("rural", 0.80, "estimate", above=0.5),
    # Age and fitness. Sizes are our estimates.
    Odds("age", 0.50, "estimate", above=75.0),
    Odds("ecog", 0.40, "estimate", above=1.0, once=False),
)
"""Odds ratios of guideline treatment. Other diseases use the figures of lung cancer because they have none of their own."""

UNDERTREATED = 0.08
"""Share of patients without any of the above who get less than the guideline recommends at the start of a line. Estimate."""
NO_TREATMENT = 0.5
"""Share of those who get supportive care although a less toxic regimen is listed. Where none is listed, all do. Estimate."""
ANOTHER = 0.15
"""Share of line starts at which another listed regimen is chosen. Estimate."""
WEIGHTS = {"preferred": 3.0, "option": 2.0, "later": 1.0}
"""Relative probability of choosing a listed regimen instead, by its status. Estimate."""
BEYOND_PROGRESSION = 0.1
"""Share of visits after progression at which the current regimen is continued. Estimate."""
STAYS_UNTREATED = 0.8
"""Share of visits at which a patient on supportive care stays on it although a regimen is recommended. Estimate."""
PAUSE = 0.005
"""Share of visits on treatment at which it is paused without need. Estimate."""


class ClinicianAgent:
    """Draws a regimen as a clinician might choose it, using only what is observed.

    At the start of a line the agent chooses the guideline's first choice or, with the probabilities in this module, another
    regimen that the guideline lists, the current regimen although it failed, or less than recommended. Undertreatment is more
    likely for patients who are old or unfit, and for groups in which it has been published (:data:`ODDS`).

    A draw depends only on the seed and the patient's observation, not on the order of patients or on earlier calls.

    Args:
        card: the card.
        seed: the same seed gives the same choices.
    """

    def __init__(self, card: Card, seed: int = 0) -> None:
        self._scenario, self._guideline, self._known = scenario(card), Guideline(card), ObservationReader(card)
        self._follow = GuidelineAgent(card)
        self._active = np.array([regimen.active for regimen in card.regimens])
        self._toxicity = np.array([-sum(np.log1p(-share) for share in r.toxicity.values() if share < 1) for r in card.regimens])
        self._weights = np.array([WEIGHTS.get(rule.status, 0.0) for rule in card.guideline])
        levels = {v.name: v.levels for v in card.variables if isinstance(v, Categorical) and v.observed}
        fields = {field.name for field in self._scenario.fields}
        self._odds = [
            (odds, levels[odds.variable].index(odds.level) if odds.level else -1)
            for odds in ODDS
            if (odds.level in levels.get(odds.variable, ()) if odds.level else odds.variable in fields)
        ]
        multipliers = np.random.default_rng(seed).integers(2**63, size=len(self._scenario.fields) + 1, dtype=np.uint64)
        self._multipliers = 2 * multipliers + np.uint64(1)

    def act(self, observation: Observations, mask: Masks) -> NDArray[np.int64]:
        """(n,) regimen indices, drawn from :meth:`probabilities`."""
        steps = np.cumsum(self.probabilities(observation, mask), axis=1)
        chosen = (self._chance(observation)[:, None] * steps[:, -1:] >= steps).sum(1)
        return np.asarray(chosen, np.int64)

    def probabilities(self, observation: Observations, mask: Masks) -> NDArray[np.float64]:
        """(n, R) the probability of each regimen."""
        n, layout = len(observation), self._scenario
        rows, every, known = np.arange(n), np.eye(len(layout.regimens)), self._known(observation)
        advised = self._follow.act(observation, mask)
        treated, current = known.current >= 0, np.maximum(known.current, 0)
        on_treatment = treated & self._active[current]
        starts = self._active[advised] & ~(on_treatment & (advised == current))
        result = every[advised]

        listed = self._listed(known, mask)
        listed[rows, advised] = 0
        other = _shares(listed, every[advised])
        milder = _shares(listed * (self._toxicity < self._toxicity[advised][:, None]), every[np.full(n, layout.supportive)])
        less = NO_TREATMENT * every[layout.supportive] + (1 - NO_TREATMENT) * milder
        under = self._undertreated(known)[:, None]
        usual = (1 - ANOTHER) * every[advised] + ANOTHER * other
        result = np.where(starts[:, None], (1 - under) * usual + under * less, result)

        goes_on = starts & on_treatment & (known["progressed"] > 0.5) & mask[rows, current]
        result = _mixed(result, goes_on, BEYOND_PROGRESSION, every[current])
        untreated = starts & treated & (current == layout.supportive)
        result = _mixed(result, untreated, STAYS_UNTREATED, every[current])
        pauses = on_treatment & (advised == current)
        result = _mixed(result, pauses, PAUSE, every[np.full(n, layout.holiday)])
        result = result * mask
        total = result.sum(1, keepdims=True)
        # Supportive care can always be given, so it replaces choices that cannot.
        return np.where(total > 0, result / np.where(total > 0, total, 1), every[layout.supportive])

    def _listed(self, known: ObservedFacts, mask: Masks) -> NDArray[np.float64]:
        """(n, R) weights of the regimens that the guideline lists for the next line and that can be given."""
        matches, guideline = self._guideline.matches(known), self._guideline
        weights = np.zeros(mask.shape)
        advised_against = np.zeros(mask.shape, bool)
        for rule, regimen in enumerate(guideline.regimen):
            if guideline.recommends[rule]:
                weights[:, regimen] = np.maximum(weights[:, regimen], self._weights[rule] * matches[rule])
            else:
                advised_against[:, regimen] |= matches[rule]
        usable: NDArray[np.bool_] = mask & self._active & (known.cycles <= 0.5) & ~advised_against
        return weights * usable

    def _undertreated(self, known: ObservedFacts) -> NDArray[np.float64]:
        """(n,) the probability of less than the guideline recommends."""
        odds = np.full(len(known["line"]), (1 - UNDERTREATED) / UNDERTREATED)
        for one, level in self._odds:
            seen = known[one.variable]
            if one.level is not None:
                units: NDArray[Any] = seen == level
            else:
                beyond = np.maximum(seen.astype(float) - one.above, 0.0)
                units = beyond > 1e-4 if one.once else beyond  # observations are exact to this in single precision
            odds *= one.times**units
        return 1 / (1 + odds)

    def _chance(self, observation: Observations) -> NDArray[np.float64]:
        """(n,) numbers in [0, 1) from the seed and the observation.

        Observations are rounded first, because the last digits of a simulation can change with the batch size.
        """
        seen = np.rint(np.asarray(observation, np.float64) * 1e4).astype(np.int64).astype(np.uint64)
        with np.errstate(over="ignore"):
            mixed = (seen * self._multipliers[1:]).sum(1, dtype=np.uint64) + self._multipliers[0]
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


def _shares(weights: NDArray[np.float64], otherwise: NDArray[np.float64]) -> NDArray[np.float64]:
    """``weights`` (n, R) normalised to sum to 1; ``otherwise`` (n, R) where all are 0."""
    total = weights.sum(1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), otherwise)


def _mixed(
    probabilities: NDArray[np.float64], where: NDArray[np.bool_], share: float, choice: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``probabilities`` (n, R), with a ``share`` of them moved to ``choice`` (n, R) where ``where`` (n,) is true."""
    part = (share * where)[:, None]
    return (1 - part) * probabilities + part * choice
