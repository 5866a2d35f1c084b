"""Judgements: the figures of an entry in one environment, and their means over the environments of a board."""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

from onco_gym.evaluation.figures import Reference
from onco_gym.evaluation.subgroups import Subgroup
from onco_gym.foundation.intervals import Interval
from onco_gym.foundation.results import Figure, from_plain, to_plain
from onco_gym.interfaces.stamp import Stamp
from onco_gym.leaderboard.boards import Board
from onco_gym.leaderboard.metrics import METRICS

MOST = 100_000
"""Patients of a judgement; more are refused, so that a few bytes cannot fill the memory."""

FEWEST = 50
"""Patients that a subgroup must have to be shown while they are secret."""


class JudgementError(ValueError):
    """A judgement that cannot be made or read. The message says what was expected."""


def _pack(values: NDArray[np.float32]) -> str:
    return base64.b64encode(zlib.compress(values.astype("<f4").tobytes(), 9)).decode()


def _unpack(packed: Any) -> NDArray[np.float32]:
    if isinstance(packed, np.ndarray):
        return np.asarray(packed, np.float32)
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(base64.b64decode(packed, validate=True), 4 * MOST)
        values = np.frombuffer(content, "<f4")
    except (ValueError, TypeError, zlib.error) as error:
        raise ValueError(f"expected compressed numbers: {error}") from None
    if not unpacker.eof or not np.isfinite(values).all():
        raise ValueError(f"expected at most {MOST} finite numbers")
    return values


Packed = Annotated[NDArray[np.float32], PlainValidator(_unpack), PlainSerializer(_pack)]
"""Float32 numbers. Files hold them compressed, in base64: a judgement has a few for each of thousands of patients."""


@dataclass(frozen=True)
class Population:
    """Patients of another population than the board's, or of a disease with other figures.

    Attributes:
        name: short, such as ``older``.
        about: what differs, in words.
        patients: how many they are.
        score: as the board's, on these patients.
        gain: mean difference in return to the guideline.
    """

    name: str
    about: str
    patients: int
    score: Figure
    gain: Figure


@dataclass(frozen=True, eq=False)
class Judgement:
    """What became of an entry's patients in one environment. The same entry and secret give the same digits.

    Attributes:
        stamp: what it was made with.
        reference: the scale of the score.
        figures: by the names of :data:`onco_gym.leaderboard.metrics.METRICS`, those that this environment has.
        unfairness: millinats by protected attribute, less chance.
        terms: mean of each reward term.
        subgroups: for whom the entry does better or worse.
        populations: how it fares elsewhere.
        decisions: mean number of decisions on a patient.
        returns: (n,) total reward of each patient. Patients are the same for all entries.
        qalys: (n,) quality-adjusted life years.
        weeks: (n,) weeks lived within follow-up.
        died: (n,) 1 for a patient who died within follow-up, else 0.
    """

    stamp: Stamp
    reference: Reference
    figures: dict[str, Figure]
    unfairness: dict[str, Figure]
    terms: dict[str, Figure]
    subgroups: list[Subgroup]
    populations: list[Population]
    decisions: float
    returns: Packed
    qalys: Packed
    weeks: Packed
    died: Packed

    @property
    def environment(self) -> str:
        """The id of the environment."""
        return self.stamp.environment

    @property
    def scores(self) -> NDArray[np.float64]:
        """(n,) the return of each patient on the scale of the score. Their mean is the score."""
        zero, hundred = self.reference.random, self.reference.value
        return 100 * (self.returns.astype(np.float64) - zero) / (hundred - zero)

    def without_patients(self) -> "Judgement":
        """The judgement without the figures of single patients."""
        nobody = np.zeros(0, np.float32)
        return replace(self, returns=nobody, qalys=nobody, weeks=nobody, died=nobody)

    def while_secret(self) -> "Judgement":
        """What may be seen of it while patients are secret: rounded figures, of all patients or of many."""
        score, gain, qalys = METRICS["score"].rounded, METRICS["gain"].rounded, METRICS["qalys"].rounded
        return replace(
            self.without_patients(),
            figures={name: METRICS[name].rounded(one) for name, one in self.figures.items() if name in METRICS},
            unfairness={name: METRICS["fairness"].rounded(one) for name, one in self.unfairness.items()},
            terms={name: gain(one) for name, one in self.terms.items()},
            subgroups=[
                replace(one, gain=gain(one.gain), qalys=qalys(one.qalys)) for one in self.subgroups if one.patients >= FEWEST
            ],
            populations=[replace(one, score=score(one.score), gain=gain(one.gain)) for one in self.populations],
            decisions=round(self.decisions, 1),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values that ``json.dumps`` can write."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_json(cls, content: Any) -> "Judgement":
        """Read what :meth:`to_json` wrote.

        Raises:
            JudgementError: if something is missing or of the wrong type.
        """
        try:
            found = from_plain(cls, content)
        except ValueError as error:
            raise JudgementError(f"this is not a judgement: {error}") from None
        if len({len(found.returns), len(found.qalys), len(found.weeks), len(found.died)}) != 1:
            raise JudgementError("the figures of its patients differ in number")
        return found


def overall(board: Board, judgements: Sequence[Judgement], metric: str) -> Interval | None:
    """A figure of an entry on a whole board: the mean over its environments, which have different patients.

    Unfairness and robustness are those of the worst environment. None if an environment does not have the figure.
    """
    by_environment = {one.environment: one.figures.get(metric) for one in judgements}
    found = [by_environment.get(name) for name in board.environments]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    if metric in ("fairness", "robustness"):
        worst = max if METRICS[metric].better == "lower" else min
        return worst(known, key=lambda one: one.value)
    values = np.array(known)
    centre = float(values[:, 0].mean())
    below, above = (float(np.sqrt(((values[:, 0] - values[:, i]) ** 2).sum())) / len(known) for i in (1, 2))
    return Interval(centre, centre - below, centre + above)
