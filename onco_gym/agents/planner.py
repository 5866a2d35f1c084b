"""The planner: tries each regimen on simulated look-alikes of the patient and chooses the best.

The look-alikes are a cloud of simulated patients (:mod:`onco_gym.agents.belief`) with the same history as the real one. Every
regimen that can be given now is tried on all of them with the same chance. It is given until progression; then the guideline's
first choices follow to the end of the horizon. The value is the environment's own reward without the fairness term, which does
not belong to a single patient. If no regimen is surely better, the planner does what the guideline says.

The planner plans again when there is something to decide: at the first visit, at progression, when a test result arrives, or when
a regimen can no longer be given. It does not reconsider a line that works at every scan: the estimates are noisy, and with many
chances to leave a line, one would look good by mistake.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.belief import Cloud
from onco_gym.agents.protocol import AgentError
from onco_gym.interfaces.engine import Engine
from onco_gym.knowledge.panel import Hearing
from onco_gym.rewards import blend
from onco_gym.simulator.chance import Weighed, derived
from onco_gym.simulator.state import Journey
from onco_gym.simulator.transition import step


class PlannerAgent:
    """See the module. The agent remembers its patients between visits, so a batch must be played in order.

    Args:
        engine: the environment; its actions must be regimens.
        cloud: simulated patients for each real one.
        tried: how many of them regimens are tried on: first for all regimens, then for the best :data:`FINALISTS`.
        sure: how many standard errors better a regimen must be to replace the guideline's choice.
        seed: the same seed gives the same plans.
    """

    remembers = True

    def __init__(
        self,
        engine: Engine,
        cloud: int = 96,
        tried: tuple[int, int] = (16, 96),
        sure: float = 1.0,
        seed: int = 0,
    ) -> None:
        if engine.kind.name != "regimen":
            raise AgentError(f"the planner needs an environment whose actions are regimens, and {engine.id} is not one")
        self._engine, self._tried, self._sure = engine, tried, sure
        self._cloud = Cloud(engine, cloud, seed)
        self._known: NDArray[np.bool_] | None = None

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[Any]:
        """(n,) regimen indices; see :class:`onco_gym.agents.Agent`."""
        seen = self._cloud.update(observation, mask)
        known = np.asarray(seen.known).T
        learned = (known != self._known).any(1) if self._known is not None and self._known.shape == known.shape else True
        self._known = known
        can = mask[np.arange(len(mask)), np.maximum(seen.treatment, 0)] & (seen.treatment >= 0)
        steady = can & (seen.progressed < 0.5) & (seen.last == seen.treatment) & ~np.asarray(learned)
        return np.where(steady, seen.treatment, self._planned(mask, self._guided(mask), np.flatnonzero(~steady)))

    def _guided(self, mask: NDArray[np.bool_]) -> NDArray[np.int32]:
        """(n,) the guideline's first choice; a drug holiday where it cannot be given."""
        assert self._cloud.journey is not None
        first = np.asarray(_usual_of_first(self._engine, self._cloud.journey, self._cloud.size))
        return np.where(mask[np.arange(len(mask)), first], first, self._engine.scenario.holiday)

    def _planned(self, mask: NDArray[np.bool_], usual: NDArray[Any], which: NDArray[np.intp]) -> NDArray[np.int32]:
        """(n,) the plan's choice for the patients ``which``; the ``usual`` choice (n,) for the others."""
        n = len(mask)
        open_to = np.zeros_like(mask)
        open_to[which] = mask[which] & (mask[which].sum(1, keepdims=True) > 1)  # otherwise there is nothing to decide
        rough = self._values(open_to, self._tried[0]).mean(2)
        rough[np.arange(n), usual] = np.inf  # always among the finalists
        final = np.zeros_like(mask)
        np.put_along_axis(final, np.argsort(-rough, axis=1)[:, :FINALISTS], True, axis=1)
        values = self._values(final & open_to, self._tried[1])
        mean = values.mean(2)
        best, rows = mean.argmax(1), np.arange(n)
        with np.errstate(invalid="ignore"):  # for patients for whom nothing was tried
            gain = values[rows, best] - values[rows, usual]
            error = gain.std(1, ddof=1) / np.sqrt(values.shape[2])
            better = gain.mean(1) > self._sure * error
        return np.where(better, best, usual).astype(np.int32)

    def _values(self, pairs: NDArray[np.bool_], tried: int) -> NDArray[np.float32]:
        """(n, R, tried) the values of the regimens selected by ``pairs`` (n, R); -inf for the others."""
        assert self._cloud.journey is not None
        values = np.full((*pairs.shape, tried), -np.inf, np.float32)
        patient, regimen = np.nonzero(pairs)
        size, at_once = self._cloud.size, LANES // tried
        picked = np.linspace(0, size - 1, tried).astype(np.int32)
        for start in range(0, len(patient), at_once):
            some = np.resize(np.arange(start, min(start + at_once, len(patient))), at_once)  # one shape, one compilation
            rows = (patient[some, None] * size + picked).astype(np.int32).reshape(-1)
            first = np.repeat(regimen[some], tried).astype(np.int32)
            found = np.asarray(_tried(self._engine, self._cloud.journey, rows, first)).reshape(at_once, tried)
            values[patient[some], regimen[some]] = found
        return values


FINALISTS = 4
"""Regimens that are tried on more patients, including the guideline's choice."""
LANES = 2048
"""Journeys simulated at once."""


def usual(engine: Engine, journey: Journey) -> tuple[jax.Array, Hearing]:
    """The guideline's first choice, and the hearing. A line that ended without progression is followed by watching."""
    state, hearing = journey.state, engine.hear(journey)
    over = (state.line > 0.5) & (state.progressed < 0.5) & (hearing.first != state.treatment)
    return jnp.where(over, engine.scenario.holiday, hearing.first), hearing


@functools.partial(jax.jit, static_argnums=(0, 2))
def _usual_of_first(engine: Engine, journey: Journey, size: int) -> jax.Array:
    """(n,) the guideline's first choice for the first member of each cloud. Members do not differ in what is known."""
    return usual(engine, jax.tree.map(lambda x: x[..., ::size], journey))[0]


class _Trial(NamedTuple):
    """Regimens tried on journeys."""

    journey: Journey
    on: jax.Array  # (n,) bool: still on the regimen being tried
    value: jax.Array  # (n,)


@functools.partial(jax.jit, static_argnums=0)
def _tried(engine: Engine, journey: Journey, rows: jax.Array, first: jax.Array) -> jax.Array:
    """(n,) the value of the regimens ``first`` (n,) for the journeys ``rows`` (n,), followed by the guideline."""
    scenario, params = engine.scenario, engine.params
    one = jax.tree.map(lambda x: jnp.take(x, rows, axis=-1), journey)
    # The same chance for every regimen, but not the chance that the cloud has already lived through.
    one = one._replace(key=derived(one.key, jnp.uint32(0xA511E9B3)))

    def cycle(trial: _Trial) -> _Trial:
        journey = trial.journey
        guided, hearing = usual(engine, journey)
        after, events = step(scenario, params, journey, jnp.where(trial.on, first, guided), draw=Weighed)
        gained = blend(engine.weights, engine.personal(hearing, journey, after, events)[0])
        gained = jnp.where(journey.state.cycle < engine.horizon, gained, 0.0)
        on = trial.on & ((first == scenario.supportive) | ((after.state.progressed < 0.5) & (first != scenario.holiday)))
        return _Trial(after, on, trial.value + gained)

    def goes_on(trial: _Trial) -> jax.Array:
        state = trial.journey.state
        return jnp.any((state.cycle < engine.horizon) & (state.alive > 0.02))

    start = _Trial(one, jnp.ones(first.shape, bool), jnp.zeros(first.shape))
    return jax.lax.while_loop(goes_on, cycle, start).value
