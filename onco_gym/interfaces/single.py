"""The Gymnasium environment: one patient, one decision per step."""

import copy
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Field
from onco_gym.foundation.arrays import LESS_COMPILING, compiler_options
from onco_gym.foundation.files import replacing
from onco_gym.foundation.units import WEEKS_PER_YEAR
from onco_gym.interfaces.arguments import EngineError, checked_seed
from onco_gym.interfaces.decisions import LONGEST
from onco_gym.interfaces.engine import Engine, Outcome, Tallied, make_engine
from onco_gym.interfaces.kinds import Encounter
from onco_gym.interfaces.origins import Seat, key_words, stream_of
from onco_gym.interfaces.packing import Layout
from onco_gym.interfaces.render import Snapshot, chart, picture, png, show
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.patients import Cohort
from onco_gym.rewards import TERMS, Tally, count_decisions, even_handedness
from onco_gym.simulator.state import Journey

Observation = NDArray[np.float32]


class OncologyEnv(Tallied, gym.Env[Observation, Any]):
    """A patient with cancer, treated cycle by cycle.

    Observation: ``Box(0, 1)`` of named numbers; :attr:`observation_fields` has the name, unit and range of each.
    Action, by ``kind``: a regimen (``Discrete``; :attr:`action_names` names them), dose intensities (``Box``), or the
    decisions of a visit (``MultiDiscrete``). ``info["action_mask"]`` says which can be chosen. If another regimen is
    chosen, the patient gets a drug holiday, and ``info["given"]`` says so.
    Reward: a blend of four terms in quality-adjusted life years; each is in ``info["reward_terms"]`` in its own unit.
    ``info["carbon_kg"]`` is the carbon of the step, ``info["cycles"]`` how many cycles it took. ``info["guideline"]`` is what
    the panel says: the ``verdict`` on the regimen given, the ``share`` of experts who accept it, and the ``best`` options there
    were (after ``reset``, those there are now).
    An episode terminates when the patient dies and is truncated at the horizon. :attr:`origin` (the cohort's row and the key
    of its chance) and :attr:`actions` since ``reset`` are all that is needed to replay it. An agent must not see them.

    Args:
        card: the name of a shipped card, the path of a card file, or a loaded card.
        cohort: patients to draw from, or the path of a cohort file; by default those of the split.
        weights: reward weights by term, in place of the card's.
        horizon: cycles until truncation; by default the card's.
        kind: ``"regimen"``, ``"dose"`` or ``"workflow"``.
        terms: reward terms to compute; by default all. The others are 0.
        split: ``"train"``, ``"validation"`` or ``"test"``; nobody is in two of them.
        secret: 32 bytes, if nobody is to foresee patients and chance; see :func:`onco_gym.make_engine`.
        decide: ``"events"``: a step lasts until the next decision point; ``"cycles"``: it is one cycle, the default for doses.
        render_mode: ``"ansi"`` (a patient chart), ``"rgb_array"`` or ``"human"`` (a picture of the journey).
    """

    metadata = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 2}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        card: str | os.PathLike[str] | Card,
        cohort: Cohort | str | os.PathLike[str] | None = None,
        weights: Mapping[str, float] | None = None,
        horizon: int | None = None,
        kind: str | None = None,
        terms: Collection[str] | None = None,
        split: str = "train",
        secret: bytes | None = None,
        decide: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode is {render_mode!r}, expected one of {self.metadata['render_modes']}")
        self.render_mode = render_mode
        self.engine = make_engine(card, cohort, weights, horizon, kind, terms, split=split, secret=secret, decide=decide)
        self.observation_fields: tuple[Field, ...] = self.engine.kind.fields
        self.action_names: tuple[str, ...] = self.engine.scenario.regimens
        self.observation_space = spaces.Box(0.0, 1.0, (len(self.observation_fields),), np.float32)
        self.action_space = copy.deepcopy(self.engine.kind.space)
        self._pool = np.asarray(self.engine.pool)
        self._compiled = compiled(self.engine, self.engine.key_size)
        self._tally = self.engine.tally()
        self._stream: NDArray[np.uint32] | None = None
        self._episode = 0
        self._flat: jax.Array | None = None
        self._ended = True
        self._history: list[NDArray[np.float32]] = []
        self.actions: list[Any] = []
        self.origin: tuple[int, str] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Admit the next patient.

        Args:
            seed: a whole number from 0 to 2**64 - 1. The same seed gives the same sequence of patients in every interface.
                A seed also starts a new tally of decisions.
            options: ``{"patient": row}`` admits that row of the cohort; ``{"key": k}`` sets the key of its chance, which is
                hexadecimal text. :attr:`origin` has both.
        """
        checked = None if seed is None else checked_seed(seed)
        chosen = self._options(options)
        super().reset(seed=checked)
        if checked is not None:
            self._stream, self._episode = stream_of(np.array([checked], np.uint64)), 0
            self.reset_fairness()
        elif self._stream is None:
            self._stream, self._episode = self.np_random.integers(2**32, size=(2, 1), dtype=np.uint32), 0
        else:
            self._episode += 1
        row, key = self.engine.draw(Seat(self._stream, np.array([self._episode], np.uint32))).of(0)
        row, key = chosen.get("patient", row), chosen.get("key", key)
        words = key_words(key)
        self._compiled = compiled(self.engine, len(words))
        self._flat = self._compiled.admit(self._pool[row], words)
        self.actions, self.origin = [], (row, key)
        values = np.asarray(self._flat)
        self._ended = False
        if self.render_mode is not None:
            self._history = [values]
        if self.render_mode == "human":
            self.render()
        return self._observation(values), self._info(values, values[self._compiled.head : self._compiled.view].tolist())

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Apply ``action`` until the next decision point, or for one cycle; see :mod:`onco_gym.interfaces.decisions`."""
        if self._ended or self._flat is None:
            raise gym.error.ResetNeeded("the episode has ended or not begun: call reset() before step()")
        checked = self.engine.kind.checked(action, None)
        self._flat, self._tally = self._compiled.step(self._flat, self._tally, checked)
        self.actions.append(checked)
        values = np.asarray(self._flat)
        numbers = values[self._compiled.head : self._compiled.view].tolist()
        terminated, truncated = numbers[1] > 0.5, numbers[2] > 0.5
        self._ended = terminated or truncated
        if self.render_mode is not None:
            self._history.append(values)
        if self.render_mode == "human":
            self.render()
        return self._observation(values), self._reward(numbers), terminated, truncated, self._info(values, numbers)

    def _reward(self, numbers: list[float]) -> Any:
        return numbers[0]

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions can be chosen now, all parts of the action in one row. The name is the one that sb3-contrib looks for."""
        if self._flat is None:
            raise gym.error.ResetNeeded("call reset() before action_masks()")
        return self._mask(np.asarray(self._flat))

    @property
    def journey(self) -> Journey:
        """The patient and current state, as arrays with a batch of one: a privileged view that includes the hidden tumour."""
        if self._flat is None:
            raise gym.error.ResetNeeded("call reset() before reading journey")
        return self._compiled.layout.read(np.asarray(self._flat)[: self._compiled.head]).journey

    @property
    def history(self) -> list[Snapshot]:
        """The patient at the first visit and after every cycle, hidden parts included; kept only with a render mode."""
        return [self._compiled.snapshot(values) for values in self._history]

    @property
    def patient(self) -> dict[str, Any]:
        """The patient's variables in readable values, hidden ones included."""
        if self.origin is None:
            raise gym.error.ResetNeeded("call reset() before reading patient")
        return self.engine.cohort.row(self.engine.card, self.origin[0])

    @property
    def ended(self) -> bool:
        """Whether the episode is over, or has not begun."""
        return self._ended

    def render(self) -> Any:
        """The chart (``ansi``), the picture as an array (``rgb_array``), or the picture on screen (``human``)."""
        if self.render_mode is None:
            gym.logger.warn("render() was called, but render_mode is None: make the environment with a render_mode")
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
        """Write the picture of the journey so far, cycle by cycle, as a PNG file."""
        if self.origin is None:
            raise gym.error.ResetNeeded("call reset() before save_picture()")
        history, _ = snapshots(self.engine, *self.origin, self.actions)
        with replacing(path) as temporary:
            temporary.write_bytes(png(self.engine.card, self.engine.scenario, history))

    def _options(self, options: Any) -> dict[str, Any]:
        """Check the options of a reset."""
        if options is not None and not isinstance(options, Mapping):
            raise EngineError(f"reset options are {options!r}, expected a mapping with 'patient', 'key' or neither")
        chosen = dict(options or {})
        for name in chosen:
            if name not in ("patient", "key"):
                raise EngineError(f"reset options name {name!r}, expected 'patient' or 'key'")
        if "patient" in chosen:
            row, last = chosen["patient"], len(self.engine.cohort) - 1
            if isinstance(row, bool) or not isinstance(row, int | np.integer) or not 0 <= row <= last:
                raise EngineError(f"options['patient'] is {row!r}, expected 0..{last}")
            chosen["patient"] = int(row)
        if "key" in chosen:
            key_words(chosen["key"])
        return chosen

    def _observation(self, values: NDArray[np.float32]) -> Observation:
        return values[self._compiled.view : self._compiled.view + len(self.observation_fields)].copy()

    def _mask(self, values: NDArray[np.float32]) -> NDArray[np.bool_]:
        return values[self._compiled.mask : self._compiled.options] > 0.5

    def _info(self, values: NDArray[np.float32], numbers: list[float]) -> dict[str, Any]:
        _, _, _, given, code, share, carbon_kg, cost, _, cycles, *terms = numbers
        begun = given >= 0
        flags = values[self._compiled.mask :] > 0.5
        allowed = self._compiled.options - self._compiled.mask
        return {
            "action_mask": flags[:allowed],
            "reward_terms": dict(zip(TERMS, terms, strict=True)),
            "carbon_kg": carbon_kg,
            "cost_usd": cost,
            "cycles": int(cycles),
            "guideline": {
                "verdict": VERDICTS[int(code)] if begun else None,
                "share": share if begun else None,
                "best": [self.action_names[index] for index in flags[allowed:].nonzero()[0].tolist()],
            },
            "given": self.action_names[int(given)] if begun else None,
        }


class MultiObjectiveEnv(OncologyEnv):
    """The environment with a vector of rewards: the terms, each in its own unit, in the order of :data:`onco_gym.rewards.TERMS`.

    ``reward_space`` and ``reward_dim`` follow MO-Gymnasium, whose ``LinearReward`` turns the vector into a scalar.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reward_space = reward_space(self.engine)
        self.reward_dim = len(TERMS)

    def _reward(self, numbers: list[float]) -> Any:
        return np.array(numbers[-len(TERMS) :], np.float32)


def reward_space(engine: Engine) -> spaces.Box:
    """Bounds of the terms of one step."""
    cycles = max(LONGEST, engine.card.workup.longest_interval_cycles)
    years = engine.scenario.cycle_weeks / WEEKS_PER_YEAR * cycles
    low = np.array([0.0, -cycles, -np.inf, -np.inf], np.float32)
    high = np.array([years, cycles, np.inf, 0.0], np.float32)
    return spaces.Box(low, high, dtype=np.float32)


class Compiled:
    """The engine compiled for one patient, with one vector for state and output.

    [encounter | reward, terminated, truncated, given, verdict, share, kg, cost, first, cycles, terms | view | mask | options].
    The work is in a loop of one iteration. XLA compiles a small loop to one kernel, and anything else to one kernel per
    operation, which takes several times as long for a single patient. The tally is too large for the loop, so where a step is
    one decision, the fairness term is added after it.
    """

    def __init__(self, engine: Engine, words: int) -> None:
        self._engine, self._words = engine, words
        ticket = jax.ShapeDtypeStruct((engine.pool.shape[1] + words,), np.float32)
        self.layout: Layout[Encounter] = Layout(jax.eval_shape(self._begun, ticket))
        self.head = self.layout.size
        self.cycles = self.head + 9
        self.view = self.head + 10 + len(TERMS)
        self.mask = self.view + len(engine.kind.fields)
        self.options = self.mask + engine.kind.mask_size
        self.size = self.options + len(engine.scenario.regimens)
        self._keeps = "fairness" in engine.terms  # otherwise the tally does not change
        self._apart = self._keeps and engine.kind.name == "regimen"
        self._looped = engine.computing(engine.terms - {"fairness"}) if self._apart else engine
        options = compiler_options(LESS_COMPILING)
        self._admit_loop = jax.jit(self._admit, compiler_options=options)
        self._step_loop = jax.jit(self._step, donate_argnums=1, compiler_options=options)
        self._once = jnp.int32(1)
        choices = engine.kind.space.n if isinstance(engine.kind.space, spaces.Discrete) else 0
        self._choices = [jnp.int32(choice) for choice in range(choices)]  # to hand over an array of NumPy's takes time

    def admit(self, patient: NDArray[np.float32], key: NDArray[np.uint32]) -> jax.Array:
        """(size,) the first visit of ``patient``, a row of the pool, with chance ``key`` (words,)."""
        return self._admit_loop(np.concatenate([patient, key.view(np.float32)]), self._once)

    def step(self, flat: jax.Array, tally: Tally, action: NDArray[Any]) -> tuple[jax.Array, Tally]:
        """((size,) the vector after a step, the tally)."""
        chosen = self._choices[int(action)] if self._choices else action
        if not self._keeps:
            return self._step_loop(flat, None, chosen, self._once)[0], tally
        after: tuple[jax.Array, Tally] = self._step_loop(flat, tally, chosen, self._once)
        return after

    def snapshot(self, values: NDArray[np.float32]) -> Snapshot:
        """The snapshot in ``values`` (size,)."""
        observation = values[self.view : self.mask].copy()
        return Snapshot(self.layout.read(values[: self.head]).journey, observation, float(values[self.head]))

    def _admit(self, ticket: jax.Array, turns: jax.Array) -> jax.Array:
        def visit(_: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            _, ticket = carry
            encounter = self._begun(ticket)
            head = jnp.concatenate([jnp.zeros(3), -jnp.ones(1), jnp.zeros(6 + len(TERMS))])
            return self._join(encounter, head, self._engine.options(encounter.journey)), -ticket  # changed, as in _step

        return jax.lax.fori_loop(0, turns, visit, (jnp.zeros(self.size), ticket))[0]

    def _begun(self, ticket: jax.Array) -> Encounter:
        key = jax.lax.bitcast_convert_type(ticket[-self._words :, None], jnp.uint32)
        return self._engine.first_visit(self._engine.unpacked(ticket[: -self._words, None]), key)

    def _step(self, flat: jax.Array, tally: Tally, action: jax.Array, turns: jax.Array) -> tuple[jax.Array, Tally]:
        def cycle(turn: jax.Array, carry: tuple[jax.Array, Tally, jax.Array]) -> tuple[jax.Array, Tally, jax.Array]:
            del turn
            flat, tally, action = carry
            encounter = self.layout.unpack(flat[: self.head])
            after, tally, outcome = self._looped.advance(encounter, tally, action[None])
            head = self._head(outcome)
            # The action changes so that XLA does not move what depends on it out of the loop.
            return self._join(after, head, outcome.verdict.options), tally, action + 1

        if not self._apart:
            return jax.lax.fori_loop(0, turns, cycle, (flat, tally, action))[:2]
        after, _ = jax.lax.fori_loop(0, turns, lambda turn, carry: cycle(turn, (carry[0], tally, carry[1]))[::2], (flat, action))
        return self._fair(flat, after, tally)

    def _fair(self, before: jax.Array, after: jax.Array, tally: Tally) -> tuple[jax.Array, Tally]:
        """``after`` with the fairness term of the decision, and the tally with the decision."""
        given, need = (after[self.head + place : self.head + place + 1].astype(jnp.int32) for place in (3, 8))
        journey = self.layout.unpack(before[: self.head]).journey
        tally, surprise = count_decisions(self._engine.scenario, tally, journey, need, given)
        term = even_handedness(surprise)[0]
        after = after.at[self.view - len(TERMS) + list(TERMS).index("fairness")].set(term)
        return after.at[self.head].add(jnp.float32(self._engine.weights["fairness"]) * term), tally

    def _head(self, outcome: Outcome) -> jax.Array:
        said = outcome.verdict
        values = [outcome.reward, outcome.terminated, outcome.truncated, outcome.given, said.code, said.share]
        values += [outcome.carbon_kg, outcome.cost, said.first, outcome.cycles]
        return jnp.concatenate([*(value.astype(jnp.float32) for value in values), outcome.terms[:, 0]])

    def _join(self, encounter: Encounter, head: jax.Array, options: jax.Array) -> jax.Array:
        observation, mask = self._engine.look(encounter)
        rows = [self.layout.pack(encounter), head, observation[:, 0], mask[:, 0], options[:, 0]]
        return jnp.concatenate([row.astype(jnp.float32) for row in rows])


def snapshots(engine: Engine, row: int, key: str, actions: Iterable[Any]) -> tuple[list[Snapshot], bool]:
    """Replay an episode of one patient and return every state, hidden parts included.

    Args:
        engine: the compiled environment.
        row: row of the cohort.
        key: the key of its chance, in hexadecimal digits.
        actions: the actions from the first visit on.

    Returns:
        The patient at the first visit and after every cycle (in the workflow, at every visit), and whether the episode has ended.
        Rewards are those of an environment whose tally of decisions is empty at the first visit.
    """
    done = list(actions)
    one, values = _played(engine, row, key, done)
    if engine.decide == "events" and engine.kind.name != "workflow":
        cycles = [int(some[one.cycles]) for some in values[1:]]
        each = [action for action, count in zip(done, cycles, strict=True) for _ in range(count)]
        one, values = _played(engine.deciding("cycles"), row, key, each)
    terminated, truncated = values[-1][one.head + 1 : one.head + 3]
    return [one.snapshot(some) for some in values], bool(terminated or truncated)


def _played(engine: Engine, row: int, key: str, actions: list[Any]) -> tuple[Compiled, list[NDArray[np.float32]]]:
    """The vectors of an episode, at the first visit and after every step."""
    words, tally = key_words(key), engine.tally()
    one = compiled(engine, len(words))
    flat = one.admit(np.asarray(engine.pool)[row], words)
    values = [np.asarray(flat)]
    for action in actions:
        flat, tally = one.step(flat, tally, engine.kind.checked(action, None))
        values.append(np.asarray(flat))
    return one, values


def compiled(engine: Engine, words: int) -> Compiled:
    """The engine compiled for one patient whose key has so many words. Splits share it."""
    if words not in engine.singles:
        engine.singles[words] = Compiled(engine, words)
    one: Compiled = engine.singles[words]
    return one
