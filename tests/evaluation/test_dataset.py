import signal
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from conftest import refuses

import onco_gym
from onco_gym.agents import AgentError
from onco_gym.evaluation import dataset as made
from onco_gym.evaluation.dataset import DatasetError, default_id, write_dataset
from onco_gym.rewards import TERMS

minari = pytest.importorskip("minari")
OPTIONS = {"weights": {"fairness": 0}, "horizon": 12}


pytestmark = pytest.mark.usefixtures("home")


def contents(name):
    loaded = minari.load_dataset(name)
    return loaded, list(loaded.iterate_episodes())


@pytest.mark.parametrize(
    ("env_id", "agent", "space"),
    [
        ("onco_gym/NSCLC-v0", "random", gym.spaces.Discrete),
        pytest.param("onco_gym/Melanoma-Dose-v0", "guideline", gym.spaces.Box, marks=pytest.mark.slow),
        pytest.param("onco_gym/Melanoma-Workflow-v0", "random", gym.spaces.MultiDiscrete, marks=pytest.mark.slow),
        pytest.param("onco_gym/mo-Melanoma-v0", "guideline", gym.spaces.Discrete, marks=pytest.mark.slow),
    ],
)
def test_replayed_actions_reproduce_the_recorded_episodes(env_id, agent, space, monkeypatch):
    monkeypatch.setattr(made, "WAVE", 1)
    written = write_dataset(env_id, agent, 50, seed=2**64 - 20, options=OPTIONS)
    loaded, episodes = contents(written.dataset_id)
    assert written.episodes == len(episodes) == loaded.total_episodes == 50
    assert written.steps == loaded.total_steps == sum(len(episode) for episode in episodes)
    assert written.path.is_dir()
    env = loaded.recover_environment()
    assert env.spec.id == env_id
    assert isinstance(env.action_space, space)
    assert loaded.action_space == env.action_space
    seeds = [row["seed"] for row in loaded.storage.get_episode_metadata(range(50))]
    assert seeds[:1] + seeds[-1:] == [2**64 - 20, 29]
    for index in (0, 21, 31, 32, 49):
        episode = episodes[index]
        steps = len(episode)
        observation, info = env.reset(seed=seeds[index])
        for step in range(steps + 1):
            np.testing.assert_allclose(episode.observations[step], observation, atol=1e-5)
            assert np.array_equal(episode.infos["action_mask"][step], info["action_mask"])
            for name in TERMS:
                if name != "fairness":
                    expected = pytest.approx(info["reward_terms"][name], abs=1e-5)
                    assert episode.infos["reward_terms"][name][step] == expected
            assert episode.infos["carbon_kg"][step] == pytest.approx(info["carbon_kg"], rel=1e-4)
            code = episode.infos["verdict"][step]
            assert info["guideline"]["verdict"] == (loaded.storage.metadata["verdicts"][code] if step else None)
            if step == steps:
                break
            action = episode.actions[step]
            assert env.action_space.contains(action)
            observation, reward, terminated, truncated, info = env.step(action)
            if np.ndim(reward):
                reward, episode.rewards[:, 2] = np.where(np.arange(4) == 2, 0, reward), 0
            np.testing.assert_allclose(episode.rewards[step], reward, atol=1e-5)
            assert (terminated, truncated) == (episode.terminations[step], episode.truncations[step])
        assert terminated or truncated
        if agent == "random" and space is gym.spaces.Discrete:
            chances = episode.infos["probabilities"]
            assert chances.shape == (steps, 21)
            np.testing.assert_allclose(chances[np.arange(steps), episode.actions], 1 / episode.infos["action_mask"][:-1].sum(1))


@pytest.mark.slow
def test_the_metadata_say_what_it_is_and_a_longer_dataset_begins_with_the_shorter(home):
    name = "oncology/nsclc/guideline-v0"
    assert default_id("onco_gym/NSCLC-v0", "guideline") == name
    for episodes in (5, 45):
        write_dataset("onco_gym/NSCLC-v0", "guideline", episodes, dataset_id=f"n{episodes}-v0", options=OPTIONS)
    (_, short), (loaded, long) = contents("n5-v0"), contents("n45-v0")
    for one, two in zip(short, long, strict=False):
        assert np.array_equal(one.observations, two.observations)
        assert np.array_equal(one.rewards, two.rewards)
    about = loaded.storage.metadata
    assert about["algorithm_name"] == about["agent"] == "guideline"
    assert about["onco_gym_version"] == onco_gym.__version__
    assert about["card_digest"] in (gym.make("onco_gym/NSCLC-v0").unwrapped.engine.scenario.digest,)
    assert (about["seed"], about["reward_weights"]["fairness"], about["code_permalink"]) == (0, 0, "")
    returns = [episode.rewards.sum(dtype=float) for episode in long]
    assert about["mean_return"] == pytest.approx(np.mean(returns))
    assert "research software" in about["description"]
    assert sorted(minari.list_local_datasets()) == ["n45-v0", "n5-v0"]
    assert not [path for path in home.iterdir() if path.name.startswith(".")]


def test_what_cannot_be_written_is_refused_before_the_work(home):
    for name in ("nothing", "../up-v0", "a b-v0", "a/short-v0"):
        refuses(DatasetError, "is not the name of a dataset", write_dataset, "onco_gym/NSCLC-v0", "guideline", 3, dataset_id=name)
    refuses(DatasetError, "episodes is 0, expected at least 1", write_dataset, "onco_gym/NSCLC-v0", "guideline", 0)
    (home / "mine-v0").mkdir()
    with pytest.raises(DatasetError, match="exists and is not a dataset; it was left alone"):
        write_dataset("onco_gym/NSCLC-v0", "guideline", 3, dataset_id="mine-v0", overwrite=True)
    refuses(AgentError, "there is no agent", write_dataset, "onco_gym/NSCLC-v0", "nobody", 3)
    (home / "file").touch()
    for name, root in (("file/nsclc-v0", home), ("nsclc-v0", home / "file"), ("nsclc-v0", home / "file" / "folder")):
        with pytest.raises(DatasetError, match="file is not a writable folder"):
            write_dataset("onco_gym/NSCLC-v0", "guideline", 3, dataset_id=name, root=root)
    assert sorted(path.name for path in home.iterdir()) == ["file", "mine-v0"]


STAGED = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs the tests in the background ignores it
import onco_gym.cli as cli
from onco_gym.evaluation.dataset import _staging

def run(arguments):
    with _staging(Path(arguments.root)) as stage:
        (stage / "half").touch()
        print("staged", flush=True)
        time.sleep(60)

cli.dataset.dataset_command = run
sys.exit(cli.main(["dataset", "clinician", "--env", "NSCLC", "--root", sys.argv[1]]))
"""


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_run_that_ends_early_leaves_nothing(home, number, code):
    run = subprocess.Popen([sys.executable, "-c", STAGED, str(home)], stdout=subprocess.PIPE)
    assert run.stdout.readline() == b"staged\n"
    with made._staging(home) as mine:
        assert len(list(home.iterdir())) == 2
    assert not mine.exists()
    run.send_signal(getattr(signal, number))
    assert run.wait(60) == code
    run.stdout.close()
    assert not list(home.iterdir())


def test_a_dataset_that_was_about_to_be_replaced_comes_back(home):
    name, target = "mine/b-v0", home / "mine/b-v0"
    (target / "data").mkdir(parents=True)
    with made._staging(home) as stage, pytest.raises(FileNotFoundError):
        made._move(stage, target, home, name, overwrite=True)  # there is nothing to put in its place
    assert (target / "data").is_dir()
    with made._staging(home) as stage, pytest.raises(DatasetError, match="another run has written"):
        made._move(stage, target, home, name, overwrite=False)
    assert (target / "data").is_dir()
    assert [path.name for path in home.iterdir()] == ["mine"]


@pytest.mark.slow
def test_a_dataset_is_the_same_to_the_digit_here_and_with_ray(monkeypatch):
    monkeypatch.setattr(made, "CHUNK", 1000)
    for workers in ("local", "ray"):
        write_dataset("onco_gym/NSCLC-v0", "random", 1010, dataset_id=f"{workers}-v0", workers=workers)
    for here, there in zip(*(contents(f"{workers}-v0")[1] for workers in ("local", "ray")), strict=True):
        for field in ("observations", "actions", "rewards", "terminations", "truncations"):
            assert np.array_equal(getattr(here, field), getattr(there, field))
        assert np.array_equal(here.infos["probabilities"], there.infos["probabilities"])
