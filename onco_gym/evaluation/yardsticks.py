"""Yardsticks: the planner's mean return, which is 100 of the score.

The planner takes a good part of a second per patient, too long to evaluate it beside every agent. So its gain over the
guideline is measured once for every shipped card and kept beside it, with the card's digest. There is no yardstick for other
cards, changed cards, other reward weights or another horizon; 100 is then the guideline. One yardstick serves both ways to
decide: it is measured with ``decide="cycles"``, where the planner does best, because it can end a drug holiday at any visit.
"""

import functools
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from onco_gym.agents import load_agent, rollout
from onco_gym.cards.folder import CardError, cards_folder, kept_beside
from onco_gym.cards.load import digest
from onco_gym.foundation.files import write_json
from onco_gym.foundation.intervals import Interval, mean
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.results import from_plain, read_plain
from onco_gym.interfaces.engine import Engine
from onco_gym.rewards import card_weights

PLANNER = "planner"
AGENTS = ("random", "guideline", PLANNER)
AT_ONCE = 256
"""Patients that the planner treats at once. Its random draws, and so the last digits, depend on this number."""
PATIENTS = 1536
FIRST = 10_000_000
"""Seed of the first patient. By default, agents are evaluated on other patients."""


@dataclass(frozen=True)
class Yardstick:
    """Mean returns of three agents on the same patients, with the same chance.

    Attributes:
        card_digest: digest of the card's content.
        decide: when the agents decided.
        split: whose patients they are.
        patients, first: number of patients, and the seed of the first.
        random, guideline, planner: mean returns.
        gain: gain in return of the planner over the guideline, with its 95% interval.
    """

    card_digest: str
    decide: str
    split: str
    patients: int
    first: int
    random: float
    guideline: float
    planner: float
    gain: Interval

    def reach(self, random: float, guideline: float) -> float:
        """The planner's gain over random play, relative to the guideline's, where those two have these mean returns."""
        return 1 + self.gain.value / (guideline - random)


def yardstick_file(card: str) -> Path:
    """Where the yardstick of a shipped card is kept."""
    return kept_beside(card, "yardsticks", ".json")


def yardstick(engine: Engine) -> Yardstick | None:
    """The yardstick of an environment, or None if it has none."""
    same = engine.horizon == engine.card.horizon_cycles and engine.weights == dict(card_weights(engine.card, None))
    if engine.kind.name != "regimen" or not same:
        return None
    return _shipped().get(digest(engine.card))


@functools.cache
def _shipped() -> dict[str, Yardstick]:
    """The shipped yardsticks by the digest of their card."""
    found = [read_yardstick(path) for path in sorted((cards_folder() / "yardsticks").glob("*.json"))]
    return {one.card_digest: one for one in found}


def read_yardstick(path: str | os.PathLike[str]) -> Yardstick:
    """A yardstick from its file.

    Raises:
        CardError: if the file cannot be read.
    """
    try:
        found = from_plain(Yardstick, read_plain(path))
        if not found.random < found.guideline < float("inf") or not np.isfinite(found.planner):
            raise ValueError("its returns are not finite, or the guideline's is not above random play")
    except (OSError, ValueError) as error:
        raise CardError(f"{path} is not a yardstick: {error}") from None
    return found


def write_yardstick(path: str | os.PathLike[str], found: Yardstick) -> None:
    """Write a yardstick as JSON."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_json(path, asdict(found))


def measure(engine: Engine, patients: int = PATIENTS, first: int = FIRST, progress: Progress = silent) -> Yardstick:
    """Let random, guideline and planner treat the same patients.

    Args:
        engine: the environment; its actions must be regimens. Its patients should be those of the test split.
        patients: number of patients.
        first: seed of the first patient.
        progress: told after every batch of patients.
    """
    returns: dict[str, list[np.ndarray]] = {name: [] for name in AGENTS}
    for start in range(0, patients, AT_ONCE):
        count = min(AT_ONCE, patients - start)
        for name in AGENTS:
            returns[name].append(rollout(engine, load_agent(engine, name, first + start), count, first + start).returns)
        progress("patients", start + count, patients)
    by_agent = {name: np.concatenate(parts).astype(np.float64) for name, parts in returns.items()}
    gain = Interval(*(round(number, 5) for number in mean(by_agent[PLANNER] - by_agent["guideline"])))
    random, guideline, planner = (round(float(by_agent[name].mean()), 5) for name in AGENTS)
    return Yardstick(digest(engine.card), engine.decide, engine.split, patients, first, random, guideline, planner, gain)
