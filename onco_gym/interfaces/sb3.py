"""The vector environment as Stable-Baselines3 wants it.

SB3's ``VecEnv`` is not Gymnasium's ``VectorEnv``: episodes that end are replaced in the same step, the old patient's last
observation goes into ``infos[i]["terminal_observation"]``, and ``infos[i]["TimeLimit.truncated"]`` tells the end of follow-up
(whose value is to be bootstrapped) from death.
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
    """What Stable-Baselines3 cannot do with these environments; the message says what it can."""


class _Nothing(dict[str, Any]):
    """The info of environments with nothing to say: one for all of them, so nobody may write to it."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this info is shared by all environments whose episode goes on: copy it before you write to it")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return dict, ()  # copies and pickles are plain


_NOTHING = _Nothing()


class OncologyVecEnv(VecEnv):
    """``num_envs`` patients side by side, for Stable-Baselines3 and sb3-contrib.

    All environments share one compiled step, so attributes are those of the vector environment and are set for all at once.
    ``action_masks`` is there for MaskablePPO.

    Args:
        env: the vector environment.
    """

    def __init__(self, env: OncologyVectorEnv) -> None:
        self.env = env
        self.spec = env.spec
        self._actions: NDArray[Any] | None = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> NDArray[np.float32]:
        """Admit new patients: (num_envs, F). Seeds given by :meth:`seed` count once."""
        if any(self._options):
            raise Sb3Error(f"reset options {self._options[0]} are unknown: environments side by side take none")
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
        """((num_envs, F) observations, rewards, whether episodes ended, infos). A cost per patient only where one ended."""
        if self._actions is None:
            raise gym.error.ResetNeeded("call step_async() before step_wait()")
        observation, terminated, truncated, outcome, last = self.env.cycle(self._actions)
        self._actions = None
        infos: list[dict[str, Any]] = [_NOTHING] * self.num_envs
        for index, final in zip(last.where.tolist(), last.observation, strict=True):
            infos[index] = {"terminal_observation": final, "TimeLimit.truncated": bool(truncated[index])}
        return observation, np.array(outcome.reward), terminated | truncated, infos

    def close(self) -> None:
        """Nothing stays open."""
        self.env.close()

    def action_masks(self) -> NDArray[np.bool_]:
        """(num_envs, mask size) which actions can be chosen now."""
        return self.env.action_masks()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """The attribute, once for each of ``indices``; spaces are those of one environment."""
        own = {"observation_space": self.observation_space, "action_space": self.action_space}
        value = own[attr_name] if attr_name in own else getattr(self.env, attr_name)
        return [value] * len(self._chosen(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of all environments."""
        if len(self._chosen(indices)) != self.num_envs:
            raise Sb3Error(f"{attr_name!r} cannot be set for some environments only: all of them are one, set it for all")
        if attr_name in ("observation_space", "action_space"):
            raise Sb3Error(f"{attr_name!r} cannot be set: it follows from the card and the kind of environment")
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any) -> list[Any]:
        """``action_masks``: a row for each of ``indices``; ``fairness`` and ``reset_fairness``: called once for all of them."""
        chosen = self._chosen(indices)
        if method_name == "action_masks":
            masks = self.env.action_masks()
            return list(masks if indices is None else masks[chosen])
        if method_name not in ("fairness", "reset_fairness"):
            known = "action_masks, fairness or reset_fairness"
            raise AttributeError(f"{method_name!r} cannot be called on environments side by side: expected {known}")
        return [getattr(self.env, method_name)(*method_args, **method_kwargs)] * len(chosen)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """False: no environment is in a Gymnasium wrapper."""
        return [False] * len(self._chosen(indices))

    def get_images(self) -> list[None]:
        """No pictures; render a single environment."""
        return [None] * self.num_envs

    def _chosen(self, indices: Indices) -> list[int]:
        return list(self._get_indices(indices))


def make_sb3(
    environment: str, n_envs: int = 1024, seed: int | None = None, monitor: bool = True, **env_kwargs: Any
) -> OncologyVecEnv | VecMonitor:
    """Environments for Stable-Baselines3, all in one compiled step.

    Args:
        environment: an id such as ``onco_gym/NSCLC-v0`` or its short form ``NSCLC``; every kind but the multi-objective one.
        n_envs: how many patients side by side.
        seed: environment ``i`` sees the patients of a single environment under ``reset(seed=seed + i)``. A model with a seed
            of its own sets another.
        monitor: whether to wrap them in SB3's ``VecMonitor``, so that SB3 logs the return and the length of episodes.
        env_kwargs: as ``gym.make_vec`` takes them: ``card``, ``cohort``, ``weights``, ``horizon``, ``terms``.

    Raises:
        Sb3Error: if the reward is a vector, or there is no environment to make.
        UnknownEnvironmentError: for an environment that is not one of ours.
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
