"""The vector environment: thousands of patients in one compiled step."""

import copy
import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Field
from onco_gym.foundation.arrays import Spare
from onco_gym.foundation.threads import Threads
from onco_gym.interfaces.arguments import EngineError, checked_seed
from onco_gym.interfaces.engine import FIGURES, Engine, Moved, Tallied, at_once, make_engine
from onco_gym.interfaces.origins import Seat, seeds_from
from onco_gym.interfaces.single import reward_space
from onco_gym.patients import Cohort
from onco_gym.rewards import TERMS, Tally, merged

Batch = NDArray[Any]
TILE = 4096
"""Most environments that are stepped together. More would leave the processor's cache, and fewer are not worth a thread."""
_ENDS = [FIGURES.index("terminated"), FIGURES.index("truncated")]


class Last(NamedTuple):
    """The last observations and masks of episodes that ended in a step."""

    where: NDArray[np.intp]  # (k,) indices of the environments
    observation: Batch  # (k, F)
    mask: NDArray[np.bool_]  # (k, mask size)


class Result(NamedTuple):
    """A step of n environments."""

    observation: Batch  # (n, F), of a new patient where an episode ended
    mask: NDArray[np.bool_]  # (n, mask size)
    figures: dict[str, Batch]  # name to (n,), see :data:`onco_gym.interfaces.engine.FIGURES`
    options: NDArray[np.bool_]  # (R, n), or (0, n) if the panel was not asked
    last: Last


class _Tile:
    """Environments that are stepped together. More of them would leave the processor's cache."""

    def __init__(self, engine: Engine, seeds: NDArray[np.uint64]) -> None:
        self._engine, self._n = engine, len(seeds)
        self._some = at_once(self._n)
        self._encounter = engine.nobody(self._n)
        first = Seat.first(seeds)
        self._seat = first._replace(episode=first.episode - np.uint32(1))  # admission moves on to the next episode

    def admit(self) -> tuple[Batch, NDArray[np.bool_], NDArray[np.bool_]]:
        """Put a new patient into every environment. Returns observations, masks and the panel's options, batch first."""
        kind, regimens = self._engine.kind, len(self._engine.scenario.regimens)
        seen = np.empty((self._n, len(kind.fields)), np.float32)
        mask, options = (np.empty((self._n, size), bool) for size in (kind.mask_size, regimens))
        for where, *found in self._readmitted(np.arange(self._n)):
            seen[where], mask[where], options[where] = found
        return seen, mask, options

    def step(self, tally: Tally, actions: Batch, seen: Batch, mask: NDArray[np.bool_]) -> tuple[Tally, Moved, Last]:
        """A step, and a new patient wherever an episode ended. Fills ``seen`` (n, F) and ``mask`` (n, mask size)."""
        self._encounter, tally, self._seat, moved = self._engine.move(self._encounter, tally, self._seat, actions)
        seen.T[:], mask.T[:] = moved.observation, moved.mask
        ended = np.flatnonzero(np.asarray(moved.figures)[_ENDS].any(0))
        count, others = min(len(ended), self._some), ended[self._some :]
        last = Last(
            ended,
            np.concatenate([np.asarray(moved.last)[:count], seen[others]]),
            np.concatenate([np.asarray(moved.last_mask)[:count], mask[others]]),
        )
        for where, observation, possible, _ in self._readmitted(others):
            seen[where], mask[where] = observation, possible
        return tally, moved, last

    def _readmitted(self, which: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], Batch, Batch, Batch]]:
        """Put new patients at ``which``, some at a time: one size, one compilation."""
        for start in range(0, len(which), self._some):
            now = which[start : start + self._some]
            where = np.full(self._some, self._n, np.int32)
            where[: len(now)] = now
            self._encounter, self._seat, *found = self._engine.readmit(self._encounter, self._seat, where)
            seen, mask, options = (np.asarray(part)[: len(now)] for part in found)
            yield now, seen, mask, options


class OncologyVectorEnv(Tallied, VectorEnv[Batch, Batch, Batch]):
    """``num_envs`` patients side by side; see :class:`onco_gym.interfaces.single.OncologyEnv` for one of them.

    A patient whose episode ends is replaced in the same step (``AutoresetMode.SAME_STEP``): the observation is the new
    patient's first, and ``info["final_obs"]`` holds the old patient's last where ``info["_final_obs"]`` is true.
    Environment ``i`` under ``reset(seed=s)`` sees the same episodes as a single environment under ``reset(seed=s + i)``. The
    tally of decisions behind the fairness term is shared by all of them, so that term differs from a single environment's.
    Observations and masks have one row per environment and are in Fortran order: each field is contiguous.
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
        decide: ``"events"``: a step lasts until the next decision point; ``"cycles"``: it is one cycle, the default for doses.
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
        decide: str | None = None,
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
        self._tiles: list[_Tile] = []
        self._slices = _slices(num_envs)
        self._threads = Threads(len(self._slices))
        self._compiled = False
        judged = len(self.action_names) if self.engine.judges else 0
        # The simulator keeps each number of all patients together, and so do these arrays: to transpose them takes long.
        self._spare = (
            Spare((num_envs, len(self.observation_fields)), np.float32, "F"),
            Spare((num_envs, self.engine.kind.mask_size), bool, "F"),
            Spare((len(FIGURES), num_envs), np.float32),
            Spare((judged, num_envs), bool),
        )
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
        if seed is not None or not self._tiles:
            if seed is None:
                super().reset(seed=None)
                seed = int(self.np_random.integers(2**63))
            seeds = self._seeds(seed)
            if isinstance(seed, int | np.integer):
                super().reset(seed=int(seed))
            self._tiles = [_Tile(self.engine, seeds[some]) for some in self._slices]
            self.reset_fairness()
        parts = [tile.admit() for tile in self._tiles]
        observation, self._mask, best = (np.concatenate(some) for some in zip(*parts, strict=True))
        info: dict[str, Any] = {"action_mask": self._mask.copy(order="K"), "_action_mask": self._all}
        nothing = np.zeros(self.num_envs, np.float32)
        info["reward_terms"], info["_reward_terms"] = {name: nothing.copy() for name in TERMS}, self._all
        info["carbon_kg"], info["_carbon_kg"] = nothing, self._all
        info["guideline"], info["_guideline"] = {"best": best, "_best": self._all}, self._all
        return observation, info

    def step(self, actions: Batch) -> tuple[Batch, Batch, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Apply ``actions[i]`` to patient ``i`` until the next decision point, or for one cycle."""
        found = self.advance(actions)
        info, last = self._info(found), found.last
        if len(last.where):
            over = np.zeros(self.num_envs, bool)
            over[last.where] = True
            final_obs, final_mask = np.zeros(found.observation.shape, np.float32), np.zeros(self._mask.shape, bool)
            final_obs[last.where], final_mask[last.where] = last.observation, last.mask
            info.update(final_obs=final_obs, _final_obs=over, _final_info=over)
            info["final_info"] = {"action_mask": final_mask, "_action_mask": over}
        info.update(action_mask=self._mask.copy(order="K"), _action_mask=self._all)
        terminated, truncated = (found.figures[name] > 0.5 for name in ("terminated", "truncated"))
        return found.observation, self._reward(found), terminated, truncated, info

    def advance(self, actions: Batch) -> Result:
        """Step without an info."""
        if not self._tiles:
            raise gym.error.ResetNeeded("call reset() before step()")
        checked = self.engine.kind.checked(actions, self.num_envs)
        seen, mask, figures, options = (spare.take() for spare in self._spare)

        def move(number: int) -> tuple[Tally, Last]:
            some = self._slices[number]
            tally, moved, last = self._tiles[number].step(self._tally, checked[some], seen[some], mask[some])
            figures[:, some], options[:, some] = moved.figures, moved.options
            return tally, last._replace(where=last.where + some.start)

        # The first step compiles, which one thread must do for all.
        moving = self._threads.share if self._compiled else map
        tallies, lasts = zip(*moving(move, range(len(self._tiles))), strict=True)
        self._tally = merged(tallies) if "fairness" in self.engine.terms else tallies[0]
        last = lasts[0] if len(lasts) == 1 else Last(*(np.concatenate(parts) for parts in zip(*lasts, strict=True)))
        self._mask, self._compiled = mask, True
        return Result(seen, mask, dict(zip(FIGURES, figures, strict=True)), options, last)

    def _reward(self, found: Result) -> Batch:
        return found.figures["reward"]

    def _info(self, found: Result) -> dict[str, Any]:
        figures = found.figures
        best = found.options.T if len(found.options) else np.zeros((self.num_envs, len(self.action_names)), bool)
        panel = {"verdict": figures["code"].astype(np.int32), "share": figures["share"], "best": best}
        values = {
            "reward_terms": {name: figures[name] for name in TERMS},
            "carbon_kg": figures["carbon_kg"],
            "cost_usd": figures["cost"],
            "cycles": figures["cycles"].astype(np.int32),
            "guideline": {**panel, **{f"_{name}": self._all for name in panel}},
            "given": figures["given"].astype(np.int32),
        }
        return {**values, **{f"_{name}": self._all for name in values}}

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions can be chosen now, one row per environment. The name is the one that sb3-contrib looks for."""
        if not self._tiles:
            raise gym.error.ResetNeeded("call reset() before action_masks()")
        return self._mask.copy(order="K")

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

    def _reward(self, found: Result) -> Batch:
        return np.stack([found.figures[name] for name in TERMS], 1)


def _slices(n: int) -> list[slice]:
    """The environments of each tile. Tiles have one size, or two that differ by one."""
    bounds = np.linspace(0, n, -(-n // TILE) + 1).astype(int)
    return [slice(start, end) for start, end in itertools.pairwise(bounds.tolist())]
