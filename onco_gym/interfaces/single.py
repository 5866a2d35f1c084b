"""The Gymnasium environment: one patient, one regimen a cycle."""

import operator
import os
from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenario import Field
from onco_gym.files import replacing
from onco_gym.interfaces.engine import Engine, Seat, make_engine, stream_of
from onco_gym.interfaces.packing import Layout
from onco_gym.interfaces.render import Snapshot, chart, picture, png, show
from onco_gym.patients import Cohort
from onco_gym.rewards import TERMS
from onco_gym.simulator.admit import admit
from onco_gym.simulator.state import Journey

Observation = NDArray[np.float32]


class OncologyEnv(gym.Env[Observation, np.int64]):
    """A patient with cancer, treated cycle by cycle.

    Observation: ``Box(0, 1)`` of named numbers; :attr:`observation_fields` gives name, unit and range of each.
    Action: ``Discrete``, a regimen; :attr:`action_names` names them. ``info["action_mask"]`` says which can be given;
    where another is chosen, the patient gets a drug holiday and ``info["given"]`` says so.
    Reward: quality-adjusted life years gained in the cycle, by term in ``info["reward_terms"]``.
    An episode terminates with death and is truncated at the horizon.

    Args:
        card: the name of a shipped card, the path of a card file, or a loaded card.
        cohort: patients to draw from, or the path of a cohort file; by default drawn from the card.
        weights: reward weights by term; by default the card's.
        horizon: cycles until truncation; by default the card's.
        render_mode: ``"ansi"`` (a patient chart), ``"rgb_array"`` or ``"human"`` (a picture of the journey).
    """

    metadata = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 2}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        card: str | os.PathLike[str] | Card,
        cohort: Cohort | str | os.PathLike[str] | None = None,
        weights: Mapping[str, float] | None = None,
        horizon: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode is {render_mode!r}, expected one of {self.metadata['render_modes']}")
        self.render_mode = render_mode
        self.engine = make_engine(card, cohort, weights, horizon)
        scenario = self.engine.scenario
        self.observation_fields: tuple[Field, ...] = scenario.fields
        self.action_names: tuple[str, ...] = scenario.regimens
        self.observation_space = spaces.Box(0.0, 1.0, (len(scenario.fields),), np.float32)
        self.action_space = spaces.Discrete(len(scenario.regimens))
        self._compiled = _compiled(self.engine)
        self._stream: np.uint32 | None = None
        self._episode = 0
        self._flat: jax.Array | None = None
        self._ended = True
        self._history: list[NDArray[np.float32]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Admit the next patient.

        Args:
            seed: up to 64 bits. Same seed, same sequence of patients, in every interface.
            options: ``{"patient": row}`` admits that row of the cohort; ``{"key": k}`` sets the source of its chance.
        """
        wide = None if seed is None else seed % 2**64
        super().reset(seed=wide)
        if wide is not None:
            self._stream, self._episode = stream_of(np.array([wide], np.uint64))[0], 0
        elif self._stream is None:
            self._stream, self._episode = np.uint32(self.np_random.integers(2**32)), 0
        else:
            self._episode += 1
        seat = Seat(np.array([self._stream], np.uint32), np.array([self._episode], np.uint32))
        row, key = self._options(options or {}, *self.engine.draw(seat))
        self._flat = self._compiled.admit(row, key)
        values = np.asarray(self._flat)
        self._ended = False
        if self.render_mode is not None:
            self._history = [values]
        if self.render_mode == "human":
            self.render()
        return self._observation(values), self._info(values)

    def step(self, action: np.int64 | int) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Give regimen ``action`` for one cycle."""
        if self._ended or self._flat is None:
            raise gym.error.ResetNeeded("the episode has ended or not begun: call reset() before step()")
        try:
            index = action.__index__()
        except (AttributeError, TypeError):
            index = -1
        if not 0 <= index < len(self.action_names):
            raise gym.error.InvalidAction(
                f"action {action!r} is not a regimen: expected a whole number 0..{len(self.action_names) - 1}"
            )
        self._flat = self._compiled.step(self._flat, index)
        values = np.asarray(self._flat)
        reward, terminated, truncated = values[self._compiled.head : self._compiled.head + 3].tolist()
        self._ended = bool(terminated or truncated)
        if self.render_mode is not None:
            self._history.append(values)
        if self.render_mode == "human":
            self.render()
        return self._observation(values), reward, terminated > 0.5, truncated > 0.5, self._info(values)

    def action_masks(self) -> NDArray[np.bool_]:
        """(R,) which regimens can be given now; the name is sb3-contrib's."""
        if self._flat is None:
            raise gym.error.ResetNeeded("call reset() before action_masks()")
        return self._mask(np.asarray(self._flat))

    @property
    def journey(self) -> Journey:
        """The patient and state now, as arrays with a batch of one; a wizard's view that includes the hidden tumour."""
        if self._flat is None:
            raise gym.error.ResetNeeded("call reset() before journey")
        return self._compiled.layout.read(np.asarray(self._flat)[: self._compiled.head])

    @property
    def history(self) -> list[Snapshot]:
        """The patient at the first visit and after every cycle, hidden parts included; kept only with a render mode."""
        return [self._snapshot(values) for values in self._history]

    @property
    def patient(self) -> dict[str, Any]:
        """The patient's variables in readable values, hidden ones included."""
        if self._flat is None:
            raise gym.error.ResetNeeded("call reset() before patient")
        return self.engine.cohort.row(self.engine.card, self._info(np.asarray(self._flat))["patient"])

    @property
    def ended(self) -> bool:
        """Whether the episode is over, or has not begun."""
        return self._ended

    def render(self) -> Any:
        """The chart (``ansi``), the picture as an array (``rgb_array``), or the picture on screen (``human``)."""
        if self.render_mode is None:
            gym.logger.warn("render() was called without a render_mode; make the environment with one")
            return None
        if not self._history:
            raise gym.error.ResetNeeded("call reset() before render()")
        if self.render_mode == "ansi":
            return chart(self.engine.card, self.engine.scenario, self.history, last=None if self._ended else 12)
        frame = picture(self.engine.card, self.engine.scenario, self.history)
        if self.render_mode == "human":
            show(frame, f"onco_gym {self.engine.card.id}")
            return None
        return frame

    def save_picture(self, path: str | os.PathLike[str]) -> None:
        """Write the picture of the journey so far as a PNG file; the environment needs a render mode."""
        if not self._history:
            raise gym.error.ResetNeeded("make the environment with a render_mode and call reset() before save_picture()")
        with replacing(path) as temporary:
            temporary.write_bytes(png(self.engine.card, self.engine.scenario, self.history))

    def _options(self, options: dict[str, Any], drawn_row: NDArray[Any], drawn_key: NDArray[Any]) -> tuple[int, int]:
        unknown = set(options) - {"patient", "key"}
        if unknown:
            raise ValueError(f"reset options {sorted(unknown)} are unknown, expected 'patient' or 'key'")
        row, key = options.get("patient", drawn_row[0]), options.get("key", drawn_key[0])
        if not 0 <= row < len(self.engine.cohort):
            raise ValueError(f"options['patient'] is {row!r}, expected 0..{len(self.engine.cohort) - 1}")
        if not 0 <= key < 2**32:
            raise ValueError(f"options['key'] is {key!r}, expected 0..{2**32 - 1}")
        return operator.index(row), operator.index(key)

    def _observation(self, values: NDArray[np.float32]) -> Observation:
        return values[self._compiled.view : self._compiled.view + len(self.observation_fields)].copy()

    def _mask(self, values: NDArray[np.float32]) -> NDArray[np.bool_]:
        return values[self._compiled.mask :] > 0.5

    def _info(self, values: NDArray[np.float32]) -> dict[str, Any]:
        given, row, *terms = values[self._compiled.head + 3 : self._compiled.view].tolist()
        return {
            "action_mask": self._mask(values),
            "reward_terms": dict(zip(TERMS, terms, strict=True)),
            "given": self.action_names[int(given)] if given >= 0 else None,
            "patient": int(row),
        }

    def _snapshot(self, values: NDArray[np.float32]) -> Snapshot:
        return Snapshot(
            self._compiled.layout.read(values[: self._compiled.head]),
            self._observation(values),
            float(values[self._compiled.head]),
        )


class _Compiled:
    """The engine for one patient, packed: [journey | reward, terminated, truncated, given, row, terms | view | mask].

    The work stands in a loop of one turn: XLA makes one kernel of a small loop, and of anything else one kernel per
    operation, which takes several times as long for a single patient.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pool = np.asarray(engine.pool)
        one = jax.ShapeDtypeStruct((1,), np.uint32)
        journey, _, _ = jax.eval_shape(engine.admit, Seat(one, one))
        self.layout: Layout[Journey] = Layout(journey)
        self.head = self.layout.size
        self.view = self.head + 5 + len(TERMS)
        self.mask = self.view + len(engine.scenario.fields)
        self.size = self.mask + len(engine.scenario.regimens)
        self._admit_loop = jax.jit(self._admit)
        self._step_loop = jax.jit(self._step)
        self._once = jnp.int32(1)
        self._actions = [jnp.int32(action) for action in range(len(engine.scenario.regimens))]

    def admit(self, row: int, key: int) -> jax.Array:
        """(size,) the first visit of the pool's patient ``row`` with chance ``key``."""
        ticket = np.empty(self._pool.shape[1] + 2, np.float32)
        ticket[:-2] = self._pool[row]
        ticket[-2] = row
        ticket[-1:].view(np.uint32)[0] = key
        return self._admit_loop(ticket, self._once)

    def step(self, flat: jax.Array, action: int) -> jax.Array:
        """(size,) a cycle later."""
        return self._step_loop(flat, self._actions[action], self._once)

    def _admit(self, ticket: jax.Array, turns: jax.Array) -> jax.Array:
        def visit(_: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            _, ticket = carry
            key = jax.lax.bitcast_convert_type(ticket[-1:], jnp.uint32)
            journey = admit(self._engine.scenario, self._engine.params, self._engine.patient(ticket[:-2, None]), key)
            head = jnp.concatenate([jnp.zeros(3), -jnp.ones(1), ticket[-2:-1], jnp.zeros(len(TERMS))])
            return self._join(journey, head), -ticket  # changed, as in _step

        return jax.lax.fori_loop(0, turns, visit, (jnp.zeros(self.size), ticket))[0]

    def _step(self, flat: jax.Array, action: jax.Array, turns: jax.Array) -> jax.Array:
        def cycle(turn: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            del turn
            flat, action = carry
            after, _, outcome = self._engine.advance(self.layout.unpack(flat[: self.head]), action[None])
            values = [outcome.reward, outcome.terminated, outcome.truncated, outcome.given, flat[self.head + 4 : self.head + 5]]
            head = jnp.concatenate([*(value.astype(jnp.float32) for value in values), outcome.terms[:, 0]])
            return self._join(after, head), action + 1  # changed, lest XLA moves what depends on it out of the loop

        return jax.lax.fori_loop(0, turns, cycle, (flat, action))[0]

    def _join(self, journey: Journey, head: jax.Array) -> jax.Array:
        observation, mask = self._engine.look(journey)
        return jnp.concatenate([self.layout.pack(journey), head, observation[:, 0], mask[:, 0].astype(jnp.float32)])


def _compiled(engine: Engine) -> _Compiled:
    if engine.single is None:
        engine.single = _Compiled(engine)
    compiled: _Compiled = engine.single
    return compiled
