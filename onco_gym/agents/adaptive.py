"""Agents for dosing: a constant dose, adaptive therapy, and the guideline at standard dose. Also measures time to progression.

Adaptive therapy keeps drug-sensitive cells alive so that they compete with resistant ones. It treats until the tumour has
shrunk by a given share, pauses, and treats again when the tumour has grown back (Gatenby, Cancer Res 2009;69:4894; Zhang,
Nat Commun 2017;8:1816).
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.episodes import Episodes
from onco_gym.agents.observations import Masks, ObservationReader, Observations
from onco_gym.agents.protocol import Agent, AgentError
from onco_gym.agents.simple import GuidelineAgent
from onco_gym.cards import Card
from onco_gym.cards.scenarios import scenario
from onco_gym.interfaces.dosing import observation_fields
from onco_gym.simulator.observation import MINIMUM_MM, PROGRESSION

Doses = NDArray[np.float32]

HALVED = 0.5 ** (1 / 3) - 1
"""Relative change in the sum of diameters when a tumour loses half its volume."""


class ConstantDose:
    """The same dose of one regimen every cycle.

    Args:
        card: the card.
        regimen: name of the regimen.
        intensity: share of the standard dose; 1 is continuous treatment at the maximum dose.
        then: the agent that takes over once the tumour has progressed or the regimen cannot be given. By default the dose
            stays the same.
    """

    def __init__(self, card: Card, regimen: str, intensity: float = 1.0, then: Agent | None = None) -> None:
        names = dosed(card)
        if regimen not in names:
            raise AgentError(f"{card.id} has no anti-cancer regimen {regimen!r}; it has {', '.join(names)}")
        if not 0 <= intensity <= 1:
            raise AgentError(f"intensity is {intensity!r}, expected a share of the standard dose from 0 to 1")
        self._regimen, self._intensity, self._then = regimen, intensity, then
        self._index, self._count = names.index(regimen), len(names)
        self._known = ObservationReader(card, observation_fields(scenario(card)))

    def act(self, observation: Observations, mask: Masks) -> Doses:
        """(n, D) intensities."""
        doses = np.zeros((len(observation), self._count), np.float32)
        doses[:, self._index] = self._dose(observation)
        if self._then is None:
            return doses
        known = self._known(observation)
        over = (known["progressed"] > 0.5) | (known["line"] > 1) | ~mask[:, self._index]
        return np.where(over[:, None], self._then.act(observation, mask), doses) if over.any() else doses

    def _dose(self, observation: Observations) -> Doses:
        """(n,) intensity of the regimen."""
        return np.full(len(observation), self._intensity, np.float32)


class AdaptiveDose(ConstantDose):
    """Adaptive therapy with one regimen: treat until the tumour has shrunk, rest until it has grown back, treat again.

    The published rule stops at half the burden and starts again at the burden before treatment. Zhang measured the burden by
    prostate-specific antigen; this agent uses the sum of diameters at the last scan. Resting at a reduced dose instead of none
    is called dose modulation (Enriquez-Navas, Sci Transl Med 2016;8:327ra24).

    Args:
        card: the card.
        regimen: name of the regimen.
        stop: relative change in the sum of diameters since the start of treatment at which dosing pauses; negative.
        restart: relative change at which dosing resumes; above ``stop``.
        intensity: share of the standard dose while treating.
        rest: share of the standard dose while resting.
        then: as for :class:`ConstantDose`.
    """

    def __init__(
        self,
        card: Card,
        regimen: str,
        stop: float = HALVED,
        restart: float = 0.0,
        intensity: float = 1.0,
        rest: float = 0.0,
        then: Agent | None = None,
    ) -> None:
        super().__init__(card, regimen, intensity, then)
        if not -1 < stop < restart:
            raise AgentError(f"stop is {stop!r} and restart {restart!r}, expected -1 < stop < restart")
        if not 0 <= rest < intensity:
            raise AgentError(f"rest is {rest!r}, expected at least 0 and less than the intensity {intensity!r}")
        self._stop, self._restart, self._rest = stop, restart, rest

    def _dose(self, observation: Observations) -> Doses:
        known = self._known(observation)
        change = known["change_from_baseline"]
        begun = known.raw(f"prior_{self._regimen}") > 0
        # The dose ordered for the last cycle shows whether the patient is resting: the threshold is midway between the two doses.
        resting = begun & (known.raw("dose") < (self._rest + self._intensity) / 2)
        treat = np.where(resting, change >= self._restart, change > self._stop)
        return np.where(treat, self._intensity, self._rest).astype(np.float32)


class GuidelineDose:
    """Follows the card's guideline at standard dose; see :class:`onco_gym.agents.GuidelineAgent`.

    Args:
        card: the card.
    """

    def __init__(self, card: Card) -> None:
        self._agent = GuidelineAgent(card)
        self._active = np.array([regimen.active for regimen in card.regimens])
        self._column = np.cumsum(self._active) - 1

    def act(self, observation: Observations, mask: Masks) -> Doses:
        """(n, D) intensities: 1 for the guideline's choice, all 0 where it chooses no treatment."""
        every = np.ones((len(mask), len(self._active)), bool)
        every[:, self._active] = mask
        choice = self._agent.act(observation, every)
        doses = np.zeros(mask.shape, np.float32)
        doses[np.arange(len(mask)), self._column[choice]] = self._active[choice]
        return doses


def dosed(card: Card) -> list[str]:
    """The regimens of a dosing action, in order."""
    return [regimen.name for regimen in card.regimens if regimen.active]


Reference = Literal["baseline", "nadir", "environment"]


def time_to_progression(card: Card, run: Episodes, reference: Reference = "baseline") -> tuple[Doses, NDArray[np.bool_]]:
    """Time to progression in the first line.

    Args:
        card: the card.
        run: episodes of a dose environment with their observations.
        reference: what progression is measured against. The sum of diameters at a scan must be 20% and 5 mm above the sum before
            treatment (``"baseline"``, as models of adaptive therapy do) or above the smallest sum so far, on or off treatment
            (``"nadir"``, as in RECIST). With ``"environment"``, the environment decides: RECIST including new lesions, and
            against the baseline during pauses.

    Returns:
        (n,) weeks to progression, or to the end of the line, follow-up or life without it; (n,) whether the tumour progressed.
    """
    if run.observations is None:
        raise AgentError("the episodes hold no observations, expected rollout(..., keep_observations=True)")
    cycles, n, _ = run.observations.shape
    known = ObservationReader(card)(run.observations.reshape(cycles * n, -1))

    def seen(name: str) -> NDArray[np.float32]:
        return known[name].reshape(cycles, n)

    weeks = np.arange(cycles, dtype=np.float32)[:, None] * card.cycle_weeks
    watched = (weeks <= run.weeks) & (seen("line") <= 1)
    if reference == "environment":
        larger = seen("progressed") > 0.5
    else:
        diameter = seen("diameter")
        least = diameter[:1] if reference == "baseline" else np.minimum.accumulate(diameter, 0)
        larger = diameter >= np.maximum(least * PROGRESSION, least + MINIMUM_MM)
    larger &= watched
    event: NDArray[np.bool_] = np.any(larger, axis=0)
    until = np.minimum(np.where(watched, weeks + card.cycle_weeks, 0).max(0), run.weeks)
    return np.where(event, larger.argmax(0) * card.cycle_weeks, until).astype(np.float32), event


def without_death(card: Card) -> Card:
    """``card`` without deaths, so that every tumour can be followed until it progresses."""
    survival = card.survival.model_copy(update={"background_per_cycle": 0.0, "tumour_per_cycle": 0.0})
    organs = tuple(organ.model_copy(update={"fatal": 0.0}) for organ in card.organs)
    return card.model_copy(update={"survival": survival, "organs": organs})
