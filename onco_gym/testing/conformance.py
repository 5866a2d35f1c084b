"""What every environment of this suite promises, as functions that raise ``AssertionError`` where it is not kept.

Each takes the id and the keyword arguments of ``gym.make``:
``check_all("onco_gym/NSCLC-v0")`` or ``check_all("onco_gym/Card-v0", card="mine.toml")``.
"""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

import onco_gym  # noqa: F401 - registers the ids


def check_all(env_id: str, **kwargs: Any) -> None:
    """Run every check of this module."""
    check_api(env_id, **kwargs)
    check_determinism(env_id, **kwargs)
    check_single_equals_vector(env_id, **kwargs)
    check_finite(env_id, **kwargs)
    check_masks(env_id, **kwargs)
    check_errors(env_id, **kwargs)


def check_api(env_id: str, **kwargs: Any) -> None:
    """Gymnasium's own check, with no warning; field and action names that match the spaces."""
    env: Any = gym.make(env_id, **kwargs).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)
    for mode in env.metadata["render_modes"]:
        if mode != "human":
            drawn: Any = gym.make(env_id, render_mode=mode, **kwargs)
            drawn.reset(seed=0)
            drawn.step(0)
            frame = drawn.render()
            assert isinstance(frame, str) or frame.dtype == np.uint8, f"{mode} gave {type(frame)}"
    fields = env.get_wrapper_attr("observation_fields")
    assert [field.index for field in fields] == list(range(env.observation_space.shape[0]))
    assert len({field.name for field in fields}) == len(fields), "two observation fields share a name"
    assert len(env.get_wrapper_attr("action_names")) == env.action_space.n


def check_determinism(env_id: str, seed: int = 2**64 - 1, **kwargs: Any) -> None:
    """Whole episodes: same seed and actions, same everything; another seed, another patient."""
    first, second = (_record(env_id, seed, 3, **kwargs) for _ in range(2))
    for one, two in zip(first, second, strict=True):
        _assert_same(one, two)
    other = _record(env_id, seed - 1, 1, **kwargs)
    assert not np.array_equal(first[0][0], other[0][0]), "two seeds gave the same first observation"


def check_single_equals_vector(env_id: str, num_envs: int = 8, cycles: int = 120, **kwargs: Any) -> None:
    """Environment i of the vector is the single environment with seed + i, through its resets; actions are left alone."""
    vector: Any = gym.make_vec(env_id, num_envs=num_envs, **kwargs)
    actions = np.random.default_rng(5).integers(0, vector.single_action_space.n, (cycles, num_envs))
    before = actions.copy()
    seed = 2**63
    steps: list[Any] = [vector.reset(seed=seed), *(vector.step(action) for action in actions)]
    assert np.array_equal(actions, before), "the caller's actions were changed"
    single: Any = gym.make(env_id, **kwargs)
    for i in range(num_envs):
        observation, _ = single.reset(seed=seed + i)
        np.testing.assert_allclose(observation, steps[0][0][i], atol=1e-6)
        for cycle in range(cycles):
            observation, reward, terminated, truncated, info = single.step(actions[cycle, i])
            many, rewards, ends, cuts, infos = steps[cycle + 1]
            assert (terminated, truncated) == (ends[i], cuts[i]), f"environment {i} ends elsewhere in cycle {cycle}"
            np.testing.assert_allclose(reward, rewards[i], atol=1e-6)
            assert info["given"] == vector.unwrapped.action_names[infos["given"][i]], "another regimen was given"
            if terminated or truncated:
                assert infos["_final_obs"][i]
                np.testing.assert_allclose(observation, infos["final_obs"][i], atol=1e-5)
                observation, info = single.reset()
            np.testing.assert_allclose(observation, many[i], atol=1e-5)
            np.testing.assert_array_equal(info["action_mask"], infos["action_mask"][i])


def check_finite(env_id: str, num_envs: int = 256, cycles: int = 200, **kwargs: Any) -> None:
    """Random play stays finite and within the spaces, and rewards are finite and add up to the terms."""
    vector: Any = gym.make_vec(env_id, num_envs=num_envs, **kwargs)
    rng = np.random.default_rng(1)
    observation, _ = vector.reset(seed=1)
    for _ in range(cycles):
        assert observation in vector.observation_space
        actions = rng.integers(0, vector.single_action_space.n, num_envs)
        observation, reward, terminated, truncated, info = vector.step(actions)
        assert np.isfinite(reward).all()
        assert not (terminated & truncated).any(), "an episode both terminated and was truncated"
        weights, terms = vector.unwrapped.engine.weights, info["reward_terms"]
        np.testing.assert_allclose(
            reward, sum(weights.get(name, 0.0) * term for name, term in terms.items()), rtol=1e-5, atol=1e-7
        )


def check_masks(env_id: str, **kwargs: Any) -> None:
    """The mask is never empty, what it allows is given, and what it forbids becomes a drug holiday."""
    env: Any = gym.make(env_id, **kwargs)
    names = env.get_wrapper_attr("action_names")
    rng = np.random.default_rng(2)
    _, info = env.reset(seed=2)
    for _ in range(300):
        mask = info["action_mask"]
        assert mask.any(), "no regimen can be given"
        assert np.array_equal(mask, env.get_wrapper_attr("action_masks")())
        action = int(rng.integers(len(names)))
        _, _, terminated, truncated, info = env.step(action)
        expected = names[action] if mask[action] else "drug_holiday"
        assert info["given"] == expected, f"chose {names[action]}, got {info['given']}, expected {expected}"
        if terminated or truncated:
            _, info = env.reset()


def check_errors(env_id: str, **kwargs: Any) -> None:
    """Wrong use gives an error that says so, and the episode is not lost."""
    env: Any = gym.make(env_id, **kwargs)
    _expect(gym.error.ResetNeeded, lambda: env.step(0))
    env.reset(seed=0)
    count = len(env.get_wrapper_attr("action_names"))
    for wrong in (-1, count, 0.5, "osimertinib", None):
        _expect(gym.error.InvalidAction, lambda wrong=wrong: env.unwrapped.step(wrong))
    env.step(0)
    vector: Any = gym.make_vec(env_id, num_envs=2, **kwargs)
    _expect(gym.error.ResetNeeded, lambda: vector.step(np.zeros(2, int)))
    vector.reset(seed=0)
    for actions in (np.zeros(3, int), np.zeros(2), np.array([0, count]), np.array([-1, 0])):
        _expect(gym.error.InvalidAction, lambda actions=actions: vector.step(actions))
    vector.step(np.zeros(2, int))


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
        observation, info = env.reset(seed=seed if episode == 0 else None)
        steps.append((observation, 0.0, False, False, info))
        over = False
        while not over:
            step = env.step(int(rng.integers(env.action_space.n)))
            over = bool(step[2] or step[3])
            steps.append(step)
    return steps


def _assert_same(one: tuple[Any, ...], two: tuple[Any, ...]) -> None:
    observations: tuple[NDArray[Any], NDArray[Any]] = (one[0], two[0])
    assert np.array_equal(*observations), "observations differ"
    assert one[1:4] == two[1:4], "reward or end differ"
    assert np.array_equal(one[4]["action_mask"], two[4]["action_mask"]), "masks differ"
    assert one[4]["reward_terms"] == two[4]["reward_terms"], "reward terms differ"
