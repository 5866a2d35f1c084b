"""The vector environment for Stable-Baselines3.

SB3's ``VecEnv`` differs from Gymnasium's ``VectorEnv``. Episodes that end are replaced in the same step, and the old patient's
last observation goes into ``infos[i]["terminal_observation"]``. ``infos[i]["TimeLimit.truncated"]`` tells the end of follow-up,
where the value is bootstrapped, from death.
"""

from collections.abc import Iterable
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from onco_gym.interfaces.registry import find_environment
from onco_gym.interfaces.vector import OncologyVectorEnv

try:
    from stable_baselines3.common.vec_env import VecEnv, VecMonitor
except ImportError as error:
    raise ImportError(f'make_sb3 needs Stable-Baselines3: pip install "onco_gym[sb3]" ({error})') from error

Indices = None | int | Iterable[int]


class Sb3Error(ValueError):
    """A request that these environments cannot meet. The message says what was expected."""


class _Nothing(dict[str, Any]):
    """An empty, read-only info, shared by all environments that have nothing to report."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this info is read-only, because it is shared by all environments whose episode continues: copy it first")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return dict, ()  # copies and pickles are plain dicts


_NOTHING = _Nothing()


class OncologyVecEnv(VecEnv):
    """``num_envs`` patients side by side, for Stable-Baselines3 and sb3-contrib.

    All environments share one compiled step, so attributes belong to the vector environment and are set for all at once.
    MaskablePPO uses ``action_masks``.

    Args:
        env: the vector environment.

    Attributes:
        cycles: treatment cycles simulated so far, for budgets that do not depend on when the agent decides.
    """

    def __init__(self, env: OncologyVectorEnv) -> None:
        self.env = env
        self.cycles = 0
        self.spec = env.spec
        self._actions: NDArray[Any] | None = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> NDArray[np.float32]:
        """Admit new patients and return their observations (num_envs, F). Seeds given by :meth:`seed` are used once."""
        if any(self._options):
            raise Sb3Error(f"reset options are {self._options[0]!r}, expected none for a vector environment")
        seeds = [seed for seed in self._seeds if seed is not None]
        observation, _ = self.env.reset(seed=seeds or None)
        self.reset_infos = [_NOTHING] * self.num_envs
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep ``actions`` for :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """((num_envs, F) observations, rewards, whether episodes ended, infos). Infos are made only where an episode ended."""
        if self._actions is None:
            raise gym.error.ResetNeeded("call step_async() before step_wait()")
        found = self.env.advance(self._actions)
        last, terminated, truncated = found.last, found.figures["terminated"] > 0.5, found.figures["truncated"] > 0.5
        self._actions = None
        self.cycles += int(found.figures["cycles"].sum())
        infos: list[dict[str, Any]] = [_NOTHING] * self.num_envs
        for index, final in zip(last.where.tolist(), last.observation, strict=True):
            infos[index] = {"terminal_observation": final, "TimeLimit.truncated": bool(truncated[index])}
        return found.observation, found.figures["reward"], terminated | truncated, infos

    def close(self) -> None:
        """Close the vector environment."""
        self.env.close()

    def action_masks(self) -> NDArray[np.bool_]:
        """(num_envs, mask size) which actions can be chosen now."""
        return self.env.action_masks()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """The attribute, repeated for each of ``indices``. Spaces are those of one environment."""
        own = {"observation_space": self.observation_space, "action_space": self.action_space, "cycles": self.cycles}
        value = own[attr_name] if attr_name in own else getattr(self.env, attr_name)
        return [value] * len(self._chosen(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of all environments."""
        if len(self._chosen(indices)) != self.num_envs:
            raise Sb3Error(f"{attr_name!r} cannot be set for some environments only: they share one engine, so set it for all")
        if attr_name in ("observation_space", "action_space"):
            raise Sb3Error(f"{attr_name!r} cannot be set: it follows from the card and the kind of environment")
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any) -> list[Any]:
        """Call ``action_masks`` for each of ``indices``, or ``fairness`` or ``reset_fairness`` once for all environments."""
        chosen = self._chosen(indices)
        if method_name == "action_masks":
            masks = self.env.action_masks()
            return list(masks if indices is None else masks[chosen])
        if method_name not in ("fairness", "reset_fairness"):
            known = "action_masks, fairness or reset_fairness"
            raise AttributeError(f"{method_name!r} cannot be called on a vector environment: expected {known}")
        return [getattr(self.env, method_name)(*method_args, **method_kwargs)] * len(chosen)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """False for each of ``indices``: no environment is in a Gymnasium wrapper."""
        return [False] * len(self._chosen(indices))

    def get_images(self) -> list[None]:
        """None for each environment. Render a single environment instead."""
        return [None] * self.num_envs

    def _chosen(self, indices: Indices) -> list[int]:
        return list(self._get_indices(indices))


def make_sb3(
    environment: str, n_envs: int = 1024, seed: int | None = None, monitor: bool = True, **env_kwargs: Any
) -> OncologyVecEnv | VecMonitor:
    """Make environments for Stable-Baselines3 that share one compiled step.

    Args:
        environment: an id such as ``onco_gym/NSCLC-v0`` or its short form ``NSCLC``, of any kind except multi-objective.
        n_envs: number of patients.
        seed: environment ``i`` sees the patients of a single environment under ``reset(seed=seed + i)``. A model with a seed
            of its own overrides it.
        monitor: whether to wrap them in SB3's ``VecMonitor``, so that SB3 logs the return and the length of episodes.
        env_kwargs: as ``gym.make_vec`` takes them: ``card``, ``cohort``, ``weights``, ``horizon``, ``terms``.

    Raises:
        Sb3Error: if the reward is a vector, or ``n_envs`` is below 1.
        UnknownEnvironmentError: if onco_gym has no such environment.
    """
    env_id = environment if "card" in env_kwargs else find_environment(environment).id
    if gym.spec(env_id).vector_entry_point == f"{OncologyVectorEnv.__module__}:MultiObjectiveVectorEnv":
        plain = env_id.replace("/mo-", "/")
        raise Sb3Error(f"{env_id} has a vector of rewards and SB3 needs one number: use {plain} with weights")
    if n_envs < 1:
        raise Sb3Error(f"n_envs is {n_envs}, expected at least 1")
    env = gym.make_vec(env_id, num_envs=n_envs, vectorization_mode="vector_entry_point", **env_kwargs).unwrapped
    assert isinstance(env, OncologyVectorEnv)
    made = OncologyVecEnv(env)
    if seed is not None:
        made.seed(seed)
    return VecMonitor(made) if monitor else made
