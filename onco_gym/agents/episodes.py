"""Whole episodes of an agent, one per patient. An episode's origin, actions and stamp are enough to cite and replay it."""

import collections
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from onco_gym.agents.protocol import Agent, AgentError, remembers
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine, batch_size
from onco_gym.interfaces.kinds import Encounter
from onco_gym.interfaces.origins import Origin
from onco_gym.interfaces.stamp import Stamp
from onco_gym.rewards import TERMS, GroupDivergence, group_divergence

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Steps:
    """Every step of a rollout, for offline learning. Entries past an episode's end are undefined.

    Attributes:
        lengths: (n,) steps of each episode.
        observations: (H + 1, n, F) observations before each step and after the last.
        masks: (H + 1, n, mask size) masks at the same times.
        rewards: (H, n).
        terms: (H, terms, n) each reward term.
        carbon_kg: (H, n) kg CO2e.
        probabilities: (H, n, R) the agent's probabilities, if it reports them and remembers nothing.
    """

    lengths: NDArray[np.int64]
    observations: Floats
    masks: NDArray[np.bool_]
    rewards: Floats
    terms: Floats
    carbon_kg: Floats
    probabilities: Floats | None


@dataclass(frozen=True, eq=False)
class Episodes:
    """One finished episode per patient. n patients, H the longest episode in steps.

    Attributes:
        stamp: what they were made with.
        origin: the patients and their chance. With these and ``actions``, :func:`onco_gym.replay` replays the episodes.
        weeks: (n,) weeks lived, at most to the end of follow-up.
        died: (n,) whether the patient died within follow-up.
        returns: (n,) total reward.
        terms: name to (n,) total of each reward term.
        actions: (H, n, ...) what was chosen, -1 after the end.
        given: (H, n) regimen given, -1 after the end.
        verdicts: (H, n) the panel's verdict on it, as an index into VERDICTS; -1 after the end.
        cycles: (H, n) how many cycles it was given for, 0 after the end.
        carbon_kg: (n,) kg CO2e.
        cost_usd: (n,) cost of the tests ordered.
        observations: (H, n, F) what the agent saw, if kept.
        progression_weeks: (n,) weeks to first progression (to the visit after it) or death, whichever came first; otherwise to
            the end of follow-up.
        progressed: (n,) whether either happened.
        best_change: (n,) deepest change of the sum of diameters in the first line, as a share.
        severe: (n,) whether a grade 3+ event happened.
        fairness: divergence between groups by protected attribute, from the tally of all decisions.
        steps: every step, if kept.
    """

    stamp: Stamp
    origin: Origin
    weeks: Floats
    died: NDArray[np.bool_]
    returns: Floats
    terms: dict[str, Floats]
    actions: NDArray[Any]
    given: NDArray[np.int32]
    verdicts: NDArray[np.int32]
    cycles: NDArray[np.int32]
    carbon_kg: Floats
    cost_usd: Floats
    observations: Floats | None
    progression_weeks: Floats
    progressed: NDArray[np.bool_]
    best_change: Floats
    severe: NDArray[np.bool_]
    fairness: dict[str, GroupDivergence]
    steps: Steps | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.weeks)

    def of(self, i: int) -> tuple[int, str, NDArray[Any]]:
        """Row, key and actions of episode ``i``, as :func:`onco_gym.journeys.from_actions` takes them."""
        return *self.origin.of(i), self.actions[self.given[:, i] >= 0, i]

    def by_cycle(self) -> NDArray[np.int32]:
        """(C, n) the regimen given in every cycle, -1 after the end."""
        ends = self.cycles.cumsum(0)
        found = np.full((int(ends[-1].max()), len(self)), -1, np.int32)
        for i in range(len(self)):
            found[: ends[-1, i], i] = np.repeat(self.given[:, i], self.cycles[:, i])
        return found

    def __repr__(self) -> str:
        return f"Episodes({self.stamp.environment}, {len(self):,} patients, mean return {self.returns.mean():.3f})"


def rollout(
    engine: Engine,
    agent: Agent,
    n: int,
    seed: int = 0,
    progress: Progress = silent,
    keep_observations: bool = False,
    keep_steps: bool = False,
) -> Episodes:
    """Run ``agent`` on ``n`` patients until death or the horizon.

    Patient ``i`` is the one that a single environment admits under ``reset(seed=seed + i)``, with the same chance.

    Args:
        engine: the compiled environment; :func:`onco_gym.make_engine`, or ``env.unwrapped.engine``.
        agent: see :class:`onco_gym.agents.Agent`.
        n: how many patients.
        seed: the same seed gives the same patients and the same chance.
        progress: called after every step.
        keep_observations: also keep what the agent saw.
        keep_steps: also keep every transition, in ``steps``.
    """
    return play(engine, agent, engine.origins(n, seed), progress, keep_observations, keep_steps)


def play(
    engine: Engine,
    agent: Agent,
    origin: Origin,
    progress: Progress = silent,
    keep_observations: bool = False,
    keep_steps: bool = False,
) -> Episodes:
    """Like :func:`rollout`, for any patients of the engine's cohort with any chance."""
    n, plain, cycle_weeks = len(origin.row), engine.kind.name == "regimen", engine.scenario.cycle_weeks
    encounter, observation, mask = _admitted(engine, origin)
    tally = engine.tally()
    chances = getattr(agent, "probabilities", None) if keep_steps and plain and not remembers(agent) else None
    kept: dict[str, list[NDArray[Any]]] = collections.defaultdict(list)
    totals: dict[str, Any] = {name: np.zeros(n, np.float32) for name in ("returns", "weeks", "carbon_kg", "cost_usd")}
    terms = np.zeros((len(TERMS), n), np.float32)
    progression = np.full(n, np.inf, np.float32)
    best, severe = np.zeros(n, np.float32), np.zeros(n, bool)
    under_way, died = np.ones(n, bool), np.zeros(n, bool)

    def ours(values: jax.Array) -> NDArray[Any]:
        return np.asarray(values)[..., :n]

    # After an episode's end there is nothing to decide. This saves time for slow agents.
    nothing = np.arange(len(engine.scenario.regimens)) == engine.scenario.holiday if plain else None
    for number in range(engine.horizon):
        seen, allowed = np.asarray(observation)[:n], np.asarray(mask)[:n]
        open_to = np.where(under_way[:, None], allowed, nothing) if nothing is not None else allowed
        choice = _checked(engine, agent.act(seen, open_to), n)
        filled = np.resize(choice, (len(observation), *choice.shape[1:]))
        encounter, tally, observation, mask, outcome = engine.step(encounter, tally, filled)
        if keep_observations or keep_steps:
            kept["observations"].append(seen)
        if keep_steps:
            kept["masks"].append(allowed)
            for name in ("reward", "terms", "carbon_kg"):
                kept[name].append(ours(getattr(outcome, name)))
        if chances is not None:
            kept["probabilities"].append(np.asarray(chances(seen, allowed), np.float32))
        kept["actions"].append(np.where(under_way.reshape(-1, *[1] * (choice.ndim - 1)), choice, -1))
        for name, values, after in (
            ("given", outcome.given, -1),
            ("verdicts", outcome.verdict.code, -1),
            ("cycles", outcome.cycles, 0),
        ):
            kept[name].append(np.where(under_way, ours(values), after))
        gained = {"returns": outcome.reward, "carbon_kg": outcome.carbon_kg, "cost_usd": outcome.cost}
        for name, values in gained.items():
            totals[name] += np.where(under_way, ours(values), 0)
        terms += np.where(under_way, ours(outcome.terms), 0)
        totals["weeks"] += np.where(under_way, ours(outcome.lived) * cycle_weeks, 0)
        state, now = encounter.journey.state, ours(outcome.terminated)
        event = under_way & ((ours(state.progressed) > 0.5) | now) & np.isinf(progression)
        progression[event] = np.where(now, totals["weeks"], ours(state.cycle) * cycle_weeks)[event]
        best = np.where(under_way & ~now & (ours(state.line) <= 1), np.minimum(best, ours(outcome.change)), best)
        severe |= under_way & (ours(outcome.severe) > 0.5)
        died |= under_way & now
        under_way &= ~(now | ours(outcome.truncated))
        progress("steps", number + 1, engine.horizon)
        if not under_way.any():
            break
    whole: dict[str, Any] = {name: np.array(kept[name], np.int32) for name in ("given", "verdicts", "cycles")}
    steps = None
    if keep_steps:
        steps = Steps(
            lengths=(whole["given"] >= 0).sum(0),
            observations=np.stack([*kept["observations"], np.asarray(observation)[:n]]),
            masks=np.stack([*kept["masks"], np.asarray(mask)[:n]]),
            rewards=np.stack(kept["reward"]),
            terms=np.stack(kept["terms"]),
            carbon_kg=np.stack(kept["carbon_kg"]),
            probabilities=None if chances is None else np.stack(kept["probabilities"]),
        )
    return Episodes(
        stamp=engine.stamp,
        origin=Origin(np.asarray(origin.row, np.int32), np.asarray(origin.key, np.uint32)),
        **totals,
        **whole,
        died=died,
        terms=dict(zip(TERMS, terms, strict=True)),
        actions=np.array(kept["actions"]),
        observations=np.array(kept["observations"]) if keep_observations else None,
        progression_weeks=np.minimum(progression, totals["weeks"]),
        progressed=np.isfinite(progression),
        best_change=best,
        severe=severe,
        fairness=group_divergence(engine.scenario, tally),
        steps=steps,
    )


def _admitted(engine: Engine, origin: Origin) -> tuple[Encounter, jax.Array, jax.Array]:
    """The first visit of n patients, in a batch of a compiled size. The patients who fill it up are dead and count nowhere."""
    n = len(origin.row)
    everybody = np.resize(np.arange(n), batch_size(n))
    encounter, observation, mask = engine.receive(Origin(*(np.asarray(part) for part in origin)).take(everybody))
    alive = np.array(encounter.journey.state.alive)
    alive[n:] = 0
    state = encounter.journey.state._replace(alive=jnp.asarray(alive))
    return encounter._replace(journey=encounter.journey._replace(state=state)), observation, mask


def _checked(engine: Engine, actions: Any, n: int) -> NDArray[Any]:
    try:
        return engine.kind.checked(actions, n)
    except InvalidAction as error:
        raise AgentError(f"the agent gave an invalid action: {error}") from None
