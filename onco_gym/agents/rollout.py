"""Whole episodes of an agent, one per patient."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.protocol import Agent, AgentError
from onco_gym.interfaces.engine import Engine, Outcome, Seat, stream_of
from onco_gym.rewards import TERMS
from onco_gym.simulator.state import Journey

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Episodes:
    """One finished episode per patient. n patients, H the longest episode in cycles.

    Attributes:
        weeks: (n,) weeks lived, to the end of follow-up at most.
        died: (n,) whether the patient died within follow-up.
        returns: (n,) total reward.
        terms: name to (n,) total of each reward term.
        actions: (H, n) regimen chosen, -1 after the end.
        given: (H, n) regimen given, -1 after the end.
        observations: (H, n, F) what the agent saw, if kept.
        progression_weeks: (n,) weeks to first progression or death, whichever came first; end of follow-up otherwise.
        progressed: (n,) whether either happened.
        best_change: (n,) deepest change of the sum of diameters in the first line, as a share.
        severe: (n,) whether a grade 3+ event happened.
    """

    weeks: Floats
    died: NDArray[np.bool_]
    returns: Floats
    terms: dict[str, Floats]
    actions: NDArray[np.int32]
    given: NDArray[np.int32]
    observations: Floats | None
    progression_weeks: Floats
    progressed: NDArray[np.bool_]
    best_change: Floats
    severe: NDArray[np.bool_]


def rollout(
    engine: Engine,
    agent: Agent,
    n: int,
    seed: int = 0,
    keep_observations: bool = False,
    on_cycle: Callable[[int, int], None] | None = None,
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
    """
    if n < 1:
        raise AgentError(f"at least one patient is needed, not {n}")
    seeds = np.uint64(seed % 2**64) + np.arange(n, dtype=np.uint64)
    journey, observation, mask = engine.admit(Seat(stream_of(seeds), np.zeros(n, np.uint32)))
    cycle_weeks = engine.scenario.cycle_weeks
    kept: list[Floats] = []
    actions: list[NDArray[np.int32]] = []
    given: list[NDArray[np.int32]] = []
    terms = np.zeros((len(TERMS), n), np.float32)
    returns, weeks = np.zeros(n, np.float32), np.zeros(n, np.float32)
    progression = np.full(n, np.inf, np.float32)
    best, severe = np.zeros(n, np.float32), np.zeros(n, bool)
    under_way, died = np.ones(n, bool), np.zeros(n, bool)
    for cycle in range(engine.horizon):
        seen, allowed = np.asarray(observation), np.asarray(mask)
        choice = _checked(agent.act(seen, allowed), n, len(engine.scenario.regimens))
        journey, observation, mask, outcome, extra = _cycle(engine, journey, choice)
        if keep_observations:
            kept.append(seen)
        actions.append(np.where(under_way, choice, -1))
        given.append(np.where(under_way, np.asarray(outcome.given), -1))
        lived, progressed, change, line, harm = np.asarray(extra)
        terms += np.where(under_way, np.asarray(outcome.terms), 0)
        returns += np.where(under_way, np.asarray(outcome.reward), 0)
        weeks += np.where(under_way, lived * cycle_weeks, 0)
        now = np.asarray(outcome.terminated)
        event = under_way & ((progressed > 0.5) | now) & np.isinf(progression)
        progression[event] = np.where(now, weeks, (cycle + 1) * cycle_weeks)[event]
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
        actions=np.array(actions, np.int32),
        given=np.array(given, np.int32),
        observations=np.array(kept) if keep_observations else None,
        progression_weeks=np.minimum(progression, weeks),
        progressed=np.isfinite(progression),
        best_change=best,
        severe=severe,
    )


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _cycle(engine: Engine, journey: Journey, action: jax.Array) -> tuple[Journey, jax.Array, jax.Array, Outcome, jax.Array]:
    """A cycle, and (5, n): share lived, progressed, change from baseline, line, grade 3+ event."""
    after, events, outcome = engine.advance(journey, action)
    observation, mask = engine.look(after)
    state = after.state
    extra = jnp.stack([events.lived, state.progressed, state.diameter / state.baseline - 1, state.line, events.severe])
    return after, observation.T, mask.T, outcome, extra


def _checked(actions: NDArray[np.int64], n: int, regimens: int) -> NDArray[np.int32]:
    values = np.asarray(actions)
    if values.shape != (n,) or values.dtype.kind not in "iu" or values.min() < 0 or values.max() >= regimens:
        raise AgentError(f"the agent answered {values.dtype} of shape {values.shape}, expected ({n},) regimens 0..{regimens - 1}")
    return values.astype(np.int32)
