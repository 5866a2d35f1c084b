"""Sealed chance: who does not know the secret cannot foresee a patient or an event."""

import gymnasium as gym
import numpy as np
import pytest
from conftest import refuses

import onco_gym as og
from onco_gym.agents import engine_of, load_agent
from onco_gym.interfaces.arguments import EngineError
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.origins import Seat, key_words, stream_of

SECRET = bytes(range(32))
SHORT = {"horizon": 20, "terms": ("outcome",)}


def test_a_secret_gives_its_own_patients_and_luck_everywhere():
    env = gym.make("onco_gym/NSCLC-v0", secret=SECRET, **SHORT)
    vector = gym.make_vec("onco_gym/NSCLC-v0", num_envs=256, secret=SECRET, **SHORT)
    every, _ = vector.reset(seed=3)
    for seed in (3, 4):
        one, _ = env.reset(seed=seed)
        assert np.array_equal(one, every[seed - 3])
        assert len(env.unwrapped.origin[1]) == 64
    for _ in range(6):
        one, _, terminated, _, _ = env.step(2)
        every, *_ = vector.step(np.full(256, 2))
        if terminated:
            break
        np.testing.assert_allclose(one, every[1], atol=1e-6)
    other = make_engine("nsclc", secret=SECRET[::-1], **SHORT).origins(64, seed=3)
    mine, plain = env.unwrapped.engine.origins(64, seed=3), make_engine("nsclc", **SHORT).origins(64, seed=3)
    assert (other.row != mine.row).any()
    assert not (np.asarray(other.key) == np.asarray(mine.key)).all(0).any()
    assert plain.key.shape == (2, 64)
    assert mine.key.shape == (8, 64)


def test_a_sealed_episode_can_be_replayed_by_whoever_has_its_key(tmp_path):
    sealed, path = make_engine("nsclc", secret=SECRET, **SHORT), tmp_path / "episodes.json"
    episodes = og.rollout(sealed, load_agent(sealed, "guideline"), 6, seed=1)
    og.write_episodes(path, sealed, episodes)
    plain = engine_of(path)
    again = og.replay(plain, og.read_episodes(path, plain))
    np.testing.assert_array_equal(again.returns, episodes.returns)
    row, key, actions = episodes.of(2)
    env = gym.make("onco_gym/NSCLC-v0", **SHORT)
    env.reset(options={"patient": row, "key": key})
    total = sum(env.step(action)[1] for action in actions)
    assert total == pytest.approx(episodes.returns[2], abs=1e-4)


def test_an_engine_among_other_patients_is_the_one_that_is_made_with_them():
    plain = make_engine("nsclc", **SHORT)
    cohort = plain.generator.sample(300, seed=7)
    moved, made = plain.among(cohort, SECRET), make_engine("nsclc", cohort, secret=SECRET, **SHORT)
    assert moved.stamp == made.stamp
    assert np.array_equal(moved.origins(50).key, made.origins(50).key)
    played = [og.rollout(one, load_agent(one, "guideline"), 50).returns for one in (moved, made)]
    np.testing.assert_array_equal(*played)
    assert (played[0] != og.rollout(plain, load_agent(plain, "guideline"), 50).returns).any()
    assert moved.deciding("cycles") is moved.deciding("cycles")  # what it compiled is not compiled again
    assert moved.deciding("cycles").stamp.cohort_digest == moved.stamp.cohort_digest


def test_no_two_seeds_share_a_stream():
    seeds = np.concatenate([np.arange(500_000, dtype=np.uint64), ~np.arange(500_000, dtype=np.uint64)])
    stream = stream_of(seeds)
    assert len(np.unique(stream.astype(np.uint64)[0] << np.uint64(32) | stream[1])) == len(seeds)
    origin = make_engine("nsclc", **SHORT).draw(Seat.first(seeds[:200_000]))
    assert len(np.unique(origin.key, axis=1).T) == 200_000


def test_wrong_secrets_and_keys_are_refused():
    for secret in (b"short", "x" * 32, 5):
        refuses(EngineError, "expected 32 bytes", make_engine, "nsclc", secret=secret)
    for key in ("", "xyz", "0" * 15, "0" * 63, 7, None):
        refuses(EngineError, "expected 16 or 64 hexadecimal digits", key_words, key)
