"""Every registered id keeps what the suite promises."""

import subprocess
import sys
import warnings

import gymnasium as gym
import jax
import numpy as np
import pytest
from conftest import EVERY, IDS

from onco_gym import testing
from onco_gym.cards import card_files
from onco_gym.interfaces.registry import DECIDE

CHECKS = ("api", "determinism", "single_equals_vector", "finite", "masks", "errors")
LONG = ("single_equals_vector", "finite", "errors")
"""Take half a minute each to compile for a workflow."""
PAIRS = [
    pytest.param(check, env_id, marks=pytest.mark.slow if check in LONG and "Workflow" in env_id else marks)
    for check in CHECKS
    for (env_id,), marks, _ in EVERY
]


@pytest.mark.parametrize(("check", "env_id"), PAIRS)
def test_every_id(check, env_id):
    getattr(testing, f"check_{check}")(env_id)


@pytest.mark.parametrize("check", ["determinism", "single_equals_vector", "masks"])
@pytest.mark.parametrize("env_id", ["onco_gym/NSCLC-v0", "onco_gym/NSCLC-Dose-v0", "onco_gym/mo-NSCLC-v0"])
def test_decision_points_keep_it_too(check, env_id):
    getattr(testing, f"check_{check}")(env_id, decide="events")


def test_four_diseases_of_four_kinds_are_registered():
    names = ["Breast", "Colorectal", "Melanoma", "NSCLC"]
    kinds = ["{}-v0", "{}-Dose-v0", "{}-Workflow-v0", "mo-{}-v0"]
    assert sorted(f"onco_gym/{kind.format(name)}" for name in names for kind in kinds) == IDS


@pytest.mark.parametrize("env_id", EVERY)
def test_stable_baselines3_accepts_it(env_id):
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*symmetric and normalized Box action space")  # doses are shares, 0 to 1
        check_env(testing.scalar(gym.make(env_id).unwrapped))


def test_stable_baselines3_trains_on_it():
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    model = PPO("MlpPolicy", gym.make("onco_gym/Colorectal-v0"), n_steps=64, seed=0).learn(128)
    action, _ = model.predict(gym.make("onco_gym/Colorectal-v0").reset(seed=0)[0])
    assert 0 <= int(action) < 20


def test_gymnasium_wrappers_work_on_the_vector():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vector = gym.wrappers.vector.RecordEpisodeStatistics(gym.make_vec("onco_gym/NSCLC-v0", num_envs=256))
        vector.reset(seed=0)
        ended = recorded = 0
        for _ in range(40):
            _, _, terminated, truncated, info = vector.step(np.full(256, 1))
            ended += (terminated | truncated).sum()
            recorded += info["_episode"].sum() if "episode" in info else 0
    assert ended == recorded > 0


def test_a_card_of_your_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(card_files()["melanoma"].read_text())
    testing.check_all("onco_gym/Card-v0", card=path)


def test_seeds_that_differ_only_in_their_high_bits_differ():
    env = gym.make("onco_gym/NSCLC-v0")
    assert not np.array_equal(env.reset(seed=7)[0], env.reset(seed=7 + 2**40)[0])


def test_a_patient_and_its_chance_can_be_asked_for():
    env = gym.make("onco_gym/NSCLC-v0")
    asked = {"patient": 17, "key": "00000000000000ff"}
    one, info = env.reset(seed=1, options=asked)
    two, _ = env.reset(seed=2, options=asked)
    assert env.unwrapped.origin == tuple(asked.values())
    assert not {"patient", "key", "row"} & info.keys(), "an agent must not learn who its patient is"
    assert np.array_equal(one, two)


def test_step_is_compiled_once():
    vector = gym.make_vec("onco_gym/NSCLC-v0", num_envs=256)
    vector.reset(seed=0)
    move = vector.unwrapped.engine.move.func
    before = move._cache_size()
    for cycle in range(30):
        vector.step(np.full(256, cycle % 5))
    assert move._cache_size() - before <= 1


@pytest.mark.parametrize("decide", DECIDE)
def test_nothing_is_compiled_after_the_first_steps(decide):
    """Not even when all episodes end at once, or after another reset."""
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    options = {"horizon": 7, "terms": ("outcome",), "decide": decide}
    vector, env = gym.make_vec("onco_gym/NSCLC-v0", num_envs=300, **options), gym.make("onco_gym/NSCLC-v0", **options)
    vector.reset(seed=0)
    env.reset(seed=0)
    for number in range(40):
        vector.step(np.full(300, number % 5))
        if any(env.step(number % 5)[2:4]):
            env.reset()
        if number == 2:
            before = len(compiled)
        if number == 20:
            vector.reset()
            vector.reset(seed=1)
    assert before > 0
    assert compiled[before:] == []


def test_tiles_make_no_difference(monkeypatch):
    """Environments that are stepped in tiles beside each other are those that are stepped together, fairness included."""
    one = gym.make_vec("onco_gym/NSCLC-v0", num_envs=256)
    monkeypatch.setattr("onco_gym.interfaces.vector.TILE", 128)
    many = gym.make_vec("onco_gym/NSCLC-v0", num_envs=256)
    assert [len(env.unwrapped._slices) for env in (one, many)] == [1, 2]
    first, second = (env.reset(seed=4)[0] for env in (one, many))
    ended, rng = 0, np.random.default_rng(0)
    for _ in range(8):
        np.testing.assert_allclose(first, second, atol=1e-6)
        actions = rng.integers(one.single_action_space.n, size=256)
        (first, reward, over, cut, info), (second, also, *_, said) = one.step(actions), many.step(actions)
        np.testing.assert_allclose(reward, also, atol=1e-6)
        for name, term in info["reward_terms"].items():
            np.testing.assert_allclose(term, said["reward_terms"][name], atol=1e-5)
        np.testing.assert_array_equal(info["action_mask"], said["action_mask"])
        np.testing.assert_array_equal(info["guideline"]["best"], said["guideline"]["best"])
        if (over | cut).any():
            np.testing.assert_allclose(info["final_obs"], said["final_obs"], atol=1e-6)
        ended += (over | cut).sum()
    assert ended > 20
    for name, found in one.unwrapped.fairness().items():
        assert found.decisions > 256
        assert found == pytest.approx(many.unwrapped.fairness()[name], rel=1e-5)


def test_all_episodes_ending_at_once():
    vector = gym.make_vec("onco_gym/NSCLC-v0", num_envs=300, horizon=3, terms=("outcome",), decide="cycles")
    vector.reset(seed=0)
    for _ in range(2):
        vector.step(np.zeros(300, int))
    observation, _, _, truncated, info = vector.step(np.zeros(300, int))
    assert truncated.sum() > 200
    cycle = next(field.index for field in vector.unwrapped.observation_fields if field.name == "cycle")
    assert (observation[truncated, cycle] == 0).all()
    assert np.allclose(info["final_obs"][truncated, cycle] * vector.unwrapped.engine.scenario.horizon, 3)


def test_the_pictures_have_something_on_them():
    env = gym.make("onco_gym/NSCLC-v0", render_mode="rgb_array")
    env.reset(seed=0)
    for _ in range(5):
        env.step(2)
    frame = env.render()
    assert frame.shape == (720, 960, 3)
    assert (frame < 128).mean() > 0.005


def test_a_saved_picture_shows_every_cycle(tmp_path, monkeypatch):
    """Also those between decision points, and no gaps in the treatment."""
    env, shown = gym.make("onco_gym/NSCLC-v0").unwrapped, []
    monkeypatch.setattr("onco_gym.interfaces.single.png", lambda card, scenario, history: shown.extend(history) or b"picture")
    env.reset(seed=0)
    cycles = [env.step(2)[4]["cycles"] for _ in range(4)]
    env.save_picture(tmp_path / "journey.png")
    assert sum(cycles) > len(cycles)
    assert [int(one.state.cycle[0]) for one in shown] == list(range(sum(cycles) + 1))
    np.testing.assert_allclose(shown[-1].state.clones, env.journey.state.clones, rtol=1e-5)


def test_import_is_light():
    code = "import sys, onco_gym; print([m for m in ('jax', 'torch', 'pydantic', 'matplotlib', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
