"""An agent's evaluation: what its patients gain, how sure that is, and how it stands beside others on the same patients.

Patients are evaluated in chunks of a fixed size, each a pure function of a few plain arguments. So it does not matter for any
digit where a chunk runs, or beside which others. Time is the one figure that is not reproducible; it is kept apart.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Agent, load_agent, rollout
from onco_gym.agents.protocol import remembers
from onco_gym.evaluation.statistics import (
    Interval,
    bootstrap_interval,
    interquartile_mean,
    probability_of_improvement,
    ratio_interval,
)
from onco_gym.evaluation.yardstick import PLANNER, yardstick
from onco_gym.fairness import DivergenceReport, divergence
from onco_gym.fairness.estimates import mean_by_patient
from onco_gym.interfaces.engine import KINDS, Engine, make_engine
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.rewards import TERMS
from onco_gym.trials.arms import WEEKS_PER_MONTH
from onco_gym.trials.statistics import Times, mean, rate
from onco_gym.version import __version__
from onco_gym.workers import spread

RANDOM, REFERENCE = "random", "guideline"
"""The agents that are played beside every other: random play is 0 of the score, the guideline a known share of 100."""
CHUNK = 1000
"""Patients evaluated at a time. The fairness term looks back on decisions of the same chunk, so results hang on this number."""
FAIRNESS_PATIENTS = 500
"""Patients whose twins are asked about, at most: they are many, and exact."""
YEARS = (1, 3, 5)
ASKED = 200
"""Visits at which an agent is asked about one patient, to take the time."""

Progress = Callable[[int, int], None]
"""Called with (tasks done, tasks in all)."""


class EvaluationError(ValueError):
    """An evaluation that cannot be made; the message says what was expected."""


@dataclass(frozen=True)
class Chunk:
    """What a worker has to know of one chunk; plain values, so that it can be sent anywhere.

    Attributes:
        agent: as the command line takes it.
        environment: an environment's id, a card's name, or the path of a card.
        kind: of environment, for a card.
        seed: of the evaluation.
        start, count: the first patient, and how many.
        fairness: whether twins are to be asked about, instead of episodes played.
    """

    agent: str
    environment: str
    kind: str
    seed: int
    start: int
    count: int
    fairness: bool = False


@dataclass(frozen=True, eq=False)
class Runs:
    """Episodes of one agent, patient by patient; n patients.

    Attributes:
        returns: (n,) total reward.
        terms: name to (n,) total of each reward term.
        weeks: (n,) lived, to the end of follow-up at most.
        died: (n,) whether within follow-up.
        decisions, concordant: (n,) how many, and how many of them inside the acceptability region.
        carbon_kg: (n,) kg CO2e.
        cost_usd: (n,) of tests that were ordered.
        severe: (n,) whether a grade 3+ event happened.
        act_us: (m,) microseconds per patient, one for each batch that the agent was asked about.
        seen, allowed: (k, F), (k, mask size) visits to take the time at.
    """

    returns: NDArray[np.float64]
    terms: dict[str, NDArray[np.float64]]
    weeks: NDArray[np.float64]
    died: NDArray[np.bool_]
    decisions: NDArray[np.int64]
    concordant: NDArray[np.int64]
    carbon_kg: NDArray[np.float64]
    cost_usd: NDArray[np.float64]
    severe: NDArray[np.bool_]
    act_us: NDArray[np.float64]
    seen: NDArray[np.float32]
    allowed: NDArray[np.bool_]

    @classmethod
    def joined(cls, chunks: Sequence[Mapping[str, NDArray[Any]]]) -> "Runs":
        """The runs of chunks in order."""
        arrays = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
        terms = {name: arrays.pop(f"term_{name}") for name in TERMS}
        return cls(terms=terms, **arrays)

    @property
    def overall(self) -> Times:
        """Overall survival."""
        return Times(self.weeks / WEEKS_PER_MONTH, self.died)


@dataclass(frozen=True)
class Reference:
    """What the score is measured by: 0 is the random agent, 100 the agent called ``name``.

    Attributes:
        name: of the agent at 100: the planner, or the guideline where there is no yardstick
            (:mod:`onco_gym.evaluation.yardstick`).
        value: its mean return on these patients; the planner's follows from random, guideline and yardstick.
        random: the random agent's mean return.
        guideline: the guideline's score.
    """

    name: str
    value: float
    random: float
    guideline: float

    @property
    def says(self) -> str:
        """In words."""
        shown = f"; the {REFERENCE} has {self.guideline:.1f}" if self.name != REFERENCE else ""
        return f"100 is the {self.name} agent, 0 the {RANDOM} agent{shown}"


@dataclass(frozen=True)
class Timing:
    """Microseconds that the agent takes for a decision, medians; only the agent's own time.

    Attributes:
        one_us: asked about one patient.
        batch_us: per patient, asked about ``batch`` at once.
        batch: how many.
    """

    one_us: float
    batch_us: float
    batch: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an evaluation found; intervals are of 95%.

    Attributes:
        agent: its name.
        environment: id of the environment or of the card.
        kind: of environment.
        card_digest: of the card's content.
        episodes, seed: patients, and the seed of the first.
        follow_up_months: how long patients are followed.
        returns, iqm: mean and interquartile mean of the return.
        score: of the mean return, 0 for random and 100 for the reference.
        reference: what is 0 and 100.
        terms: mean of each reward term, in its unit.
        median_survival: months; infinite where not reached.
        survival: share alive after so many years; None beyond follow-up.
        qalys: quality-adjusted life years.
        concordance: share of decisions inside the acceptability region of the panel.
        grade3: share of patients with a grade 3+ event.
        carbon_kg: kg CO2e per patient.
        cost_usd: of tests per patient.
        fairness: the exact divergence, if asked for.
        timing: time per decision; not reproducible.
        runs: the episodes behind it.
    """

    agent: str
    environment: str
    kind: str
    card_digest: str
    episodes: int
    seed: int
    follow_up_months: float
    returns: Interval
    iqm: Interval
    score: Interval
    reference: Reference
    terms: dict[str, Interval]
    median_survival: Interval
    survival: dict[str, Interval | None]
    qalys: Interval
    concordance: Interval
    grade3: Interval
    carbon_kg: Interval
    cost_usd: Interval
    fairness: DivergenceReport | None
    timing: Timing
    runs: Runs = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The figures as a dictionary that ``json.dumps`` can write; None for what was not reached or cannot be told."""
        named = ("agent", "environment", "kind", "card_digest", "episodes", "seed", "follow_up_months")
        figures = ("qalys", "concordance", "grade3", "carbon_kg", "cost_usd")
        return {
            "version": __version__,
            **{name: getattr(self, name) for name in named},
            "return": _plain(self.returns),
            "return_iqm": _plain(self.iqm),
            "score": _plain(self.score),
            "reference": {
                "name": self.reference.name,
                "value": self.reference.value,
                "random": self.reference.random,
                "guideline": self.reference.guideline,
                "says": self.reference.says,
            },
            "terms": {name: _plain(value) for name, value in self.terms.items()},
            "median_survival_months": _plain(self.median_survival),
            "survival": {name: None if value is None else _plain(value) for name, value in self.survival.items()},
            **{name: _plain(getattr(self, name)) for name in figures},
            "fairness": None if self.fairness is None else _fairness(self.fairness),
            "timing": {"one_us": self.timing.one_us, "batch_us": self.timing.batch_us, "batch": self.timing.batch},
        }


def evaluate(
    agent: Agent | str,
    engine: Engine,
    episodes: int = 1000,
    seed: int = 0,
    fairness: bool = True,
    progress: Progress | None = None,
    name: str | None = None,
) -> Evaluation:
    """Evaluate an agent in this process, on any engine.

    Args:
        agent: an agent, or its name. A name's agent is made anew for every chunk, with a seed of the chunk's own. An agent that
            is handed over is used as it is; for the same digits every time it must not depend on earlier calls.
        engine: the compiled environment; :func:`onco_gym.interfaces.engine.make_engine`, or ``env.unwrapped.engine``.
        episodes: patients.
        seed: same seed, same patients, same chance. Patient ``i`` is that of ``reset(seed=seed + i)``.
        fairness: whether to ask about twins, which takes longer than all the rest.
        progress: called with (tasks done, tasks in all).
        name: what to call the agent; by default what it is called, or its class.

    Raises:
        EvaluationError: for no episodes.
        AgentError: for an agent that there is not or that answers nonsense.
    """
    text = agent if isinstance(agent, str) else None
    makers: dict[str, Callable[[int], Agent]] = {}
    for known in dict.fromkeys([RANDOM, REFERENCE, *([text] if text else [])]):
        makers[known] = lambda start, known=known: load_agent(known, engine, seed + start)  # type: ignore[misc]
    called = name or text or type(agent).__name__
    key = text or "\0"
    if not isinstance(agent, str):
        makers[key] = lambda _: agent
    fairness = fairness and not remembers(makers[key](0))  # and a name that means nothing is found out before the work
    starts = _starts(episodes)
    total, done = len(makers) * len(starts) + fairness, 0

    def finished() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    played: dict[str, Runs] = {}
    for one, make in makers.items():
        chunks = []
        for start, count in starts:
            chunks.append(_play(make(start), engine, seed, start, count))
            finished()
        played[one] = Runs.joined(chunks)
    report = None
    if fairness:
        report = divergence(makers[key](0), engine, min(episodes, FAIRNESS_PATIENTS), seed)
        finished()
    timing = _timing(makers[key](0), played[key], engine, seed)
    return _summary(called, engine.card.id, engine, seed, played[key], played[RANDOM], played[REFERENCE], report, timing)


def evaluate_all(
    agents: Sequence[str],
    environment: str,
    kind: str = "regimen",
    episodes: int = 1000,
    seed: int = 0,
    fairness: bool | Sequence[str] = True,
    workers: str = "local",
    address: str | None = None,
    progress: Progress | None = None,
) -> list[Evaluation]:
    """Evaluate agents by name on the same patients, in chunks that are spread over workers.

    Args:
        agents: as the command line takes them; each once.
        environment: an environment's id, the name of a shipped card, or the path of a card.
        kind: of environment, where a card is named.
        episodes, seed, progress: see :func:`evaluate`.
        fairness: whether to ask about twins; or the names of the agents that are to be asked.
        workers, address: see :func:`onco_gym.workers.spread`.

    Returns:
        One evaluation per agent, in their order; the same digits as :func:`evaluate` gives, but for the time.
    """
    if not agents:
        raise EvaluationError("there is no agent to evaluate")
    engine, kind = _engine(environment, kind)
    wanted = list(dict.fromkeys(agents))
    made = {name: load_agent(name, engine, seed) for name in wanted}  # names that mean nothing are found out before the work
    starts = _starts(episodes)
    names = list(dict.fromkeys([*wanted, RANDOM, REFERENCE]))
    tasks = [Chunk(name, environment, kind, seed, start, count) for name in names for start, count in starts]
    some = min(episodes, FAIRNESS_PATIENTS)
    asked = (wanted if fairness else []) if isinstance(fairness, bool) else [name for name in wanted if name in fairness]
    asked = [name for name in asked if not remembers(made[name])]
    tasks += [Chunk(name, environment, kind, seed, 0, some, fairness=True) for name in asked]
    results = spread(_work, tasks, workers, address, progress)
    chunks: dict[str, list[Any]] = {name: [] for name in names}
    reports: dict[str, DivergenceReport] = {}
    for task, result in zip(tasks, results, strict=True):
        if isinstance(result, DivergenceReport):
            reports[task.agent] = result
        else:
            chunks[task.agent].append(result)
    played = {name: Runs.joined(some) for name, some in chunks.items()}
    return [
        _summary(
            name,
            environment,
            engine,
            seed,
            played[name],
            played[RANDOM],
            played[REFERENCE],
            reports.get(name),
            _timing(made[name], played[name], engine, seed),
        )
        for name in agents
    ]


def evaluate_chunk(task: Chunk) -> dict[str, NDArray[Any]]:
    """The episodes of a chunk, as arrays by the names of :class:`Runs`: a pure function of the task, but for the time."""
    engine, _ = _engine(task.environment, task.kind)
    return _play(load_agent(task.agent, engine, task.seed + task.start), engine, task.seed, task.start, task.count)


def make_named(agent: str, environment: str, kind: str = "regimen", seed: int = 0) -> tuple[Engine, Agent]:
    """The engine of an environment or card, and an agent for it by name, as :func:`evaluate_all` makes them."""
    engine, _ = _engine(environment, kind)
    return engine, load_agent(agent, engine, seed)


def improvement(first: Evaluation, second: Evaluation, seed: int = 0) -> Interval:
    """How likely a patient of ``first`` has a higher return than another of ``second``; ties count half."""
    return probability_of_improvement(first.runs.returns[:, None], second.runs.returns[:, None], seed=seed)


def _work(task: Chunk) -> dict[str, NDArray[Any]] | DivergenceReport:
    if not task.fairness:
        return evaluate_chunk(task)
    engine, _ = _engine(task.environment, task.kind)
    return divergence(load_agent(task.agent, engine, task.seed), engine, task.count, task.seed)


def _engine(environment: str, kind: str) -> tuple[Engine, str]:
    """The engine of an environment or card, and its kind."""
    if environment in gym.registry:
        options = gym.spec(environment).kwargs
        if "card" not in options:
            raise EvaluationError(f"{environment} needs a card: expected the path of the card instead")
        environment, kind = options["card"], options.get("kind", "regimen")
    if kind not in KINDS:
        raise EvaluationError(f"kind is {kind!r}, expected one of {list(KINDS)}")
    return make_engine(environment, kind=kind), kind


def _starts(episodes: int) -> list[tuple[int, int]]:
    """(first patient, how many) of each chunk."""
    if episodes < 1:
        raise EvaluationError(f"episodes is {episodes}, expected at least 1")
    return [(start, min(CHUNK, episodes - start)) for start in range(0, episodes, CHUNK)]


class _Timed:
    """An agent, the time that it takes, and some of the visits at which it was asked."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.microseconds: list[float] = []
        self.seen: list[NDArray[np.float32]] = []
        self.allowed: list[NDArray[np.bool_]] = []

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[Any]:
        """What the agent says."""
        if len(self.seen) < ASKED:
            row = len(self.seen) % len(observation)
            self.seen.append(observation[row].copy())
            self.allowed.append(mask[row].copy())
        begun = time.perf_counter()
        answer = self._agent.act(observation, mask)
        self.microseconds.append((time.perf_counter() - begun) * 1e6 / len(observation))
        return answer


def _play(agent: Agent, engine: Engine, seed: int, start: int, count: int) -> dict[str, NDArray[Any]]:
    timed = _Timed(agent)
    episodes = rollout(engine, timed, count, seed + start)
    kept = slice(None) if start == 0 else slice(0)
    return {
        "returns": episodes.returns.astype(np.float64),
        **{f"term_{name}": values.astype(np.float64) for name, values in episodes.terms.items()},
        "weeks": episodes.weeks.astype(np.float64),
        "died": episodes.died,
        "decisions": (episodes.verdicts >= 0).sum(0),
        "concordant": (episodes.verdicts >= VERDICTS.index("later")).sum(0),
        "carbon_kg": episodes.carbon_kg.astype(np.float64),
        "cost_usd": episodes.cost_usd.astype(np.float64),
        "severe": episodes.severe,
        "act_us": np.array(timed.microseconds),
        "seen": np.array(timed.seen)[kept],
        "allowed": np.array(timed.allowed)[kept],
    }


def _timing(agent: Agent, runs: Runs, engine: Engine, seed: int) -> Timing:
    """Asked about one patient at visits of the first chunk; in batches as measured while they were played."""
    if not len(runs.seen):
        raise EvaluationError("no visit was kept to take the time at")
    taken: list[float] = []
    if remembers(agent):
        timed = _Timed(agent)
        rollout(engine, timed, 1, seed)
        return Timing(float(np.median(timed.microseconds)), float(np.median(runs.act_us)), min(len(runs.returns), CHUNK))
    agent.act(runs.seen[:1], runs.allowed[:1])  # what is made ready at the first call is not counted
    for row in range(ASKED):
        visit = slice(row % len(runs.seen), row % len(runs.seen) + 1)
        begun = time.perf_counter()
        agent.act(runs.seen[visit], runs.allowed[visit])
        taken.append((time.perf_counter() - begun) * 1e6)
    return Timing(float(np.median(taken)), float(np.median(runs.act_us)), min(len(runs.returns), CHUNK))


def _summary(
    name: str,
    environment: str,
    engine: Engine,
    seed: int,
    runs: Runs,
    random: Runs,
    reference: Runs,
    report: DivergenceReport | None,
    timing: Timing,
) -> Evaluation:
    n = len(runs.returns)
    share = ratio_interval(runs.returns - random.returns, reference.returns - random.returns, seed=seed)
    known = yardstick(engine)
    name_of_best, reach = (PLANNER, known.reach) if known else (REFERENCE, 1.0)
    score = Interval(*(100 / reach * part for part in (share.value, share.low, share.high)))
    zero, hundred = float(random.returns.mean()), float(reference.returns.mean())
    follow_up = engine.horizon * engine.scenario.cycle_weeks / WEEKS_PER_MONTH
    overall = runs.overall
    survival = {str(year): _known(rate(overall.months >= 12 * year), n) if 12 * year <= follow_up else None for year in YEARS}
    judged = bool(engine.terms & {"guideline", "fairness"})
    return Evaluation(
        agent=name,
        environment=environment,
        kind=engine.kind_name,
        card_digest=engine.scenario.digest,
        episodes=n,
        seed=seed,
        follow_up_months=follow_up,
        returns=_known(mean(runs.returns), n),
        iqm=_known(bootstrap_interval(runs.returns[:, None], interquartile_mean, seed=seed), n),
        score=_known(score, n),
        reference=Reference(name_of_best, zero + reach * (hundred - zero), zero, 100 / reach),
        terms={term: _known(mean(values), n) for term, values in runs.terms.items()},
        median_survival=_known(overall.median(), n),
        survival=survival,
        qalys=_known(mean(runs.terms["outcome"]), n),
        concordance=_concordance(runs) if judged else Interval(math.nan, math.nan, math.nan),
        grade3=_known(rate(runs.severe), n),
        carbon_kg=_known(mean(runs.carbon_kg), n),
        cost_usd=_known(mean(runs.cost_usd), n),
        fairness=report,
        timing=timing,
        runs=runs,
    )


def _concordance(runs: Runs) -> Interval:
    """The share of decisions inside the region; patients are independent, decisions on one are not."""
    n = len(runs.decisions)
    counts = np.stack([runs.concordant, runs.decisions - runs.concordant], 1).ravel()
    found = mean_by_patient(np.repeat(np.arange(n), runs.decisions), np.repeat(np.tile([1.0, 0.0], n), counts))
    return _known(Interval(found.value, max(found.low, 0.0), min(found.high, 1.0)), n)


def _known(estimate: Any, n: int) -> Interval:
    """An estimate as an interval; one patient tells nothing of the spread."""
    if n < 2:
        return Interval(estimate.value, math.nan, math.nan)
    return Interval(estimate.value, estimate.low, estimate.high)


def _plain(interval: Any) -> dict[str, float | None]:
    return {name: _finite(getattr(interval, name)) for name in ("value", "low", "high")}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _fairness(report: DivergenceReport) -> dict[str, Any]:
    def reading(found: Any) -> dict[str, Any]:
        measured = {name: _plain(getattr(found, name)) for name in ("nats", "changed", "cases_changed")}
        return {**measured, "chance": _finite(found.chance)}

    attributes: Iterable[Any] = report.attributes.values()
    return {
        "patients": report.patients,
        "exact": report.exact,
        "attributes": {a.attribute: {effect: reading(found) for effect, found in a.readings.items()} for a in attributes},
    }
