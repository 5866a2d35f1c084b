"""Judges an entry: lets its policy treat the patients of a season, and works out its figures.

A judgement is a pure function of board, secret and policy: whoever runs it again gets the same digits.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from onco_gym.agents import Agent, load_agent, rollout
from onco_gym.agents.protocol import remembers
from onco_gym.cards.grid import intensity
from onco_gym.evaluation.figures import GUIDELINE, RANDOM, Reference, Runs, known, outcomes
from onco_gym.evaluation.running import CHUNK, FAIRNESS_PATIENTS
from onco_gym.evaluation.statistics import ratio_interval
from onco_gym.evaluation.subgroups import find_subgroups
from onco_gym.evaluation.yardsticks import PLANNER, yardstick
from onco_gym.fairness import measure_divergence
from onco_gym.foundation.intervals import Interval, mean
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.interfaces.stamp import Stamp
from onco_gym.leaderboard.boards import Board
from onco_gym.leaderboard.explorations import Exploration, explore
from onco_gym.leaderboard.judgements import Judgement, JudgementError, Population
from onco_gym.leaderboard.populations import other_figures, shifts
from onco_gym.leaderboard.sandbox import Confined
from onco_gym.leaderboard.seasons import derived_secret, season_cohort, season_engine
from onco_gym.verification import Solutions, record_episodes, weeks_lost

ELSEWHERE = 500
"""Most patients of each shifted population."""
VERIFIED = 48
"""Most patients whose best decisions are searched for."""
JOULES = 1e-9
"""Energy of a multiplication on a processor core, 10 W at 10 billion a second. An estimate, good to a factor of a few."""
JOULES_PER_KWH = 3.6e6


class Judge:
    """Judges entries of one board. It keeps what all entries share, such as compiled environments and reference agents.

    Args:
        board: the board.
        secret: of its season. Without it, entries meet the public validation patients instead, with open chance.
        revealed: whether everybody knows the secret, as in a replay. Policies may then say how they fail, and run on systems
            whose sandbox is too weak for secret patients.
    """

    def __init__(self, board: Board, secret: bytes | None = None, revealed: bool = False) -> None:
        self.board = board
        self._secret = secret
        self._guarded = secret is not None and not revealed
        self._engines: dict[str, Engine] = {}
        self._venues: dict[str, _Venue] = {}

    def judge(self, policies: Mapping[str, bytes] | str, progress: Progress = silent) -> tuple[Judgement, ...]:
        """The figures of an entry in every environment of the board.

        Args:
            policies: a policy file for each environment, by its id; they are run in a sandbox. Or the name of an agent for
                :func:`onco_gym.load_agent`, which runs in this process.
            progress: told about every stage.

        Raises:
            JudgementError: if policies and environments do not match.
            AgentError: if a policy is refused, or an agent does not exist.
            SandboxError: if the sandbox cannot be started, or is too weak for secret patients.
        """
        wanted = set(self.board.environments)
        if not isinstance(policies, str) and set(policies) != wanted:
            raise JudgementError(f"there are policies for {sorted(policies)}, expected {sorted(wanted)}")
        return tuple(
            self.judge_in(name, policies if isinstance(policies, str) else policies[name], progress)
            for name in self.board.environments
        )

    def explore(self, policies: Mapping[str, bytes] | str, name: str, progress: Progress = silent) -> tuple[Exploration, ...]:
        """Journeys of an entry for the explorer, on public patients, in those environments whose actions are regimens.

        Args:
            policies: see :meth:`judge`.
            name: what to call the entry.
            progress: told about every stage.

        Raises:
            AgentError: if a policy is refused, or the agent does not exist.
        """
        found = []
        for environment in self.board.environments:
            engine = make_engine(environment, split="validation")
            with _deciding(engine, policies if isinstance(policies, str) else policies[environment]) as decider:
                found.append(explore(engine, decider.at(0), name, progress))
        return tuple(one for one in found if one is not None)

    def stamps(self) -> list[Stamp]:
        """What judgements of this board carry today, one stamp for each environment."""
        return [self._engine(name).stamp for name in self.board.environments]

    def _engine(self, environment: str) -> Engine:
        if environment not in self._engines:
            public = make_engine(environment, split="validation")
            self._engines[environment] = public if self._secret is None else season_engine(environment, self._secret)
        return self._engines[environment]

    def judge_in(self, environment: str, source: bytes | str, progress: Progress = silent) -> Judgement:
        """The figures of an entry in one environment.

        Args:
            environment: an id of the board.
            source: a policy file, or the name of an agent; see :meth:`judge`.
            progress: told about every stage.

        Raises:
            AgentError: if the policy is refused, or the agent does not exist.
            SandboxError: if the sandbox cannot be started, or is too weak for secret patients.
        """
        if environment not in self._venues:
            progress(f"opening {environment}", 0, 0)
            self._venues[environment] = _Venue(self._engine(environment), self._secret, self.board.patients)
        venue = self._venues[environment]
        progress(f"checking the policy, {environment}", 0, 0)
        with _deciding(venue.engine, source, self._guarded) as agent:
            if agent.walls:
                progress(f"the policy runs behind {', '.join(agent.walls)}, {environment}", 0, 0)
            return venue.judge(agent, progress)


def questions(engine: Engine, patients: int, steps: int, visits: float, remembers: bool) -> float:
    """About how many decisions a judgement asks a policy for; a fifth more with what the sandbox asks twice.

    Args:
        engine: the environment.
        patients: of the board.
        steps: visits of the patient who has most. Until then a batch is asked about whole.
        visits: of a patient, mean.
        remembers: whether the policy is recurrent, which is not asked about twins.
    """
    others = len(list(shifts(engine.card, engine.cohort))) + (other_figures(engine.card) is not None)
    treated = patients + others * min(ELSEWHERE, patients)
    if engine.kind.name == "regimen":
        treated += min(VERIFIED, patients)
    if remembers:
        return steps * treated
    twins = sum(len(levels) - 1 for _, levels in engine.scenario.groups)
    asked = 1 if len(engine.kind.parts) == 1 else 2  # as onco_gym.fairness.asking does
    return steps * treated + min(FAIRNESS_PATIENTS, patients) * (steps + asked * visits * (1 + twins))


class _Decider:
    """An agent that begins anew before every batch of patients, so that no result depends on those before."""

    def __init__(self, engine: Engine, source: str | Confined) -> None:
        self._engine, self._source = engine, source

    def at(self, seed: int) -> Agent:
        """The agent for patients from ``seed`` on."""
        if isinstance(self._source, str):
            return load_agent(self._engine, self._source, seed)
        self._source.restart()
        return self._source

    @property
    def work(self) -> int | None:
        """Multiplications for a decision, of a policy file."""
        return None if isinstance(self._source, str) else self._source.work

    @property
    def walls(self) -> tuple[str, ...]:
        """What keeps the policy in, of :data:`onco_gym.leaderboard.confinement.WALLS`; none for an agent of this process."""
        return () if isinstance(self._source, str) else self._source.walls


@contextmanager
def _deciding(engine: Engine, source: str | bytes, secret: bool = False) -> Iterator[_Decider]:
    if isinstance(source, str):
        yield _Decider(engine, source)
    else:
        with Confined(engine, source, secret=secret) as policy:
            yield _Decider(engine, policy)


class _Played:
    """Patients, and how the reference agents treat them."""

    def __init__(self, engine: Engine, patients: int) -> None:
        self.engine, self._patients = engine, patients
        self.random, self.guideline = (self.run(_Decider(engine, name)) for name in (RANDOM, GUIDELINE))

    def run(self, decider: _Decider) -> Runs:
        """How an agent treats them."""
        return Runs.joined(
            [
                Runs.of(rollout(self.engine, decider.at(start), min(CHUNK, self._patients - start), start))
                for start in range(0, self._patients, CHUNK)
            ]
        )

    def score(self, runs: Runs, reach: float) -> Interval:
        """The score on these patients; 100 is ``reach`` times as far from random play as the guideline."""
        found = ratio_interval(runs.returns - self.random.returns, self.guideline.returns - self.random.returns)
        return Interval(*(100 / reach * one for one in found))


class _Venue:
    """One environment of a board: its patients, its other populations, and what is the same for all entries."""

    def __init__(self, engine: Engine, secret: bytes | None, patients: int) -> None:
        self.engine = engine
        self._main = _Played(self.engine, patients)
        measured = yardstick(self.engine)
        zero, guideline = (float(runs.returns.mean()) for runs in (self._main.random, self._main.guideline))
        self._reach = measured.reach(zero, guideline) if measured else 1.0
        hundred = zero + self._reach * (guideline - zero)
        self._reference = Reference(PLANNER if measured else GUIDELINE, hundred, zero, 100 / self._reach)
        self._secret = bytes(32) if secret is None else secret  # public patients have public shifts
        self._elsewhere: list[tuple[str, str, _Played]] = []
        self._solved = Solutions()

    def judge(self, decider: _Decider, progress: Progress) -> Judgement:
        """The figures of an agent."""
        name = self.engine.id
        progress(f"treating patients, {name}", 0, 0)
        runs = self._main.run(decider)
        found = outcomes(self.engine, runs)
        figures = {one: found[one] for one in ("qalys", "median_survival", "concordance", "grade3", "carbon_kg")}
        figures["score"] = known(self._main.score(runs, self._reach), len(runs))
        figures["gain"] = mean(runs.returns - self._main.guideline.returns)
        decisions = float(runs.decisions.mean())
        if decider.work is not None:
            figures["computing_ug"] = _computing(decider.work, runs)
        progress(f"asking about twins, {name}", 0, 0)
        unfairness = self._unfairness(decider)
        if unfairness:
            figures["fairness"] = max(unfairness.values(), key=lambda one: one.value)
        populations = self._populations(decider, progress)
        figures["robustness"] = min((one.score for one in populations), key=lambda one: one.value)
        if self.engine.kind.name == "regimen":
            progress(f"searching for better decisions, {name}", 0, 0)
            figures["regret"] = self._regret(decider)
        return Judgement(
            stamp=self.engine.stamp,
            reference=self._reference,
            figures=figures,
            unfairness=unfairness,
            terms=found["terms"],
            subgroups=find_subgroups(self.engine, runs, self._main.guideline),
            populations=populations,
            decisions=decisions,
            returns=runs.returns.astype(np.float32),
            qalys=runs.terms["outcome"].astype(np.float32),
            weeks=runs.weeks.astype(np.float32),
            died=runs.died.astype(np.float32),
        )

    def _unfairness(self, decider: _Decider) -> dict[str, Interval]:
        """Millinats by protected attribute, for the direct effect; nothing for an agent that remembers its patients."""
        agent = decider.at(0)
        if remembers(agent):
            return {}
        report = measure_divergence(self.engine, agent, min(FAIRNESS_PATIENTS, len(self._main.random)), effect="direct")
        nats = {name: found.contrasts["direct"].nats for name, found in report.attributes.items()}
        return {name: Interval(*(1000 * one for one in found)) for name, found in nats.items()}

    def _populations(self, decider: _Decider, progress: Progress) -> list[Population]:
        if not self._elsewhere:
            self._elsewhere = list(self._settle())
        found = []
        for number, (name, about, played) in enumerate(self._elsewhere):
            progress(f"treating other populations, {self.engine.id}", number, len(self._elsewhere))
            runs = played.run(decider)
            score = known(played.score(runs, self._reach), len(runs))
            found.append(Population(name, about, len(runs), score, mean(runs.returns - played.guideline.returns)))
        return found

    def _settle(self) -> Iterator[tuple[str, str, _Played]]:
        """The other populations."""
        card, cohort, few = self.engine.card, self.engine.cohort, min(ELSEWHERE, len(self._main.random))
        for shift in shifts(card, cohort):
            people = season_cohort(card, self._secret, shift.where, shift.do)
            chance = derived_secret(self._secret, f"chance\0{self.engine.id}\0{shift.name}")
            yield shift.name, shift.about, _Played(self.engine.among(people, chance), few)
        other = other_figures(card)
        if other is not None:
            chance = derived_secret(self._secret, f"chance\0{self.engine.id}")
            engine = make_engine(other, kind=self.engine.kind.name).among(cohort, chance)
            about = "other figures for the disease, which fit the published trials about as well"
            yield "other figures", about, _Played(engine, few)

    def _regret(self, decider: _Decider) -> Interval:
        """Quality-adjusted weeks lost per patient, with a 95% interval over patients."""
        patients = min(VERIFIED, len(self._main.random))
        record = record_episodes(self.engine, decider.at(0), patients)
        return mean(weeks_lost(self.engine, record, known=self._solved).astype(np.float64))


def _computing(work: int, runs: Runs) -> Interval:
    """µg CO2e of the decisions on a patient, at the world's mean intensity of electricity (g per kWh)."""
    grams = work * JOULES / JOULES_PER_KWH * float(intensity("WLD").mean())
    return mean(1e6 * grams * runs.decisions.astype(Any))
