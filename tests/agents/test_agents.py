"""Agents: what they choose, and that knowledge pays."""

import gymnasium as gym
import numpy as np
import pytest
from conftest import OTHERS_SLOW, interval, refuses
from scipy.stats import spearmanr

from onco_gym.agents import Agent, AgentError, ConstantAgent, GuidelineAgent, RandomAgent, load_agent, rollout
from onco_gym.interfaces.arguments import EngineError
from onco_gym.interfaces.engine import make_engine

N = 4096


@pytest.mark.parametrize("card", OTHERS_SLOW, indirect=True)
def test_guideline_beats_every_constant_and_the_best_constant_beats_random(card):
    """In every cycle; at decision points random play goes from line to line, which may well be better than one drug for ever."""
    engine = make_engine(card, terms=("outcome",), decide="cycles")
    guideline = rollout(engine, GuidelineAgent(card), N)
    low, _ = interval(guideline.terms["outcome"])
    best = 0.0
    for regimen in card.regimens:
        lowest, high = interval(rollout(engine, load_agent(engine, regimen.name), N).terms["outcome"])
        assert low > high, f"{card.id}: {regimen.name} reaches {high:.3f}, guideline only {low:.3f}"
        best = max(best, lowest)
    _, random = interval(rollout(engine, RandomAgent(), N).terms["outcome"])
    assert best > random, f"{card.id}: random reaches {random:.3f}, the best constant regimen only {best:.3f}"
    assert spearmanr(guideline.returns, guideline.weeks).statistic > 0.8


@pytest.mark.parametrize("engine", OTHERS_SLOW, indirect=True)
def test_return_ranks_by_survival_for_random_play(engine):
    run = rollout(engine, RandomAgent(), 1024)
    assert spearmanr(run.returns, run.weeks).statistic > 0.8


@pytest.fixture(scope="module")
def followed():
    """An engine, where its fields stand, and patients treated by the guideline."""
    engine = make_engine("nsclc")
    fields = {field.name: field.index for field in engine.scenario.fields}
    return engine, fields, rollout(engine, GuidelineAgent(engine.card), N, keep_observations=True)


def test_the_right_drug_for_the_driver(followed):
    engine, fields, run = followed
    first = run.observations[0]
    egfr = (first[:, fields["EGFR_ex19del"]] + first[:, fields["EGFR_L858R"]]) > 0.5
    fit = first[:, fields["ecog"]] < 0.6
    chosen = {engine.scenario.regimens[index] for index in run.actions[0][egfr & fit]}
    assert egfr.sum() > 20
    assert all("osimertinib" in name for name in chosen)
    assert "osimertinib" not in {engine.scenario.regimens[index] for index in run.actions[0][~egfr]}


def test_a_late_result_changes_the_treatment(followed):
    """Patients with EGFR mutations whose sequencing comes back during chemotherapy are switched to an EGFR inhibitor."""
    engine, fields, run = followed
    names = engine.scenario.regimens
    start = np.array(["osimertinib" not in names[index] for index in run.actions[0]])
    seen = np.stack([obs[:, fields["EGFR_ex19del"]] + obs[:, fields["EGFR_L858R"]] for obs in run.observations[:5]])
    progressed = np.stack([obs[:, fields["progressed"]] for obs in run.observations[:5]])
    fit = run.observations[2][:, fields["ecog"]] < 0.6
    late = start & (seen[0] < 0.5) & (seen[2] > 0.5) & (progressed[:4].max(0) < 0.5) & fit
    assert late.sum() >= 5
    third = [names[index] for index in run.actions[2][late]]
    assert np.mean(["osimertinib" in name for name in third]) > 0.8


def test_a_rollout_is_the_single_environment(nsclc):
    engine = make_engine("nsclc")
    run = rollout(engine, GuidelineAgent(nsclc), 6, seed=100)
    env, agent = gym.make("onco_gym/NSCLC-v0"), GuidelineAgent(nsclc)
    for i in range(6):
        observation, info = env.reset(seed=100 + i)
        total, over = 0.0, False
        while not over:
            action = agent.act(observation[None], info["action_mask"][None])[0]
            observation, _, terminated, truncated, info = env.step(action)
            total, over = total + info["reward_terms"]["outcome"], terminated or truncated
        assert total == pytest.approx(run.terms["outcome"][i], abs=1e-4)


def test_agents_keep_the_protocol(engine):
    card = engine.card
    env = gym.make_vec(f"onco_gym/{card.id}-v0", num_envs=5)
    observation, info = env.reset(seed=0)
    for agent in (RandomAgent(1), ConstantAgent(card, "drug_holiday"), GuidelineAgent(card)):
        assert isinstance(agent, Agent)
        actions = agent.act(observation, info["action_mask"])
        assert actions.shape == (5,)
        assert info["action_mask"][np.arange(5), actions].all()
        chances = agent.probabilities(observation, info["action_mask"])
        np.testing.assert_allclose(chances.sum(1), 1)


def test_wrong_agents_are_refused(nsclc):
    engine = make_engine("nsclc")

    class Nonsense:
        def act(self, observation, mask):
            return np.full(len(observation), 999)

    refuses(AgentError, "expected", rollout, engine, Nonsense(), 4)
    refuses(EngineError, "at least one patient", rollout, engine, RandomAgent(), 0)
    refuses(AgentError, "there is no agent 'oracle'", load_agent, make_engine(nsclc), "oracle")
    refuses(AgentError, "has no regimen", ConstantAgent, nsclc, "leeches")
