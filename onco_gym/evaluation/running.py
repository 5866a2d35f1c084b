"""Evaluating agents: on the same patients, beside the random and the guideline agent.

Patients are evaluated in chunks of a fixed size, each a pure function of engine, agent and seed. So no digit depends on where a
chunk runs, or beside which others. Time is the one figure that is not reproducible; it is kept apart.
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
"""Patients whose twins are asked about, at most: they are many, and exact."""
ASKED = 200
"""Visits at which an agent is asked about one patient, to take the time."""


def evaluate(
    engine: Engine,
    agent: Agent | str,
    episodes: int = 1000,
    seed: int = 0,
    fairness: bool = True,
    progress: Progress = silent,
    name: str | None = None,
) -> Evaluation:
    """Evaluate an agent.

    Args:
        engine: the compiled environment; :func:`onco_gym.make_engine`, or ``env.unwrapped.engine``.
        agent: an agent, or what :func:`onco_gym.load_agent` takes. An agent that is given by name is made anew for every chunk,
            with a seed of the chunk's own. An agent object is used as it is; for the same digits every time it must not depend
            on earlier calls.
        episodes: patients.
        seed: same seed, same patients, same chance. Patient ``i`` is that of ``reset(seed=seed + i)``.
        fairness: whether to ask about twins, which takes longer than all the rest.
        progress: told after every chunk.
        name: what to call the agent; by default what it is called, or its class.

    Raises:
        EvaluationError: for no episodes.
        AgentError: for an agent that does not exist or that answers nonsense.
    """
    called = name or (agent if isinstance(agent, str) else type(agent).__name__)
    return evaluate_all(engine, {called: agent}, episodes, seed, fairness, progress=progress)[0]


def evaluate_all(
    engine: Engine,
    agents: Sequence[str] | Mapping[str, Agent | str],
    episodes: int = 1000,
    seed: int = 0,
    fairness: bool | Sequence[str] = True,
    workers: str = "local",
    address: str | None = None,
    progress: Progress = silent,
) -> list[Evaluation]:
    """Evaluate agents on the same patients, in chunks that are spread over workers.

    Args:
        engine: the compiled environment.
        agents: as :func:`onco_gym.load_agent` takes them, or agents by the name to call them.
        episodes, seed, progress: see :func:`evaluate`.
        fairness: whether to ask about twins; or the names of the agents that are to be asked.
        workers, address: see :func:`onco_gym.foundation.workers.spread`.

    Returns:
        One evaluation per agent, in their order. The digits do not depend on the workers, except for the time.
    """
    wanted: dict[str, Agent | str] = dict(agents) if isinstance(agents, Mapping) else {name: name for name in agents}
    if not wanted:
        raise EvaluationError("there is no agent to evaluate")
    if episodes < 1:
        raise EvaluationError(f"episodes is {episodes}, expected at least 1")
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
    seen: NDArray[np.float32]  # (k, F) visits to take the time at
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


def _timing(engine: Engine, agent: Agent, played: Sequence[_Played], seed: int) -> Timing:
    """Asked about one patient at visits of the first chunk; in batches as measured while they were played."""
    batch = float(np.median(np.concatenate([part.microseconds for part in played])))
    together = len(played[0].runs)
    if remembers(agent):
        timed = _Timed(agent)
        rollout(engine, timed, 1, seed)
        return Timing(float(np.median(timed.microseconds)), batch, together)
    seen, allowed, taken = played[0].seen, played[0].allowed, list[float]()
    agent.act(seen[:1], allowed[:1])  # what is made ready at the first call is not counted
    for row in range(ASKED):
        visit = slice(row % len(seen), row % len(seen) + 1)
        begun = time.perf_counter()
        agent.act(seen[visit], allowed[visit])
        taken.append((time.perf_counter() - begun) * 1e6)
    return Timing(float(np.median(taken)), batch, together)
