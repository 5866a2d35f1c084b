"""The vector environment: thousands of patients in one compiled step."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenario import Field
from onco_gym.interfaces.engine import Seat, make_engine, stream_of
from onco_gym.patients import Cohort
from onco_gym.rewards import TERMS
from onco_gym.simulator.state import Journey

Batch = NDArray[Any]
_SMALLEST = 32  # rows readmitted by one compiled call; sizes grow by 8 so that few sizes are compiled


class OncologyVectorEnv(VectorEnv[Batch, Batch, Batch]):
    """``num_envs`` patients side by side; see :class:`onco_gym.interfaces.single.OncologyEnv` for one of them.

    A patient whose episode ends is replaced in the same step (``AutoresetMode.SAME_STEP``): the observation is the new
    patient's first, and ``info["final_obs"]`` holds the last of the old one, where ``info["_final_obs"]`` is true.
    Environment ``i`` under ``reset(seed=s)`` sees the same episodes as a single environment under ``reset(seed=s + i)``.

    Args:
        card: the name of a shipped card, the path of a card file, or a loaded card.
        num_envs: how many patients.
        cohort: patients to draw from, or the path of a cohort file; by default drawn from the card.
        weights: reward weights by term; by default the card's.
        horizon: cycles until truncation; by default the card's.
        max_episode_steps: the same, as ``gym.make_vec`` passes it.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        card: str | os.PathLike[str] | Card,
        num_envs: int = 1,
        cohort: Cohort | str | os.PathLike[str] | None = None,
        weights: Mapping[str, float] | None = None,
        horizon: int | None = None,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}, expected at least 1")
        if render_mode is not None:
            raise ValueError(f"render_mode is {render_mode!r}: the vector environment draws nothing; render a single one")
        self.render_mode = None
        self.num_envs = num_envs
        self.engine = make_engine(card, cohort, weights, max_episode_steps if horizon is None else horizon)
        scenario = self.engine.scenario
        self.observation_fields: tuple[Field, ...] = scenario.fields
        self.action_names: tuple[str, ...] = scenario.regimens
        self.single_observation_space = spaces.Box(0.0, 1.0, (len(scenario.fields),), np.float32)
        self.single_action_space = spaces.Discrete(len(scenario.regimens))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seat: Seat | None = None
        self._journey: Journey | None = None
        self._mask: NDArray[np.bool_] = np.ones((num_envs, len(scenario.regimens)), bool)
        self._all = np.ones(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Batch, dict[str, Any]]:
        """Admit ``num_envs`` patients.

        Args:
            seed: one seed (environment i gets ``seed + i``) or one per environment, each up to 64 bits.
            options: none are understood here.
        """
        if options:
            raise ValueError(f"reset options {sorted(options)} are unknown: the vector environment takes none")
        if seed is None and self._seat is not None:
            self._seat = self._seat._replace(episode=self._seat.episode + np.uint32(1))
        else:
            if seed is None:
                super().reset(seed=None)
                seed = int(self.np_random.integers(2**63))
            elif isinstance(seed, int | np.integer):
                super().reset(seed=int(seed) % 2**64)
            elif len(seed) != self.num_envs:
                raise ValueError(f"{len(seed)} seeds for {self.num_envs} environments")
            self._seat = Seat(stream_of(self._seeds(seed)), np.zeros(self.num_envs, np.uint32))
        self._journey, observation, mask = self.engine.admit(self._seat)
        self._mask = np.array(mask)
        return np.array(observation), {"action_mask": self._mask.copy(), "_action_mask": self._all}

    def step(self, actions: Batch) -> tuple[Batch, Batch, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Give regimen ``actions[i]`` to patient ``i`` for one cycle. ``actions`` is not changed."""
        if self._journey is None or self._seat is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        self._journey, seen, possible, outcome = self.engine.step(self._journey, self._checked(actions))
        observation, mask = np.array(seen), np.array(possible)
        terminated, truncated = np.array(outcome.terminated), np.array(outcome.truncated)
        info: dict[str, Any] = {
            "reward_terms": dict(zip(TERMS, np.asarray(outcome.terms), strict=True)),
            "given": np.array(outcome.given),
            "_reward_terms": self._all,
            "_given": self._all,
        }
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            self._replace(ended, observation, mask, info)
        self._mask = mask
        info.update(action_mask=mask.copy(), _action_mask=self._all)
        return observation, np.array(outcome.reward), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """(num_envs, R) which regimens can be given now; the name is sb3-contrib's."""
        if self._journey is None:
            raise gym.error.ResetNeeded("call reset() before action_masks()")
        return self._mask.copy()

    def _replace(self, ended: NDArray[np.intp], observation: Batch, mask: Batch, info: dict[str, Any]) -> None:
        """Put new patients where episodes ended, in place, and keep the last of the old ones in ``info``."""
        size = _SMALLEST
        while size < len(ended):
            size *= 8
        where = np.full(min(size, max(self.num_envs, _SMALLEST)), self.num_envs, np.int32)
        where[: len(ended)] = ended
        over = np.zeros(self.num_envs, bool)
        over[ended] = True
        final_obs, final_mask = np.zeros(observation.shape, np.float32), np.zeros(mask.shape, bool)
        final_obs[ended], final_mask[ended] = observation[ended], mask[ended]
        info.update(final_obs=final_obs, _final_obs=over, _final_info=over)
        info["final_info"] = {"action_mask": final_mask, "_action_mask": over}
        self._journey, self._seat, fresh, fresh_mask = self.engine.readmit(self._journey, self._seat, where)
        observation[ended] = np.asarray(fresh)[: len(ended)]
        mask[ended] = np.asarray(fresh_mask)[: len(ended)]

    def _seeds(self, seed: int | Sequence[int]) -> NDArray[np.uint64]:
        if isinstance(seed, int | np.integer):
            return np.uint64(int(seed) % 2**64) + np.arange(self.num_envs, dtype=np.uint64)
        return np.array([int(one) % 2**64 for one in seed], np.uint64)

    def _checked(self, actions: Batch) -> NDArray[np.int32]:
        values = np.asarray(actions)
        if values.shape != (self.num_envs,) or values.dtype.kind not in "iu":
            raise gym.error.InvalidAction(
                f"actions are {values.dtype} of shape {values.shape}, expected whole numbers of shape ({self.num_envs},)"
            )
        if values.min() < 0 or values.max() >= len(self.action_names):
            wrong = values[(values < 0) | (values >= len(self.action_names))][0]
            raise gym.error.InvalidAction(f"action {wrong} is not a regimen: expected 0..{len(self.action_names) - 1}")
        return values.astype(np.int32)
