"""The JAX trainer: that it learns, repeats, and keeps to what can be given."""

import numpy as np
import pytest
from conftest import refuses

from onco_gym.agents import AgentError, rollout
from onco_gym.agents.ppo import PpoAgent, PpoSettings, train
from onco_gym.agents.simple import RandomAgent
from onco_gym.interfaces.engine import make_engine

SMALL = {"envs": 256, "length": 16, "batches": 4, "hidden": (32,)}


def test_it_learns():
    engine, told = make_engine("nsclc"), []
    agent = train(engine, PpoSettings(steps=250_000, **SMALL), progress=lambda stage, done, total: told.append((done, total)))
    steps = [4096 * (turn + 1) for turn in range(62)]
    assert [one.steps for one in agent.curve] == steps
    assert told == [(done, steps[-1]) for done in steps]
    assert agent.curve[-1].entropy < agent.curve[0].entropy
    learned, random = (rollout(engine, one, 1000, seed=7).returns for one in (agent, RandomAgent()))
    half = 1.96 * np.sqrt((learned.var() + random.var()) / 1000)
    assert learned.mean() - random.mean() > half + 0.1


def test_same_seed_same_policy():
    engine = make_engine("nsclc")
    first, again, other = (train(engine, PpoSettings(steps=8192, **SMALL), seed) for seed in (3, 3, 4))
    for (weights, bias), (same, same_bias) in zip(first.layers, again.layers, strict=True):
        np.testing.assert_array_equal(weights, same)
        np.testing.assert_array_equal(bias, same_bias)
    assert not np.array_equal(first.layers[0][0], other.layers[0][0])


@pytest.mark.slow
def test_the_workflow_can_be_learned():
    engine = make_engine("nsclc", kind="workflow")
    agent = train(engine, PpoSettings(steps=4096, **SMALL))
    run = rollout(engine, agent, 64)
    assert run.actions.shape[2:] == (len(engine.kind.space.nvec),)
    assert np.isfinite(run.returns).all()


def test_masks_are_kept():
    agent = PpoAgent([(np.eye(4, dtype=np.float32), np.zeros(4, np.float32))], (4,))
    seen = np.array([[0.1, 0.9, 0.5, 0.2]], np.float32)
    assert agent.act(seen, np.ones((1, 4), bool))[0] == 1
    assert agent.act(seen, np.array([[True, False, False, True]]))[0] == 3
    np.testing.assert_array_equal(agent.probabilities(seen, np.array([[True, False, True, True]])), [[0, 0, 1, 0]])


def test_what_cannot_be_trained_says_so():
    refuses(AgentError, "learns choices, not amounts", train, make_engine("nsclc", kind="dose"), PpoSettings(steps=1, **SMALL))
    refuses(AgentError, "envs is 100, expected a multiple of the 8 batches", PpoSettings, envs=100)
    refuses(AgentError, "steps is 0, expected a number above 0", PpoSettings, steps=0)


def test_steps_of_a_dosing_policy_are_kept_without_probabilities():
    """An agent that has them for regimens only is not asked for them elsewhere."""

    class Half:
        def act(self, observation, mask):
            return np.full((len(observation), size), 0.5, np.float32)

        def probabilities(self, observation, mask):
            raise AgentError("probabilities are only defined for regimens")

    engine = make_engine("nsclc", kind="dose")
    size = engine.kind.space.shape[0]
    steps = rollout(engine, Half(), 8, keep_steps=True).steps
    assert steps.probabilities is None
