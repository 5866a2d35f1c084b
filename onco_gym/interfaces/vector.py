"""The vector environment: thousands of patients in one compiled step."""

import copy
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Field
from onco_gym.interfaces.decisions import DECIDE
from onco_gym.interfaces.engine import EngineError, Outcome, Seat, Tallied, checked_seed, make_engine, seeds_from
from onco_gym.interfaces.kinds import Encounter
from onco_gym.interfaces.single import reward_space
from onco_gym.patients import Cohort
from onco_gym.rewards import TERMS

Batch = NDArray[Any]
_SMALLEST = 32  # rows readmitted by one compiled call; sizes grow eightfold, so that few are compiled


class Last(NamedTuple):
    """The last observations and masks of episodes that ended in a step."""

    where: NDArray[np.intp]  # (k,) indices of the environments
    observation: Batch  # (k, F)
    mask: NDArray[np.bool_]  # (k, mask size)


class OncologyVectorEnv(Tallied, VectorEnv[Batch, Batch, Batch]):
    """``num_envs`` patients side by side; see :class:`onco_gym.interfaces.single.OncologyEnv` for one of them.

    A patient whose episode ends is replaced in the same step (``AutoresetMode.SAME_STEP``): the observation is the new
    patient's first, and ``info["final_obs"]`` holds the old patient's last where ``info["_final_obs"]`` is true.
    Environment ``i`` under ``reset(seed=s)`` sees the same episodes as a single environment under ``reset(seed=s + i)``. The
    tally of decisions behind the fairness term is shared by all of them, so that term differs from a single environment's.
    In ``info["guideline"]``, ``verdict`` is an index into :data:`onco_gym.knowledge.panel.VERDICTS`.

    Args:
        card: the name of a shipped card, the path of a card file, or a loaded card.
        num_envs: number of patients.
        cohort: patients to draw from, or the path of a cohort file; by default those of the split.
        weights: reward weights by term, in place of the card's.
        horizon: cycles until truncation; by default the card's.
        kind: ``"regimen"``, ``"dose"`` or ``"workflow"``.
        terms: reward terms to compute; by default all. The others are 0.
        split: ``"train"``, ``"validation"`` or ``"test"``; nobody is in two of them.
        secret: 32 bytes, if nobody is to foresee patients and chance; see :func:`onco_gym.make_engine`.
        decide: ``"events"``: a step lasts until the next decision point; ``"cycles"``: it is one cycle.
        max_episode_steps: the name that ``gym.make_vec`` uses for ``horizon``.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        card: str | os.PathLike[str] | Card,
        num_envs: int = 1,
        cohort: Cohort | str | os.PathLike[str] | None = None,
        weights: Mapping[str, float] | None = None,
        horizon: int | None = None,
        kind: str | None = None,
        terms: Collection[str] | None = None,
        split: str = "train",
        secret: bytes | None = None,
        decide: str = DECIDE[0],
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise EngineError(f"num_envs is {num_envs!r}, expected a whole number from 1")
        if render_mode is not None:
            raise EngineError(f"render_mode is {render_mode!r}, expected None: render a single environment instead")
        self.render_mode = None
        self.num_envs = num_envs
        length = max_episode_steps if horizon is None else horizon
        self.engine = make_engine(card, cohort, weights, length, kind, terms, split=split, secret=secret, decide=decide)
        self.observation_fields: tuple[Field, ...] = self.engine.kind.fields
        self.action_names: tuple[str, ...] = self.engine.scenario.regimens
        self.single_observation_space = spaces.Box(0.0, 1.0, (len(self.observation_fields),), np.float32)
        self.single_action_space = copy.deepcopy(self.engine.kind.space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seat: Seat | None = None
        self._encounter: Encounter | None = None
        self._tally = self.engine.tally()
        self._mask: NDArray[np.bool_] = np.ones((num_envs, self.engine.kind.mask_size), bool)
        self._all = np.ones(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Batch, dict[str, Any]]:
        """Admit ``num_envs`` patients.

        Args:
            seed: one seed (environment i gets ``seed + i``) or one per environment, each from 0 to 2**64 - 1.
            options: not supported.
        """
        if options:
            raise EngineError(f"reset options are {options!r}, expected none for a vector environment")
        if seed is None and self._seat is not None:
            self._seat = self._seat._replace(episode=self._seat.episode + np.uint32(1))
        else:
            if seed is None:
                super().reset(seed=None)
                seed = int(self.np_random.integers(2**63))
            seeds = self._seeds(seed)
            if isinstance(seed, int | np.integer):
                super().reset(seed=int(seed))
            self._seat = Seat.first(seeds)
            self.reset_fairness()
        self._encounter, observation, mask, options = self.engine.admit(self._seat)
        self._mask = np.array(mask)
        info: dict[str, Any] = {"action_mask": self._mask.copy(), "_action_mask": self._all}
        nothing = np.zeros(self.num_envs, np.float32)
        info["reward_terms"], info["_reward_terms"] = {name: nothing.copy() for name in TERMS}, self._all
        info["carbon_kg"], info["_carbon_kg"] = nothing, self._all
        info["guideline"], info["_guideline"] = {"best": np.array(options), "_best": self._all}, self._all
        return np.array(observation), info

    def step(self, actions: Batch) -> tuple[Batch, Batch, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Apply ``actions[i]`` to patient ``i`` until the next decision point, or for one cycle."""
        observation, terminated, truncated, outcome, last = self.cycle(actions)
        info = self._info(outcome)
        if len(last.where):
            over = np.zeros(self.num_envs, bool)
            over[last.where] = True
            final_obs, final_mask = np.zeros(observation.shape, np.float32), np.zeros(self._mask.shape, bool)
            final_obs[last.where], final_mask[last.where] = last.observation, last.mask
            info.update(final_obs=final_obs, _final_obs=over, _final_info=over)
            info["final_info"] = {"action_mask": final_mask, "_action_mask": over}
        info.update(action_mask=self._mask.copy(), _action_mask=self._all)
        return observation, self._reward(outcome), terminated, truncated, info

    def cycle(self, actions: Batch) -> tuple[Batch, NDArray[np.bool_], NDArray[np.bool_], Outcome, Last]:
        """Step without an info. Returns observation, terminated, truncated, outcome, and the episodes that ended."""
        if self._encounter is None or self._seat is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        checked = self.engine.kind.checked(actions, self.num_envs)
        self._encounter, self._tally, seen, possible, outcome = self.engine.step(self._encounter, self._tally, checked)
        observation, self._mask = np.array(seen), np.array(possible)
        terminated, truncated = np.array(outcome.terminated), np.array(outcome.truncated)
        ended = np.flatnonzero(terminated | truncated)
        last = Last(ended, observation[ended], self._mask[ended])
        if len(ended):
            self._replace(ended, observation)
        return observation, terminated, truncated, outcome, last

    def _reward(self, outcome: Outcome) -> Batch:
        return np.array(outcome.reward)

    def _info(self, outcome: Outcome) -> dict[str, Any]:
        terms, said = np.asarray(outcome.terms), outcome.verdict
        panel = {"verdict": np.asarray(said.code), "share": np.asarray(said.share), "best": np.asarray(said.options).T}
        values = {
            "reward_terms": dict(zip(TERMS, terms, strict=True)),
            "carbon_kg": np.asarray(outcome.carbon_kg),
            "cost_usd": np.asarray(outcome.cost),
            "cycles": np.asarray(outcome.cycles),
            "guideline": {**panel, **{f"_{name}": self._all for name in panel}},
            "given": np.array(outcome.given),
        }
        return {**values, **{f"_{name}": self._all for name in values}}

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions can be chosen now, one row per environment. The name is the one that sb3-contrib looks for."""
        if self._encounter is None:
            raise gym.error.ResetNeeded("call reset() before action_masks()")
        return self._mask.copy()

    def _replace(self, ended: NDArray[np.intp], observation: Batch) -> None:
        """Put new patients where episodes ended, in place."""
        size = _SMALLEST
        while size < len(ended):
            size *= 8
        where = np.full(min(size, max(self.num_envs, _SMALLEST)), self.num_envs, np.int32)
        where[: len(ended)] = ended
        self._encounter, self._seat, fresh, fresh_mask = self.engine.readmit(self._encounter, self._seat, where)
        observation[ended] = np.asarray(fresh)[: len(ended)]
        self._mask[ended] = np.asarray(fresh_mask)[: len(ended)]

    def _seeds(self, seed: Any) -> NDArray[np.uint64]:
        if not isinstance(seed, Sequence | np.ndarray) or isinstance(seed, str | bytes):
            return seeds_from(seed, self.num_envs)
        if len(seed) != self.num_envs:
            raise EngineError(f"there are {len(seed)} seeds, expected one for each of {self.num_envs} environments")
        return np.array([checked_seed(one) for one in seed], np.uint64)


class MultiObjectiveVectorEnv(OncologyVectorEnv):
    """The vector environment with rewards (num_envs, terms); see :class:`onco_gym.interfaces.single.MultiObjectiveEnv`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reward_space = reward_space(self.engine)
        self.reward_dim = len(TERMS)

    def _reward(self, outcome: Outcome) -> Batch:
        return np.array(outcome.terms).T
