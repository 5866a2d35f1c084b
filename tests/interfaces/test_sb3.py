"""Stable-Baselines3: its VecEnv over ours, and that its algorithms learn on it."""

import copy
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import refuses
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecCheckNan, VecMonitor, VecNormalize

import onco_gym
from onco_gym.interfaces.registry import UnknownEnvironmentError
from onco_gym.interfaces.sb3 import Sb3Error

N = 8
SETTINGS = {"terms": ("outcome",), "horizon": 12}  # short: many die, and many live to the end of follow-up
KINDS = ("", "-Dose", pytest.param("-Workflow", marks=pytest.mark.slow))  # the last takes long to compile


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(kind="", n=N, seed=0, monitor=False):
    return onco_gym.make_sb3(f"onco_gym/NSCLC{kind}-v0", n_envs=n, seed=seed, monitor=monitor, **SETTINGS)


def test_episode_returns_are_reported_by_default():
    env = onco_gym.make_sb3("NSCLC", n_envs=N, **SETTINGS)
    assert isinstance(env, VecMonitor)
    assert is_masking_supported(env)


def drawn(space, n, seed):
    space = copy.deepcopy(space)
    space.seed(seed)
    while True:
        yield np.stack([space.sample() for _ in range(n)])


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_the_vector_environment(kind):
    """Which are those of single environments: the conformance checks."""
    env, plain = make(kind, seed=5), gym.make_vec(f"onco_gym/NSCLC{kind}-v0", num_envs=N, **SETTINGS)
    np.testing.assert_array_equal(env.reset(), plain.reset(seed=5)[0])
    ended = cut = cycles = 0
    for action, _ in zip(drawn(env.action_space, N, 0), range(30), strict=False):
        observation, reward, done, infos = env.step(action)
        assert (observation.dtype, reward.dtype, done.dtype) == (np.float32, np.float32, bool)
        seen, value, terminated, truncated, info = plain.step(action)
        np.testing.assert_array_equal(observation, seen)
        np.testing.assert_array_equal(reward, value)
        np.testing.assert_array_equal(done, terminated | truncated)
        np.testing.assert_array_equal(env.action_masks(), info["action_mask"])
        cycles += info["cycles"].sum()
        assert env.unwrapped.cycles == cycles, "a budget of cycles counts what was simulated"
        for i in np.flatnonzero(done):
            np.testing.assert_array_equal(infos[i]["terminal_observation"], info["final_obs"][i])
            assert infos[i]["TimeLimit.truncated"] is bool(truncated[i])
            assert info["final_info"]["action_mask"][i].shape == env.action_masks()[i].shape
            ended, cut = ended + 1, cut + truncated[i]
    assert ended > N
    assert 0 < cut < ended


def test_no_info_is_made_where_no_episode_ended():
    env = make()
    env.reset()
    quiet = None
    for action, _ in zip(drawn(env.action_space, N, 1), range(40), strict=False):
        _, _, done, infos = env.step(action)
        assert isinstance(infos, list)
        shared = {id(info) for info, ended in zip(infos, done, strict=True) if not ended}
        quiet = quiet or shared
        assert shared <= quiet, "one dict for all, in every step"
        assert len(shared) <= 1
        assert all(set(infos[i]) == {"terminal_observation", "TimeLimit.truncated"} for i in np.flatnonzero(done))


def test_what_is_shared_cannot_be_written_to():
    env = make()
    env.reset()
    info = env.step(next(drawn(env.action_space, N, 0)))[3][0]
    assert info == {}
    for write in (lambda: info.update(a=1), lambda: info.__setitem__("a", 1), lambda: info.setdefault("a", 1)):
        with pytest.raises(TypeError, match="shared"):
            write()
    for copied in (info.copy(), copy.copy(info), copy.deepcopy(info)):
        copied["a"] = 1
        assert type(copied) is dict
    assert info == {}


def test_rewards_and_observations_belong_to_the_caller():
    """SB3 adds bootstrapped values to the rewards in place."""
    env = make()
    kept = env.reset()
    before = kept.copy()
    _, reward, _, _ = env.step(next(drawn(env.action_space, N, 0)))
    reward += 1
    kept += 1
    np.testing.assert_array_equal(kept, before + 1)


def test_seeds():
    first, again, other = make(seed=3), make(seed=3), make(seed=4)
    one = first.reset()
    np.testing.assert_array_equal(one, again.reset())
    assert not np.array_equal(one, first.reset())  # the seed counts once; these are the next patients
    np.testing.assert_array_equal(one[1:], other.reset()[:-1])
    assert first.seed(3) == list(range(3, 3 + N))
    np.testing.assert_array_equal(one, first.reset())
    unseeded = make(seed=None)
    assert unseeded.reset().shape == one.shape
    first.set_options({"patient": 3})
    with pytest.raises(Sb3Error, match="options"):
        first.reset()


def test_attributes_and_methods():
    env = make()
    observation = env.reset()
    assert env.get_attr("action_names")[0][0] == env.get_attr("action_names", [2])[0][0]
    assert env.get_attr("observation_space", 1) == [env.observation_space]
    assert env.observation_space.shape == observation.shape[1:]
    assert env.get_attr("spec")[0].id == "onco_gym/NSCLC-v0"
    assert env.render_mode is None
    assert not env.has_attr("no_such_thing")
    assert env.env_is_wrapped(Monitor) == [False] * N
    assert env.env_is_wrapped(Monitor, [1, 2]) == [False] * 2
    assert len(env.env_method("action_masks", indices=[0, 3])) == 2
    assert set(env.env_method("fairness", indices=0)[0]) == set(env.env.fairness())
    env.set_attr("note", 3)
    assert env.get_attr("note") == [3] * N
    for name, indices in (("note", [1]), ("action_space", None)):
        refuses(Sb3Error, "cannot be set", env.set_attr, name, 1, indices)
    refuses(AttributeError, "expected action_masks", env.env_method, "step", 1)
    with pytest.raises(gym.error.ResetNeeded):
        env.step_wait()
    env.close()


@pytest.mark.parametrize("kind", KINDS)
def test_masks_as_sb3_contrib_asks_for_them(kind):
    env = VecNormalize(VecMonitor(make(kind)))
    env.reset()
    assert is_masking_supported(env)
    source = drawn(env.action_space, N, 0)
    for _ in range(5):
        masks = get_action_masks(env)
        assert masks.shape == (N, env.unwrapped.env.engine.kind.mask_size)
        assert masks.dtype == bool
        np.testing.assert_array_equal(masks, env.unwrapped.action_masks())
        env.step(next(source))
    np.testing.assert_array_equal(env.env_method("action_masks", indices=[2])[0], get_action_masks(env)[2])


def test_what_cannot_be_made():
    refuses(Sb3Error, r"vector of rewards.*onco_gym/NSCLC-v0", onco_gym.make_sb3, "onco_gym/mo-NSCLC-v0")
    refuses(UnknownEnvironmentError, "there is no environment or card 'CartPole-v1'", onco_gym.make_sb3, "CartPole-v1")
    refuses(Sb3Error, "at least 1", onco_gym.make_sb3, "onco_gym/NSCLC-v0", n_envs=0)
    env = make()
    env.reset()
    with pytest.raises(gym.error.InvalidAction):
        env.step(np.full(N, 99))


def test_without_sb3_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    monkeypatch.delitem(sys.modules, "onco_gym.interfaces.sb3")
    with pytest.raises(ImportError, match=r"pip install \"onco_gym\[sb3\]\""):
        onco_gym.make_sb3  # noqa: B018 - the attribute is what is imported


def test_importing_agents_imports_no_torch():
    code = "import sys, onco_gym, onco_gym.agents; print({'torch', 'stable_baselines3', 'onnx', 'onnxruntime'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_normalised_and_monitored_returns_are_ours():
    plain, wrapped = make(), VecNormalize(VecMonitor(make()), norm_reward=True)
    plain.reset()
    wrapped.reset()
    total, ours, theirs = np.zeros(N), [], []
    for action, _ in zip(drawn(plain.action_space, N, 2), range(40), strict=False):
        observation, reward, done, infos = plain.step(action)
        total += reward
        scaled, _, done_too, wrapped_infos = wrapped.step(action)
        np.testing.assert_array_equal(done, done_too)
        np.testing.assert_array_equal(wrapped.get_original_obs(), observation)
        np.testing.assert_allclose(wrapped.get_original_reward(), reward)
        for i in np.flatnonzero(done):
            ours.append(total[i])
            theirs.append(wrapped_infos[i]["episode"]["r"])
            total[i] = 0
            raw = infos[i]["terminal_observation"]
            np.testing.assert_allclose(wrapped_infos[i]["terminal_observation"], wrapped.normalize_obs(raw), atol=1e-5)
        assert all("episode" not in wrapped_infos[i] for i in np.flatnonzero(~done))
        assert scaled.dtype == np.float32
    assert len(ours) > 20
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


ROLLOUTS, REPLAYS = {"n_steps": 16, "batch_size": 64, "n_epochs": 2}, {"learning_starts": 100, "buffer_size": 1000}


class _Endings(BaseCallback):
    def __init__(self):
        super().__init__()
        self.count = 0

    def _on_step(self):
        self.count += int(self.locals["dones"].sum())
        return True


@pytest.mark.parametrize(
    ("algorithm", "kind", "settings"),
    [
        (PPO, "", ROLLOUTS),
        (PPO, "-Dose", ROLLOUTS),
        pytest.param(PPO, "-Workflow", ROLLOUTS, marks=pytest.mark.slow),
        (A2C, "", {}),
        (DQN, "", REPLAYS),
        (MaskablePPO, "", ROLLOUTS),
        pytest.param(MaskablePPO, "-Workflow", ROLLOUTS, marks=pytest.mark.slow),
        (SAC, "-Dose", REPLAYS),
    ],
)
def test_algorithms_learn(algorithm, kind, settings):
    env = VecCheckNan(VecMonitor(make(kind)), raise_exception=True)
    model = algorithm("MlpPolicy", env, seed=0, device="cpu", **settings)
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    endings = _Endings()
    model.learn(400, callback=endings)
    assert any(not torch.equal(old, new) for old, new in zip(before, model.policy.parameters(), strict=True))
    assert endings.count > 0
    assert min(endings.count, 100) == len(model.ep_info_buffer)


def test_evaluate_policy():
    env = VecMonitor(make())
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=64, seed=0, device="cpu")
    mean, spread = evaluate_policy(model, env, n_eval_episodes=2 * N)
    assert 0 < mean < 2
    assert spread > 0
