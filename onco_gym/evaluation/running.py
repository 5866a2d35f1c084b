"""Evaluate agents on the same patients, beside the random and the guideline agent.

Patients are evaluated in chunks of a fixed size. Each chunk is a pure function of engine, agent and seed, so results do not
depend on where it runs or on what runs beside it. Only the time is not reproducible; it is kept apart.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Agent, load_agent, rollout
from onco_gym.agents.protocol import remembers
from onco_gym.evaluation.figures import GUIDELINE, RANDOM, Evaluation, EvaluationError, Runs, Timing, summarise
from onco_gym.fairness import DivergenceReport, measure_divergence
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.workers import spread
from onco_gym.interfaces.engine import Engine

CHUNK = 1000
"""Patients evaluated at a time. The fairness term looks back on decisions of the same chunk, so results depend on it."""
FAIRNESS_PATIENTS = 500
"""Most patients whose twins are asked about. Each patient has many twins, and they are exact."""
ASKED = 200
"""Visits at which an agent is timed on one patient."""


def evaluate(
    engine: Engine,
    agent: Agent | str,
    episodes: int = 1000,
    seed: int = 0,
    fairness: bool = True,
    split: str = "test",
    progress: Progress = silent,
    name: str | None = None,
) -> Evaluation:
    """Evaluate an agent.

    Args:
        engine: the compiled environment; :func:`onco_gym.make_engine`, or ``env.unwrapped.engine``.
        agent: an agent, or what :func:`onco_gym.load_agent` takes. An agent given by name is made again for every chunk,
            with the chunk's own seed. An agent object is used as it is; for reproducible results it must not depend on earlier
            calls.
        episodes: number of patients.
        seed: same seed, same patients, same chance. Patient ``i`` is that of ``reset(seed=seed + i)``.
        fairness: whether to ask about twins, which takes longer than all the rest.
        split: the patients, whatever split the engine has. An engine with a cohort of its own keeps it.
        progress: told after every chunk.
        name: what to call the agent; by default its own name, or its class.

    Raises:
        EvaluationError: if ``episodes`` is below 1.
        AgentError: if the agent does not exist or returns invalid actions.
    """
    called = name or (agent if isinstance(agent, str) else type(agent).__name__)
    return evaluate_all(engine, {called: agent}, episodes, seed, fairness, split, progress=progress)[0]


def evaluate_all(
    engine: Engine,
    agents: Sequence[str] | Mapping[str, Agent | str],
    episodes: int = 1000,
    seed: int = 0,
    fairness: bool | Sequence[str] = True,
    split: str = "test",
    workers: str = "local",
    address: str | None = None,
    progress: Progress = silent,
) -> list[Evaluation]:
    """Evaluate agents on the same patients, in chunks that are spread over workers.

    Args:
        engine: the compiled environment.
        agents: names or files for :func:`onco_gym.load_agent`, or a mapping from names to agents.
        episodes, seed, split, progress: see :func:`evaluate`.
        fairness: whether to ask about twins; or the names of the agents to ask.
        workers, address: see :func:`onco_gym.foundation.workers.spread`.

    Returns:
        One evaluation per agent, in their order. Except for the time, they do not depend on the workers.
    """
    wanted: dict[str, Agent | str] = dict(agents) if isinstance(agents, Mapping) else {name: name for name in agents}
    if not wanted:
        raise EvaluationError("there are no agents to evaluate")
    if episodes < 1:
        raise EvaluationError(f"episodes is {episodes}, expected at least 1")
    engine = engine.on(split)
    made = {name: _made(engine, agent, seed) for name, agent in wanted.items()}  # fail early on unknown agents
    everybody = {**wanted, **{name: name for name in (RANDOM, GUIDELINE) if name not in wanted}}
    starts = range(0, episodes, CHUNK)
    asked = [name for name in wanted if (fairness if isinstance(fairness, bool) else name in fairness)]
    tasks = [
        _Task(engine, name, agent, seed, start, min(CHUNK, episodes - start))
        for name, agent in everybody.items()
        for start in starts
    ]
    tasks += [
        _Task(engine, name, wanted[name], seed, 0, min(episodes, FAIRNESS_PATIENTS), fairness=True)
        for name in asked
        if not remembers(made[name])
    ]
    played: dict[str, list[_Played]] = {name: [] for name in everybody}
    reports: dict[str, DivergenceReport] = {}
    for task, result in zip(tasks, spread(_work, tasks, workers, address, progress, "batches of patients"), strict=True):
        if isinstance(result, DivergenceReport):
            reports[task.name] = result
        else:
            played[task.name].append(result)
    runs = {name: Runs.joined([part.runs for part in parts]) for name, parts in played.items()}
    return [
        summarise(
            engine,
            name,
            seed,
            runs[name],
            runs[RANDOM],
            runs[GUIDELINE],
            reports.get(name),
            _timing(engine, made[name], played[name], seed),
        )
        for name in wanted
    ]


class _Task(NamedTuple):
    """One chunk of one agent, or the questions about its patients' twins."""

    engine: Engine
    name: str
    agent: Agent | str
    seed: int
    start: int
    patients: int
    fairness: bool = False


class _Played(NamedTuple):
    """A chunk that was played."""

    runs: Runs
    microseconds: NDArray[np.float64]  # (m,) per patient, one for each batch that the agent was asked about
    seen: NDArray[np.float32]  # (k, F) visits at which to time the agent
    allowed: NDArray[np.bool_]  # (k, mask size)


def _made(engine: Engine, agent: Agent | str, seed: int) -> Agent:
    return load_agent(engine, agent, seed) if isinstance(agent, str) else agent


def _work(task: _Task) -> _Played | DivergenceReport:
    agent = _made(task.engine, task.agent, task.seed + task.start)
    if task.fairness:
        return measure_divergence(task.engine, agent, task.patients, task.seed)
    timed = _Timed(agent)
    episodes = rollout(task.engine, timed, task.patients, task.seed + task.start)
    return _Played(Runs.of(episodes), np.array(timed.microseconds), np.array(timed.seen), np.array(timed.allowed))


class _Timed:
    """An agent whose calls are timed. It keeps some of the visits at which the agent was asked."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.microseconds: list[float] = []
        self.seen: list[NDArray[np.float32]] = []
        self.allowed: list[NDArray[np.bool_]] = []

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[Any]:
        """The agent's actions."""
        if len(self.seen) < ASKED:
            row = len(self.seen) % len(observation)
            self.seen.append(observation[row].copy())
            self.allowed.append(mask[row].copy())
        begun = time.perf_counter()
        answer = self._agent.act(observation, mask)
        self.microseconds.append((time.perf_counter() - begun) * 1e6 / len(observation))
        return answer


def _timing(engine: Engine, agent: Agent, played: Sequence[_Played], seed: int) -> Timing:
    """Time the agent on one patient at visits of the first chunk. Batches were timed while they were played."""
    batch = float(np.median(np.concatenate([part.microseconds for part in played])))
    timed, seen, allowed = _Timed(agent), played[0].seen, played[0].allowed
    if remembers(agent):
        rollout(engine, timed, 1, seed)
    else:
        agent.act(seen[:1], allowed[:1])  # the first call may include setup and is not counted
        for row in np.arange(ASKED) % len(seen):
            timed.act(seen[[row]], allowed[[row]])
    return Timing(float(np.median(timed.microseconds)), batch, len(played[0].runs))
