"""Twins are the same patients in another group; a policy that depends on the group is found, one that does not is not."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
from conftest import refuses

import onco_gym  # noqa: F401 - registers the ids
from onco_gym.agents import AgentError, ConstantAgent, GuidelineAgent, RandomAgent, rollout
from onco_gym.fairness import BiasedAgent, FairnessError, audit_fairness, find_twins, measure_divergence
from onco_gym.fairness.asking import jensen_shannon, moved
from onco_gym.foundation.intervals import Z, mean_by_patient, standardised
from onco_gym.interfaces.arguments import EngineError
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.stamp import StampError
from onco_gym.patients import CausalGenerator

N = 800
"""Patients; one number for all tests, since every batch size is compiled."""
SHORT = {"horizon": 12, "terms": ("outcome", "fairness")}


@pytest.fixture(scope="module")
def engine():
    return make_engine("nsclc", **SHORT)


def columns(engine, prefix):
    return [field.index for field in engine.kind.fields if field.name.split("=")[0] == prefix]


class ActOnly:
    """An agent that says what it does, and not how likely it was to."""

    def __init__(self, agent):
        self.act = agent.act


# ------------------------------------------------------------------------------------------------ twins


def played(env, agent, seed, steps):
    observation, info = env.reset(seed=seed)
    seen = [observation]
    for _ in range(steps):
        action = agent.act(observation[None], info["action_mask"][None])[0]
        observation, _, terminated, truncated, info = env.step(action)
        seen.append(observation)
        if terminated or truncated:
            break
    return np.array(seen)


def test_a_direct_twin_differs_in_the_attribute_only(engine, nsclc):
    env = gym.make("onco_gym/NSCLC-v0", **SHORT)
    seen = played(env, GuidelineAgent(nsclc), 3, 6)
    made = find_twins(env, "insurance", "medicaid", effect="direct")
    np.testing.assert_allclose(made.factual, seen, atol=1e-5)
    assert made.observations.shape == seen.shape
    assert made.masks.shape == (len(seen), len(nsclc.regimens))
    own = columns(engine, "insurance")
    assert (made.observations[:, own] == [0, 0, 1, 0]).all()
    others = np.setdiff1d(np.arange(seen.shape[1]), own)
    np.testing.assert_array_equal(made.observations[:, others], made.factual[:, others])
    assert made.alive.all()


def test_a_total_twin_is_the_counterfactual_patient_under_the_same_decisions(nsclc, engine):
    """Held against an environment whose cohort holds the counterfactual patients."""
    env = gym.make("onco_gym/NSCLC-v0", **SHORT)
    cohort = CausalGenerator(nsclc).counterfactual(engine.cohort, {"race_ethnicity": "black"})
    other = gym.make("onco_gym/NSCLC-v0", cohort=cohort, **SHORT)
    changed = 0
    for seed in range(6):
        played(env, GuidelineAgent(nsclc), seed, 8)
        made = find_twins(env, "race_ethnicity", "black")
        row, key = env.unwrapped.origin
        observation, _ = other.reset(seed=0, options={"patient": row, "key": key})
        expected, over = [observation], False
        for action in env.unwrapped.actions:
            if over:
                break
            observation, _, terminated, truncated, _ = other.step(action)
            expected.append(observation)
            over = terminated or truncated
        alive = made.alive[: len(expected)]
        np.testing.assert_allclose(made.observations[: len(expected)][alive], np.array(expected)[alive], atol=1e-5)
        changed += not np.allclose(made.observations, made.factual)
    assert changed >= 3


@pytest.mark.slow
def test_biology_and_demographics_are_kept_when_sex_changes(engine, nsclc):
    """Smoking, autoimmune disease and drivers depend on sex; a twin keeps them."""
    run = rollout(engine, ConstantAgent(nsclc, "drug_holiday"), N, seed=5)
    for value in ("female", "male"):
        made = find_twins(engine, "sex", value, episodes=run)
        own = columns(engine, "sex")
        others = np.setdiff1d(np.arange(made.factual.shape[2]), own)
        expected = np.where(made.alive[..., None], made.factual, 0)
        np.testing.assert_array_equal(made.observations[..., others], expected[..., others])
        assert made.value == value


def test_who_is_in_the_group_already_is_their_own_twin(engine):
    run = rollout(engine, RandomAgent(), N, seed=9)
    made = find_twins(engine, "deprivation", 5, episodes=run)
    field = next(field for field in engine.scenario.fields if field.name == "deprivation")
    already = made.factual[0, :, field.index] > 0.99
    assert 50 < already.sum() < N - 50
    np.testing.assert_array_equal(made.observations[:, already], made.factual[:, already])


def test_episodes_have_the_twins_of_single_environments(engine, nsclc):
    run = rollout(engine, GuidelineAgent(nsclc), N, seed=40)
    many = find_twins(engine, "insurance", "medicaid", episodes=run)
    env = gym.make("onco_gym/NSCLC-v0", **SHORT)
    for i in range(5):
        played(env, GuidelineAgent(nsclc), 40 + i, 12)
        one = find_twins(env, "insurance", "medicaid")
        steps = np.flatnonzero(many.alive[:, i])
        np.testing.assert_allclose(many.observations[steps, i], one.observations[steps], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("workflow", marks=pytest.mark.slow), "dose"])
def test_other_kinds_of_environment_have_twins_and_audits(kind):
    engine = make_engine("nsclc", horizon=3, kind=kind, terms=("outcome",))

    class Constant:
        """Orders tests and gives the second regimen, or a full dose of the first; for the poor, half of it."""

        def act(self, observation, mask):
            action = np.zeros((len(observation), *engine.kind.space.shape), engine.kind.space.dtype)
            poor = observation[:, columns(engine, "deprivation")[0]] > 0.9
            if kind == "workflow":
                action[:, :2] = 1
                action[:, -2] = np.where(poor, 1, 2)
            else:
                action[:, 0] = np.where(poor, 0.5, 1.0)
            return action

    report = measure_divergence(engine, Constant(), 48, effect="direct", attributes=["deprivation", "rural"])
    assert report.attributes["rural"].contrasts["direct"].changed.value == 0
    standings = {standing.group: standing for standing in report.attributes["deprivation"].contrasts["direct"].standings}
    assert standings["5"].changed.value == 1
    pair = next(p for p in report.attributes["deprivation"].contrasts["direct"].pairs if (p.group, p.other) == ("1", "2"))
    assert pair.changed.value == 0


# ------------------------------------------------------------------------------------------------ figures


def test_jensen_shannon_by_hand():
    p = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.3, 0.7]])
    q = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [0.3, 0.7]])
    np.testing.assert_allclose(jensen_shannon(p, q), [np.log(2), 0, 0.215762, 0], atol=1e-6)
    np.testing.assert_allclose(jensen_shannon(p, q), jensen_shannon(q, p))
    np.testing.assert_allclose(moved(p, q), [1, 0, 0.5, 0])


def test_estimates_by_hand():
    found = mean_by_patient(np.array([0, 0, 1, 3]), np.array([1.0, 1.0, 0.0, 0.0]))
    assert found.value == 0.5
    # sums over patients 2, 0, 0 and counts 2, 1, 1: residuals 1, -1/2, -1/2
    assert found.high - found.value == pytest.approx(Z * np.sqrt(1.5 * 3 / 2) / 4)
    both = standardised(np.array([0.0, 2.0, 5.0, 5.0, 9.0]), np.array([0, 0, 1, 1, 2]), np.array([0.5, 0.25, 0.25]))
    assert both.value == pytest.approx((0.5 * 1 + 0.25 * 5) / 0.75)  # one value says nothing of its stratum
    assert both.high - both.value == pytest.approx(Z * (2 / 3) * 1.0)


def test_a_policy_that_treats_equal_need_equally(engine, nsclc):
    """Exactly nothing by itself; and nothing at all if it does not even look."""
    report = measure_divergence(engine, GuidelineAgent(nsclc), N, effect="direct")
    assert report.exact
    assert set(report.attributes) == {name for name, _ in engine.scenario.groups}
    for found in report.attributes.values():
        contrast = found.contrasts["direct"]
        assert contrast.nats.value == contrast.changed.value == contrast.cases_changed.value == 0
    blind = measure_divergence(engine, ConstantAgent(nsclc, "docetaxel"), N, effect="total")
    for found in blind.attributes.values():
        assert found.contrasts["total"].nats.value == 0


def test_chance_alone_is_no_finding(engine):
    """A policy that throws dice contradicts itself about the twin as often as about the patient."""
    found = audit_fairness(engine, ActOnly(RandomAgent(1)), N)
    assert not found.findings
    assert not found.report.exact
    for attribute in found.report.attributes.values():
        contrast = attribute.contrasts["direct"]
        assert contrast.chance > 0.1
        assert abs(contrast.nats.value) < 2 * (contrast.nats.high - contrast.nats.value)
        assert abs(contrast.changed.value) < 0.02


def test_withholding_is_seen_by_the_term_and_by_the_exact_form(engine, nsclc):
    fair = rollout(engine, GuidelineAgent(nsclc), N).fairness["insurance"]
    agent = BiasedAgent(nsclc, "insurance", "medicaid", 1.0)
    unfair = rollout(engine, agent, N).fairness["insurance"]
    assert unfair.nats > fair.nats + 0.02
    assert unfair.nats > 2 * unfair.chance
    report = measure_divergence(engine, agent, N, attributes=["insurance"], effect="direct")
    contrast = report.attributes["insurance"].contrasts["direct"]
    assert contrast.nats.low > 0
    standings = {standing.group: standing for standing in contrast.standings}
    assert standings["medicaid"].changed.value == 1
    assert standings["medicaid"].followed == 0
    assert standings["commercial"].followed == 1
    for pair in contrast.pairs:
        assert pair.changed.value == float("medicaid" in (pair.group, pair.other))
    # by step: the first line starts at the first visit, and there the answers are certain and different
    involved = np.nanmax(contrast.by_state[0])
    assert involved == pytest.approx(np.log(2), abs=1e-6)
    assert contrast.by_step[0] == np.nanmax(contrast.by_step)
    assert contrast.by_state.shape == (len(contrast.by_step), N)


def test_a_biased_agent_is_named_with_its_share(engine, nsclc):
    """Of an agent that only acts: two draws a question. The slow test below has 10,000 patients."""
    found = audit_fairness(engine, ActOnly(BiasedAgent(nsclc, "insurance", "medicaid", 0.23)), N)
    (finding,) = found.findings
    assert (finding.attribute, finding.group) == ("insurance", "medicaid")
    assert finding.share.value == pytest.approx(0.23, abs=0.05)
    assert finding.followed < finding.followed_others
    assert "medicaid" in str(found)
    assert "sex: nothing found" in str(found)


@pytest.mark.parametrize(("attribute", "group"), [("rural", "no"), ("sex", "female"), ("deprivation", "4")])
def test_the_group_named_is_the_one_treated_worse(engine, nsclc, attribute, group):
    """Also where there are but two groups, or an order among them."""
    agent = BiasedAgent(nsclc, attribute, group, 0.3)
    found = audit_fairness(engine, agent, N)
    assert [(finding.attribute, finding.group) for finding in found.findings] == [(attribute, group)]
    assert found.findings[0].share.value == pytest.approx(0.3, abs=0.01)


def test_groups_among_equal_need(engine, nsclc):
    """Medicaid patients who get nothing for three cycles: fewer are treated in time, and later."""
    holiday = engine.scenario.holiday
    cycle = next(field.index for field in engine.scenario.fields if field.name == "cycle")
    medicaid = columns(engine, "insurance")[2]
    follow = GuidelineAgent(nsclc)

    class Waits:
        def act(self, observation, mask):
            waits = (observation[:, medicaid] > 0.5) & (observation[:, cycle] * engine.scenario.horizon < 2.5)
            return np.where(waits, holiday, follow.act(observation, mask))

    report = measure_divergence(engine, Waits(), N, attributes=["insurance"], effect="direct", within=2)
    groups = {group.group: group for group in report.attributes["insurance"].groups}
    assert sum(group.patients for group in groups.values()) == N
    assert groups["medicaid"].treated.high < 0.05 < 0.5 < groups["commercial"].treated.low
    assert groups["medicaid"].delay_weeks.low > 9 - 1e-6 > groups["medicare"].delay_weeks.high
    assert "medicaid" in str(report)
    assert len(report.rows()) == 1
    assert len(report.group_rows()) == 4


@pytest.mark.slow
def test_the_share_is_right_within_three_points_over_10000_patients(nsclc):
    found = audit_fairness(make_engine("nsclc"), ActOnly(BiasedAgent(nsclc, "insurance", "medicaid", 0.23)), 10_000)
    (finding,) = found.findings
    assert (finding.attribute, finding.group) == ("insurance", "medicaid")
    assert finding.share.value == pytest.approx(0.23, abs=0.03)
    assert finding.share.high - finding.share.low < 0.02


# ------------------------------------------------------------------------------------------------ bad input


def test_bad_input_gets_one_clear_error(engine, nsclc):
    env = gym.make("onco_gym/NSCLC-v0", **SHORT)
    refuses(FairnessError, "call reset", find_twins, env, "insurance", "medicaid")
    env.reset(seed=0)
    refuses(FairnessError, "'age' is not a protected attribute of NSCLC: expected one of sex", find_twins, env, "age", 50)
    refuses(FairnessError, "insurance is 'none', expected one of commercial", find_twins, env, "insurance", "none")
    refuses(FairnessError, "effect is 'both'", find_twins, env, "insurance", "medicaid", effect="both")
    refuses(FairnessError, "got str", find_twins, "nsclc", "insurance", "medicaid")
    agent = GuidelineAgent(nsclc)
    run = rollout(engine, agent, N)
    refuses(FairnessError, "got Episodes", find_twins, run, "insurance", "medicaid")
    refuses(StampError, "made with horizon", find_twins, gym.make("onco_gym/NSCLC-v0"), "insurance", "medicaid", episodes=run)
    other = dataclasses.replace(run, origin=run.origin._replace(key=run.origin.key + np.uint32(1)))
    with pytest.raises(FairnessError, match="do not belong to this engine: their replay gives other regimens"):
        find_twins(engine, "insurance", "medicaid", episodes=other)
    refuses(FairnessError, "expected an engine or an environment", measure_divergence, nsclc, agent, 10)
    refuses(EngineError, "at least one patient", measure_divergence, engine, agent, 0)
    refuses(FairnessError, "'wealth' is not a protected attribute", measure_divergence, engine, agent, 10, attributes=["wealth"])
    refuses(FairnessError, "expected a list", measure_divergence, engine, agent, 10, attributes="insurance")
    refuses(FairnessError, "tolerance is 2", audit_fairness, engine, agent, 10, tolerance=2)
    refuses(AgentError, "Engine is not an agent: it has no act", measure_divergence, engine, engine, 10)
    refuses(AgentError, r"share is 23, expected 0\.\.1", BiasedAgent, nsclc, "insurance", "medicaid", 23)
    refuses(FairnessError, "rural is 'maybe'", BiasedAgent, nsclc, "rural", "maybe", 0.5)

    class Odd:
        act = staticmethod(agent.act)

        def probabilities(self, observation, mask):
            return mask * 1.0

    refuses(AgentError, "add up to 1", measure_divergence, engine, Odd(), N)
