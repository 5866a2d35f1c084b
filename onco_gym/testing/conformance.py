"""Checks of what every environment of this suite promises. They raise ``AssertionError`` if a promise is broken.

Each check takes the id and the keyword arguments of ``gym.make``:
``check_all("onco_gym/NSCLC-v0")`` or ``check_all("onco_gym/Card-v0", card="mine.toml")``.
"""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env, data_equivalence
from numpy.typing import NDArray

import onco_gym  # noqa: F401 - registers the ids
from onco_gym.knowledge.panel import VERDICTS

NUM_ENVS = 256
"""Environments in a vector. Every check uses the same number, so that it is compiled once."""


def check_all(env_id: str, **kwargs: Any) -> None:
    """Run every check in this module."""
    for check in (check_api, check_determinism, check_single_equals_vector, check_finite, check_masks, check_errors):
        check(env_id, **kwargs)


def check_api(env_id: str, **kwargs: Any) -> None:
    """Gymnasium's checker passes without warnings, render modes work, and field and action names match the spaces."""
    env: Any = gym.make(env_id, **kwargs).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(scalar(env), skip_render_check=True)
    for mode in env.metadata["render_modes"]:
        if mode != "human":
            drawn: Any = gym.make(env_id, render_mode=mode, **kwargs)
            drawn.reset(seed=0)
            drawn.step(sample(drawn.action_space, np.random.default_rng(0)))
            frame = drawn.render()
            assert isinstance(frame, str) or frame.dtype == np.uint8, f"render mode {mode} gave {type(frame)}"
    fields = env.get_wrapper_attr("observation_fields")
    assert [field.index for field in fields] == list(range(env.observation_space.shape[0]))
    assert len({field.name for field in fields}) == len(fields), "two observation fields share a name"
    assert env.get_wrapper_attr("action_names") == env.engine.scenario.regimens


def check_determinism(env_id: str, seed: int = 2**64 - 1, **kwargs: Any) -> None:
    """The same seed and actions give the same episodes, and another seed gives another patient."""
    first, second = (_record(env_id, seed, 3, **kwargs) for _ in range(2))
    assert data_equivalence(first, second, exact=True), "the same seed and actions gave other episodes"
    other = _record(env_id, seed - 1, 1, **kwargs)
    assert not np.array_equal(first[0][0], other[0][0]), "two seeds gave the same first observation"


def check_single_equals_vector(env_id: str, compared: int = 8, cycles: int = 120, **kwargs: Any) -> None:
    """Environment i of the vector equals the single environment with seed + i, across resets. Actions are not modified.

    The first ``compared`` environments of a vector of :data:`NUM_ENVS` are looked at.

    The fairness term is not compared, because all environments of the vector share its tally.
    """
    vector: Any = gym.make_vec(env_id, num_envs=NUM_ENVS, **kwargs)
    rng = np.random.default_rng(5)
    actions = np.array([[sample(vector.single_action_space, rng) for _ in range(NUM_ENVS)] for _ in range(cycles)])
    before = actions.copy()
    seed = 2**63
    steps: list[Any] = [vector.reset(seed=seed), *(vector.step(action) for action in actions)]
    assert np.array_equal(actions, before), "the caller's actions were changed"
    single: Any = gym.make(env_id, **kwargs)
    for i in range(compared):
        observation, _ = single.reset(seed=seed + i)
        np.testing.assert_allclose(observation, steps[0][0][i], atol=1e-6)
        for cycle in range(cycles):
            observation, reward, terminated, truncated, info = single.step(actions[cycle, i])
            many, rewards, ends, cuts, infos = steps[cycle + 1]
            assert (terminated, truncated) == (ends[i], cuts[i]), f"environment {i} ends differently in cycle {cycle}"
            terms = {name: values[i] for name, values in infos["reward_terms"].items()}
            for name in set(terms) - {"fairness"}:
                np.testing.assert_allclose(info["reward_terms"][name], terms[name], atol=2e-5, err_msg=name)
            np.testing.assert_allclose(reward, _blended(vector.unwrapped, info["reward_terms"]), atol=1e-5)
            np.testing.assert_allclose(rewards[i], _blended(vector.unwrapped, terms), atol=1e-5)
            assert info["guideline"]["verdict"] == VERDICTS[infos["guideline"]["verdict"][i]], "verdicts differ"
            assert info["given"] == vector.unwrapped.action_names[infos["given"][i]], "regimens given differ"
            if terminated or truncated:
                assert infos["_final_obs"][i]
                np.testing.assert_allclose(observation, infos["final_obs"][i], atol=1e-5)
                observation, info = single.reset()
            np.testing.assert_allclose(observation, many[i], atol=1e-5)
            np.testing.assert_array_equal(info["action_mask"], infos["action_mask"][i])


def check_finite(env_id: str, num_envs: int = NUM_ENVS, cycles: int = 200, **kwargs: Any) -> None:
    """Under random play, observations stay within their space, and rewards are finite and equal the blend of their terms."""
    vector: Any = gym.make_vec(env_id, num_envs=num_envs, **kwargs)
    rng = np.random.default_rng(1)
    observation, _ = vector.reset(seed=1)
    for _ in range(cycles):
        assert observation in vector.observation_space
        actions = np.array([sample(vector.single_action_space, rng) for _ in range(num_envs)])
        observation, reward, terminated, truncated, info = vector.step(actions)
        assert np.isfinite(reward).all()
        assert not (terminated & truncated).any(), "an episode both terminated and was truncated"
        np.testing.assert_allclose(reward, _blended(vector.unwrapped, info["reward_terms"]), rtol=1e-4, atol=1e-6)
        assert (info["carbon_kg"] >= 0).all()


def check_masks(env_id: str, **kwargs: Any) -> None:
    """The mask is never empty, a regimen that it allows is given, and one that it forbids becomes a drug holiday."""
    env: Any = gym.make(env_id, **kwargs)
    names = env.get_wrapper_attr("action_names")
    rng = np.random.default_rng(2)
    _, info = env.reset(seed=2)
    for _ in range(300):
        mask = info["action_mask"]
        assert mask.any() or isinstance(env.action_space, gym.spaces.Box), "the action mask is empty"  # a Box allows a pause
        assert np.array_equal(mask, env.get_wrapper_attr("action_masks")())
        action = sample(env.action_space, rng)
        chosen, can = _regimen(env.unwrapped, action, mask)
        _, _, terminated, truncated, info = env.step(action)
        expected = names[chosen] if can else "drug_holiday"
        assert info["given"] == expected, f"chose {names[chosen]}, got {info['given']}, expected {expected}"
        if terminated or truncated:
            _, info = env.reset()


def _regimen(env: Any, action: Any, mask: NDArray[np.bool_]) -> tuple[int, bool]:
    """The regimen that an action chooses, and whether the mask allows it."""
    match env.action_space:
        case gym.spaces.Box():
            active = np.flatnonzero(env.engine.params.active)
            return int(active[np.argmax(action)]), bool(mask[np.argmax(action)])
        case gym.spaces.MultiDiscrete():
            return int(action[-2]), bool(mask[int(env.action_space.nvec[:-2].sum()) + int(action[-2])])
    return int(action), bool(mask[action])


def check_errors(env_id: str, **kwargs: Any) -> None:
    """Wrong use raises an error with a message, and the episode can continue."""
    env: Any = gym.make(env_id, **kwargs)
    good = sample(env.action_space, np.random.default_rng(0))
    _expect(gym.error.ResetNeeded, lambda: env.step(good))
    env.reset(seed=0)
    shape = np.shape(good)
    for wrong in (*(np.full(shape, value) for value in (-1, 10**6, np.nan)), np.full((*shape, 2), 0), "osimertinib", None):
        _expect(gym.error.InvalidAction, lambda wrong=wrong: env.unwrapped.step(wrong))
    env.step(good)
    vector: Any = gym.make_vec(env_id, num_envs=NUM_ENVS, **kwargs)
    every = np.stack([good] * NUM_ENVS)
    _expect(gym.error.ResetNeeded, lambda: vector.step(every))
    vector.reset(seed=0)
    for actions in (every[:3], every - 10**6, every + 10**6, every.astype(object)):
        _expect(gym.error.InvalidAction, lambda actions=actions: vector.step(actions))
    vector.step(every)


def sample(space: gym.Space[Any], rng: np.random.Generator) -> Any:
    """A random action of ``space``."""
    match space:
        case gym.spaces.Box():
            return rng.random(space.shape, np.float32)
        case gym.spaces.MultiDiscrete():
            return rng.integers(0, space.nvec)
        case gym.spaces.Discrete():
            return rng.integers(0, space.n)
    raise TypeError(f"the action space is {space}, expected Box, MultiDiscrete or Discrete")


def _blended(env: Any, terms: Any) -> Any:
    """The reward for ``terms``: their weighted sum, or the vector of terms in a multi-objective environment."""
    if hasattr(env, "reward_space"):
        return np.stack(list(terms.values()), -1)
    return sum(env.engine.weights[name] * term for name, term in terms.items())


def scalar(env: Any) -> Any:
    """``env`` with a scalar reward, which the checkers of Gymnasium and Stable-Baselines3 require."""
    kind = type(env)
    if not hasattr(env, "reward_space"):
        return env
    # A subclass, because the checkers refuse wrappers.
    env.__class__ = type(kind.__name__, (kind,), {"_reward": lambda self, values: float(np.sum(kind._reward(self, values)))})
    return env


def _expect(kind: type[Exception], call: Any) -> None:
    said = None
    try:
        call()
    except kind as error:
        said = str(error)
    assert said, f"expected {kind.__name__} with a message"


def _record(env_id: str, seed: int, episodes: int, **kwargs: Any) -> list[tuple[Any, ...]]:
    env: Any = gym.make(env_id, **kwargs)
    rng = np.random.default_rng(9)
    steps: list[tuple[Any, ...]] = []
    for episode in range(episodes):
        steps.append(env.reset(seed=seed if episode == 0 else None))
        while len(steps[-1]) == 2 or not (steps[-1][2] or steps[-1][3]):  # a reset, or a step that did not end the episode
            steps.append(env.step(sample(env.action_space, rng)))
    return steps
