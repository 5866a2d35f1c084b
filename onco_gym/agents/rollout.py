"""Whole episodes of an agent, one per patient."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from onco_gym.agents.protocol import Agent, AgentError
from onco_gym.interfaces.engine import Engine, Outcome, Seat, stream_of
from onco_gym.interfaces.kinds import Encounter
from onco_gym.rewards import TERMS, Divergence, Ledger, divergence

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Steps:
    """Every step of a rollout, as a record of transitions needs them. What stands after an episode's end means nothing.

    Attributes:
        lengths: (n,) steps of each episode.
        observations: (H + 1, n, F) what was seen before each step, and after the last.
        masks: (H + 1, n, mask size) the same of masks.
        rewards: (H, n).
        terms: (H, terms, n) each reward term.
        probabilities: (H, n, R) with which the agent chose, if it says so.
    """

    lengths: NDArray[np.int64]
    observations: Floats
    masks: NDArray[np.bool_]
    rewards: Floats
    terms: Floats
    probabilities: Floats | None


@dataclass(frozen=True)
class Episodes:
    """One finished episode per patient. n patients, H the longest episode in steps.

    Attributes:
        weeks: (n,) weeks lived, to the end of follow-up at most.
        died: (n,) whether the patient died within follow-up.
        returns: (n,) total reward.
        terms: name to (n,) total of each reward term.
        actions: (H, n, ...) what was chosen, -1 after the end.
        given: (H, n) regimen given, -1 after the end.
        verdicts: (H, n) what the panel says of it, as an index into VERDICTS; -1 after the end.
        carbon_kg: (n,) kg CO2e.
        cost_usd: (n,) of tests that were ordered.
        observations: (H, n, F) what the agent saw, if kept.
        progression_weeks: (n,) weeks to first progression (to the visit after it) or death, whichever came first; end of
            follow-up otherwise.
        progressed: (n,) whether either happened.
        best_change: (n,) deepest change of the sum of diameters in the first line, as a share.
        severe: (n,) whether a grade 3+ event happened.
        fairness: divergence between groups by protected attribute, from the ledger of all decisions.
        steps: every step, if kept.
    """

    weeks: Floats
    died: NDArray[np.bool_]
    returns: Floats
    terms: dict[str, Floats]
    actions: NDArray[Any]
    given: NDArray[np.int32]
    verdicts: NDArray[np.int32]
    carbon_kg: Floats
    cost_usd: Floats
    observations: Floats | None
    progression_weeks: Floats
    progressed: NDArray[np.bool_]
    best_change: Floats
    severe: NDArray[np.bool_]
    fairness: dict[str, Divergence]
    steps: Steps | None = None


def rollout(
    engine: Engine,
    agent: Agent,
    n: int,
    seed: int = 0,
    keep_observations: bool = False,
    on_cycle: Callable[[int, int], None] | None = None,
    keep_steps: bool = False,
) -> Episodes:
    """Run ``agent`` on ``n`` patients until death or the horizon.

    Patient ``i`` is the one a single environment admits under ``reset(seed=seed + i)``, with the same chance.

    Args:
        engine: the compiled environment; ``env.unwrapped.engine``, or :func:`onco_gym.interfaces.engine.make_engine`.
        agent: see :class:`onco_gym.agents.Agent`.
        n: how many patients.
        seed: same seed, same patients, same chance.
        keep_observations: also keep what the agent saw.
        on_cycle: called with (cycle, patients still under way) after every cycle, for progress bars.
        keep_steps: also keep what a record of transitions needs, in ``steps``.
    """
    if n < 1:
        raise AgentError(f"at least one patient is needed, not {n}")
    seeds = np.uint64(seed % 2**64) + np.arange(n, dtype=np.uint64)
    encounter, observation, mask, _ = engine.admit(Seat(stream_of(seeds), np.zeros(n, np.uint32)))
    return play(engine, agent, (encounter, observation, mask), keep_observations, on_cycle, keep_steps)


def play(
    engine: Engine,
    agent: Agent,
    visit: tuple[Encounter, jax.Array, jax.Array],
    keep_observations: bool = False,
    on_cycle: Callable[[int, int], None] | None = None,
    keep_steps: bool = False,
) -> Episodes:
    """As :func:`rollout`, from a first ``visit`` of any patients on, made by ``engine.receive(patient, key)``; it is used up."""
    encounter, observation, mask = visit
    n = len(mask)
    ledger = engine.ledger()
    cycle_weeks = engine.scenario.cycle_weeks
    kept: list[Floats] = []
    steps: list[tuple[Any, ...]] = []
    chances = getattr(agent, "probabilities", None) if keep_steps and engine.kind_name == "regimen" else None
    actions: list[NDArray[Any]] = []
    given: list[NDArray[np.int32]] = []
    verdicts: list[NDArray[np.int32]] = []
    terms = np.zeros((len(TERMS), n), np.float32)
    returns, weeks, cost = np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(n, np.float32)
    progression = np.full(n, np.inf, np.float32)
    best, severe = np.zeros(n, np.float32), np.zeros(n, bool)
    under_way, died = np.ones(n, bool), np.zeros(n, bool)
    # Where the episode has ended nothing is left to decide, which spares an agent that thinks long.
    plain, holiday = engine.kind_name == "regimen", engine.scenario.holiday
    nothing = np.arange(len(engine.scenario.regimens)) == holiday if plain else None
    for cycle in range(engine.horizon):
        seen, allowed = np.asarray(observation), np.asarray(mask)
        open_to = np.where(under_way[:, None], allowed, nothing) if nothing is not None else allowed
        choice = _checked(engine, agent.act(seen, open_to), n)
        encounter, ledger, observation, mask, outcome, extra = _step(engine, encounter, ledger, choice)
        if keep_observations:
            kept.append(seen)
        if keep_steps:
            likely = None if chances is None else np.asarray(chances(seen, allowed), np.float32)
            steps.append((seen, allowed, np.asarray(outcome.reward), np.asarray(outcome.terms), likely))
        actions.append(np.where(under_way.reshape(-1, *[1] * (choice.ndim - 1)), choice, -1))
        given.append(np.where(under_way, np.asarray(outcome.given), -1))
        verdicts.append(np.where(under_way, np.asarray(outcome.verdict.code), -1))
        time, progressed, change, line = np.asarray(extra)
        lived, harm = np.asarray(outcome.lived), np.asarray(outcome.severe)
        cost += np.where(under_way, np.asarray(outcome.cost), 0)
        terms += np.where(under_way, np.asarray(outcome.terms), 0)
        returns += np.where(under_way, np.asarray(outcome.reward), 0)
        weeks += np.where(under_way, lived * cycle_weeks, 0)
        now = np.asarray(outcome.terminated)
        event = under_way & ((progressed > 0.5) | now) & np.isinf(progression)
        progression[event] = np.where(now, weeks, time * cycle_weeks)[event]
        best = np.where(under_way & ~now & (line <= 1), np.minimum(best, change), best)
        severe |= under_way & (harm > 0.5)
        died |= under_way & now
        under_way &= ~(now | np.asarray(outcome.truncated))
        if on_cycle is not None:
            on_cycle(cycle + 1, int(under_way.sum()))
        if not under_way.any():
            break
    return Episodes(
        weeks=weeks,
        died=died,
        returns=returns,
        terms=dict(zip(TERMS, terms, strict=True)),
        actions=np.array(actions),
        given=np.array(given, np.int32),
        verdicts=np.array(verdicts, np.int32),
        carbon_kg=-1000 * terms[list(TERMS).index("carbon")],
        cost_usd=cost,
        observations=np.array(kept) if keep_observations else None,
        progression_weeks=np.minimum(progression, weeks),
        progressed=np.isfinite(progression),
        best_change=best,
        severe=severe,
        fairness=divergence(engine.scenario, ledger),
        steps=_steps(steps, np.asarray(observation), np.asarray(mask), np.array(given)) if keep_steps else None,
    )


def _steps(rows: list[tuple[Any, ...]], observation: Floats, mask: NDArray[np.bool_], given: NDArray[np.int32]) -> Steps:
    seen, allowed, rewards, terms, likely = zip(*rows, strict=True)
    return Steps(
        lengths=(given >= 0).sum(0),
        observations=np.stack([*seen, observation]),
        masks=np.stack([*allowed, mask]),
        rewards=np.stack(rewards),
        terms=np.stack(terms),
        probabilities=None if likely[0] is None else np.stack(likely),
    )


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def _step(
    engine: Engine, encounter: Encounter, ledger: Ledger, action: jax.Array
) -> tuple[Encounter, Ledger, jax.Array, jax.Array, Outcome, jax.Array]:
    """A step, and (4, n): cycles so far, progressed, change from baseline, line."""
    after, ledger, outcome = engine.advance(encounter, ledger, action)
    observation, mask = engine.look(after)
    state = after.journey.state
    time = state.cycle.astype(jnp.float32)
    extra = jnp.stack([time, state.progressed, state.diameter / state.baseline - 1, state.line])
    return after, ledger, observation.T, mask.T, outcome, extra


def _checked(engine: Engine, actions: Any, n: int) -> NDArray[Any]:
    try:
        return engine.kind.checked(actions, n)
    except InvalidAction as error:
        raise AgentError(f"the agent answered wrongly: {error}") from None
