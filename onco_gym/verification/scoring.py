"""Scores episodes against the decisions that would have been best, and explains the difference.

The yardstick is a patient's best sequence in expectation (:func:`optimal`), which knows the biology but not the chance. Both
sequences, what was done and what would have been best, are then played under the same draws of chance. The difference is the
regret; its interval shows how precise it is.
"""

from collections.abc import Sequence as Listed
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from onco_gym.agents import Agent, play
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.threads import beside
from onco_gym.foundation.units import WEEKS_PER_YEAR
from onco_gym.interfaces.engine import Engine
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.verification.amortised import network_for
from onco_gym.verification.course import Cases, Course, Reading, Sequence, filled, follow, redrawn
from onco_gym.verification.reasons import LostValue, explain
from onco_gym.verification.reconstruction import misfit, reconstruct
from onco_gym.verification.records import Record
from onco_gym.verification.relaxed import climb
from onco_gym.verification.solutions import Solutions, marks
from onco_gym.verification.solver import BRIEF, LANES, THOROUGH, Effort, Plans, by_lines, improve, permitted, totals_of, value_of

Floats = NDArray[np.float32]

DRAWS = 96
"""Draws of chance under which a sequence is compared with the best."""
LEVEL = 0.9
"""Confidence level of intervals."""
SUSPECT = 25.0
"""An episode is flagged if the observations favour other decisions than those claimed by this many nats."""

SETTLED = 16
"""Draws of chance that ``mode="drawn"`` averages over, with death as a weight."""
SETTLE = Effort(islands=0, moves=64, rounds=24, patience=8)


def optimal(
    engine: Engine,
    who: Cases,
    n: int | None = None,
    mode: Literal["expected", "drawn", "hindsight"] = "expected",
    starts: Listed[Sequence] = (),
    effort: Effort = THOROUGH,
    iterations: int = 0,
    seed: int = 0,
    among: NDArray[np.bool_] | None = None,
    warm: bool = True,
    known: Solutions | None = None,
) -> Plans:
    """Find the best sequences of decisions for patients.

    Args:
        engine: the environment; its actions must be regimens.
        who: (…, n * P) patients. With P above 1, a sequence is for P patients at once: those that a real patient may be, given
            what is known.
        n: number of sequences; by default one for each of ``who``.
        mode: ``expected``: best in the simulator's expected reading. ``drawn``: that sequence, improved further over draws of
            chance; slow. ``hindsight``: best with each patient's own chance, an upper bound.
        starts: (H, n) sequences to start from, in addition to those found line by line.
        effort: how long to search.
        iterations: steps of gradient ascent, whose result is another start; 0 for none.
        seed: the seed of the random search.
        among: (R, n) regimens that may be given, including a pause; by default all that the guideline does not forbid.
        warm: as lines, try only what the card's network (:mod:`onco_gym.verification.amortised`) advises, if it has one;
            otherwise try all.
        known: patients that were solved before and are not solved again. Newly solved patients are added. It is not used with
            hindsight, ``starts`` or ``among``.
    """
    count = n or who.key.shape[-1]
    reading: Reading = "sampled" if mode == "hindsight" else "expected"
    names: list[bytes] = []
    if known is not None and mode != "hindsight" and not starts and among is None:
        names = marks(engine, who, count, (mode, engine.horizon, effort, iterations, seed, warm))
        if (plans := known.recall(names)) is not None:
            return plans
    network = network_for(engine) if warm else None
    shortlist = network.shortlist(engine, who, count, among=among) if network is not None else None
    lines, tried = by_lines(engine, who, count, engine.horizon, effort.lines, among, shortlist=shortlist)
    begun = [lines, *starts]
    if iterations:
        open_to = permitted(engine, who, count) if among is None else among
        begun.append(climb(engine, who, count, open_to, iterations, seed))
    plans = improve(engine, who, begun, reading, effort, seed, among)
    ordered, tells = plans.decisions, count == who.key.shape[-1]
    if tells:  # what is ordered beyond a limit becomes a pause, and a plan says so
        plans = Plans(follow(engine, who, ordered, reading).given, plans.value, plans.tried)
    if mode == "drawn":
        # These are not the draws used for regret: the search must not overfit those.
        many = redrawn(who, 2**20 + seed * SETTLED + np.arange(SETTLED))
        settled = improve(engine, many, [ordered, plans.decisions, lines], "weighed", SETTLE, seed, among)
        decisions = settled.decisions
        if tells:  # where a pause is worth as much: under some draws, the order could be given
            given = follow(engine, who, decisions).given
            decisions = np.where(value_of(engine, many, given, "weighed") > settled.value - 1e-6, given, decisions)
        plans = Plans(decisions, settled.value, plans.tried + SETTLED * settled.tried)
    plans = Plans(plans.decisions, plans.value, plans.tried + tried)
    if known is not None and names:
        known.keep(names, plans)
    return plans


@dataclass(frozen=True, eq=False)
class Verification:
    """The verification of n episodes of T cycles.

    Attributes:
        record: the episodes.
        value: (n,) expected value of what was done, followed by the best decisions after the episode's end. In quality-adjusted
            life years, with guideline points and carbon weighted in.
        best: (n,) expected value of the best sequence.
        hindsight: (n,) the highest possible value with the patient's own chance.
        achieved: (n,) the value that was achieved with that chance.
        regret: (n,) mean gain of the best sequence over what was done, over draws of chance.
        regret_interval: (2, n) its 90% interval.
        weeks: (n,) mean quality-adjusted weeks lost over the same draws; negative if weeks were gained.
        weeks_interval: (2, n) its 90% interval.
        deviation: (n,) share of the cycles lived in which the regimen given was not the best.
        accepted: (T, n) whether at least one expert accepts the decision; false after the end.
        optimal: (H, n) the best sequence.
        done, instead: the expected course under what was done (and the best that could follow) and under the best sequence.
        suspicion: (n,) nats by which the observations favour other decisions than those claimed.
        reasons: for each episode, where value was lost, and why.
        repeated: (n,) share of the decisions that the agent makes again, up to the first that it does not; None without an agent.
    """

    record: Record
    value: Floats
    best: Floats
    hindsight: Floats
    achieved: Floats
    regret: Floats
    regret_interval: Floats
    weeks: Floats
    weeks_interval: Floats
    deviation: Floats
    accepted: NDArray[np.bool_]
    optimal: Sequence
    done: Course
    instead: Course
    suspicion: Floats
    reasons: tuple[tuple[LostValue, ...], ...]
    repeated: Floats | None = None

    @property
    def flagged(self) -> NDArray[np.bool_]:
        """(n,) whether the claimed decisions do not fit what was seen."""
        return self.suspicion > SUSPECT

    def mean_regret(self) -> tuple[float, float, float]:
        """Mean regret over episodes, and its 90% interval."""
        return _mean_interval(self.regret)

    def mean_weeks(self) -> tuple[float, float, float]:
        """Mean quality-adjusted weeks lost over episodes, and their 90% interval."""
        return _mean_interval(self.weeks)


def verify(
    engine: Engine,
    record: Record,
    agent: Agent | None = None,
    effort: Effort = BRIEF,
    seed: int = 0,
    progress: Progress = silent,
    known: Solutions | None = None,
) -> Verification:
    """Score episodes against the decisions that would have been best.

    Args:
        engine: the environment that they come from; its actions must be regimens.
        record: see :func:`onco_gym.record_episodes` and :func:`onco_gym.read_record`.
        agent: the agent that is said to have decided. It treats the patients again, and the decisions it repeats are counted.
        effort: how long to search for the best sequence.
        seed: the seed of the draws of chance and of the random search.
        progress: called at the start of every stage.
        known: patients that were solved before; see :func:`optimal`.

    Raises:
        StampError: if the record was made with another card, cohort, weights or horizon.
    """
    decides, engine = engine, engine.deciding("cycles")
    record.stamp.check(engine.stamp)
    stages = iter(range(8))

    def stage(name: str) -> None:
        progress(name, next(stages), 7)

    who, lengths = record.who(engine), record.lengths.astype(np.int32)
    stage("best decisions")
    plans = optimal(engine, who, effort=effort, seed=seed, known=known)
    stage("what could have followed")
    brief = _briefer(effort)
    ended = _followed(engine, record, plans, brief, seed)
    done, better = ended.decisions, ended.value > plans.value  # what was done may be better than anything found
    plans = Plans(np.where(better, done, plans.decisions), np.where(better, ended.value, plans.value), plans.tried)
    stage("courses")
    was, instead = (follow(engine, who, one) for one in (done, plans.decisions))
    plans = Plans(instead.given, plans.value, plans.tried)
    own = follow(engine, who, done, "sampled")
    stage("draws of chance")
    regret, weeks = compared(engine, who, done, plans.decisions, seed)
    stage("hindsight")
    late = improve(engine, who, [done, plans.decisions], "sampled", brief, seed)
    stage("fit to what was seen")
    claimed = misfit(engine, who, record.observed, record.actions).sum(0)
    inferred = reconstruct(engine, who, record.observed)
    stage("reasons")
    lived = record.actions >= 0
    inside = own.verdict[: len(lived)] >= VERDICTS.index("later")
    reasons = explain(engine, who, done, plans.decisions, lengths, was, instead)
    stage("done")
    differs = (own.given[: len(lived)] != plans.decisions[: len(lived)]) & lived
    return Verification(
        record=record,
        value=was.worth.sum(0),
        best=plans.value,
        hindsight=late.value,
        achieved=own.worth.sum(0),
        regret=regret[0],
        regret_interval=regret[1:],
        weeks=weeks[0],
        weeks_interval=weeks[1:],
        deviation=(differs.sum(0) / np.maximum(lived.sum(0), 1)).astype(np.float32),
        accepted=inside & lived,
        optimal=plans.decisions,
        done=was,
        instead=instead,
        suspicion=np.maximum(claimed - inferred.misfit, 0),
        reasons=reasons,
        repeated=None if agent is None else repeated(decides, record, agent),
    )


def weeks_lost(engine: Engine, record: Record, effort: Effort = BRIEF, seed: int = 0, known: Solutions | None = None) -> Floats:
    """The (n,) quality-adjusted weeks that the best sequences gain over what was done: those of :func:`verify`, nothing else.

    Args:
        engine, record, effort, seed, known: see :func:`verify`.

    Raises:
        StampError: if the record was made with another card, cohort, weights or horizon.
    """
    engine = engine.deciding("cycles")
    record.stamp.check(engine.stamp)
    who = record.who(engine)
    plans = optimal(engine, who, effort=effort, seed=seed, known=known)
    ended = _followed(engine, record, plans, _briefer(effort), seed)
    best = np.where(ended.value > plans.value, ended.decisions, plans.decisions)
    return compared(engine, who, ended.decisions, best, seed)[1][0]


def _briefer(effort: Effort) -> Effort:
    return Effort(lines=1, islands=0, moves=effort.moves // 2, rounds=max(effort.rounds // 2, 1), patience=1)


def _followed(engine: Engine, record: Record, plans: Plans, effort: Effort, seed: int) -> Plans:
    """What was done, followed by the best decisions: treatment not given after death must not count as a loss."""
    who, done, lengths = record.who(engine), filled(engine, record.actions), record.lengths.astype(np.int32)
    lines, _ = by_lines(engine, who, len(record), engine.horizon, effort.lines, begun=(done, lengths))
    return improve(engine, who, [done, lines, plans.decisions], "expected", effort, seed, since=lengths)


def repeated(engine: Engine, record: Record, agent: Agent) -> Floats:
    """(n,) share of an episode's decisions that ``agent`` makes again, up to the first that it does not."""
    given, claimed = play(engine, agent, record.origin).by_cycle(), record.actions
    again = np.full(claimed.shape, -1, np.int32)
    again[: len(given)] = given[: len(claimed)]
    lived = claimed >= 0
    return (np.cumprod((again == claimed) | ~lived, 0) * lived).sum(0).astype(np.float32) / np.maximum(lived.sum(0), 1)


def compared(engine: Engine, who: Cases, done: Sequence, best: Sequence, seed: int = 0) -> tuple[Floats, Floats]:
    """((3, n) regret and its interval, (3, n) quality-adjusted weeks lost and theirs), over the same draws of chance."""
    n = done.shape[1]
    few = max(1, LANES // (2 * n))  # draws at once

    def draw(first: int) -> Floats:
        numbers = seed * DRAWS + np.arange(first, min(first + few, DRAWS))
        many, count = redrawn(who, numbers), n * len(numbers)
        both = np.repeat(np.concatenate([done, best], 1), len(numbers), 1)
        totals = totals_of(engine, many, count, both, np.tile(np.arange(count), 2), "sampled")
        return np.swapaxes((totals[:, count:] - totals[:, :count]).reshape(2, n, -1), 1, 2)

    worth, quality = np.concatenate(beside(draw, range(0, DRAWS, few)), 1)  # (draws, n) each
    return _interval(worth), _interval(quality * WEEKS_PER_YEAR)


def _interval(draws: Floats) -> Floats:
    """(3, n) mean over the first axis, and its interval."""
    mean = draws.mean(0)
    half = stdtrit(len(draws) - 1, 0.5 + LEVEL / 2) * draws.std(0, ddof=1) / np.sqrt(len(draws))
    return np.stack([mean, mean - half, mean + half]).astype(np.float32)


def _mean_interval(values: Floats) -> tuple[float, float, float]:
    if len(values) < 2:
        return float(values.mean()), float("nan"), float("nan")
    mean, low, high = _interval(values[:, None].astype(np.float32))[:, 0]
    return float(mean), float(low), float(high)
