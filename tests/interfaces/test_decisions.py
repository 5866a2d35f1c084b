"""Deciding at decision points: the same patients and the same luck, in fewer steps."""

import gymnasium as gym
import jax
import numpy as np
import pytest

import onco_gym as og
from onco_gym.agents import Script, load_agent, play
from onco_gym.fairness import measure_divergence
from onco_gym.interfaces.arguments import EngineError
from onco_gym.interfaces.decisions import LONGEST
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.origins import Seat
from onco_gym.rewards import TERMS
from onco_gym.testing import sample

SHORT = {"horizon": 40, "terms": ("outcome", "guideline", "carbon")}


def engines(kind="regimen"):
    return [make_engine("nsclc", kind=kind, decide=decide, **SHORT) for decide in ("events", "cycles")]


@pytest.mark.parametrize("kind", ["regimen", "dose"])
def test_a_step_is_its_cycles_one_by_one(kind):
    """What is chosen at a decision point and given until the next is what is given cycle by cycle."""
    few, many = engines(kind)
    agent, origin = load_agent(few, "random", 3), few.origins(64, seed=5)
    one = play(few, agent, origin)
    actions = [np.repeat(one.of(i)[2], one.cycles[one.given[:, i] >= 0, i], axis=0) for i in range(len(one))]
    script = np.full((max(map(len, actions)), len(one), *one.actions.shape[2:]), -1, one.actions.dtype)
    for i, some in enumerate(actions):
        script[: len(some), i] = some
    two = og.replay(many, Script(many.stamp, origin, script, "random", None))
    np.testing.assert_allclose(one.weeks, two.weeks, rtol=1e-6)
    np.testing.assert_array_equal(one.by_cycle(), two.given)
    for name in SHORT["terms"]:
        np.testing.assert_allclose(one.terms[name], two.terms[name], atol=2e-4)
    assert len(one.actions) < len(two.actions)
    assert 1 < one.cycles[one.cycles > 0].mean() <= one.cycles.max() == (LONGEST if kind == "regimen" else 2)


@pytest.mark.parametrize(("kind", "expected"), [("regimen", "events"), ("workflow", "events"), ("dose", "cycles")])
def test_who_says_nothing_decides_at_decision_points_but_doses_in_every_cycle(kind, expected):
    assert make_engine("nsclc", kind=kind).decide == expected


def test_decision_points_are_where_something_happened():
    """Every step that ended before the longest has a reason that the clinic can see."""
    engine = make_engine("nsclc", decide="events", **SHORT)
    env = gym.make("onco_gym/NSCLC-v0", decide="events", render_mode="ansi", **SHORT)
    agent, reasons = load_agent(engine, "guideline"), set()
    for seed in range(30):
        observation, info = env.reset(seed=seed)
        over = False
        while not over:
            before = env.unwrapped.journey.state
            action = int(agent.act(observation[None], info["action_mask"][None])[0])
            observation, _, terminated, truncated, info = env.step(action)
            after, over = env.unwrapped.journey.state, terminated or truncated
            said = {
                "progression": after.failed > before.failed,
                "response": (after.diameter <= 0.7 * after.baseline) != (before.diameter <= 0.7 * after.baseline),
                "result": ((after.result_cycle <= after.cycle) & (before.result_cycle > before.cycle)).any(),
                "marker": (after.marker > before.marker).any(),
                "held": after.held > 0,
                "stopped": (after.barred > before.barred).any(),
                "closed": not info["action_mask"][action],
            }
            found = {name for name, holds in said.items() if np.any(holds)}
            reasons |= found
            assert over or found or info["cycles"] == LONGEST
    assert reasons >= {"progression", "response", "result", "held", "closed"}


@pytest.mark.parametrize("kind", ["regimen", pytest.param("workflow", marks=pytest.mark.slow)])
def test_a_scan_sees_what_the_vector_environment_sees(kind):
    engine, n = make_engine("nsclc", kind=kind, decide="events", **SHORT), 256
    suffix = "" if kind == "regimen" else "-Workflow"
    vector = gym.make_vec(f"onco_gym/NSCLC{suffix}-v0", num_envs=n, decide="events", **SHORT)
    observation, _ = vector.reset(seed=9)
    seat = Seat.first(np.arange(9, 9 + n, dtype=np.uint64))
    encounter, seen, *_ = engine.admit(seat)
    np.testing.assert_array_equal(observation, seen)
    stepped, tally, rng = jax.jit(engine.step_autoreset), engine.tally(), np.random.default_rng(0)
    for _ in range(12):
        action = np.stack([sample(vector.single_action_space, rng) for _ in range(n)]).astype(np.int32)
        observation, reward, terminated, truncated, info = vector.step(action)
        encounter, tally, seat, seen, mask, outcome = stepped(encounter, tally, seat, action)
        np.testing.assert_allclose(observation, np.asarray(seen).T, atol=1e-5)
        np.testing.assert_array_equal(info["action_mask"], np.asarray(mask).T)
        np.testing.assert_array_equal(terminated | truncated, outcome.terminated | outcome.truncated)
        np.testing.assert_array_equal(info["cycles"], outcome.cycles)
        np.testing.assert_allclose(reward, outcome.reward, atol=1e-5)


@pytest.mark.slow
def test_guideline_planner_and_records_understand_it():
    engine = make_engine("nsclc", split="test", decide="events", **SHORT)
    guideline, planner = (og.rollout(engine, load_agent(engine, name), 32) for name in ("guideline", "planner"))
    assert planner.returns.mean() > guideline.returns.mean() - 0.3
    record = og.record_episodes(engine, load_agent(engine, "guideline"), 4)
    assert record.stamp.decide == "cycles"
    assert (record.lengths == guideline.cycles.sum(0)[:4]).all()
    found = og.verify(engine, record, load_agent(engine, "guideline"))
    assert (found.repeated == 1).all()
    assert not found.flagged.any()


def test_twins_go_on_as_long_as_their_patients():
    engine = make_engine("nsclc", decide="events", **SHORT)
    found = measure_divergence(engine, load_agent(engine, "guideline"), n=24, attributes=["race_ethnicity"])
    direct = found.attributes["race_ethnicity"].contrasts["direct"]
    assert direct.nats.value == 0, "the guideline does not look at it"


def test_what_is_not_known_is_refused():
    with pytest.raises(EngineError, match="decide is 'days', expected one of events, cycles"):
        make_engine("nsclc", decide="days")


def test_terms_are_summed():
    assert len(TERMS) == 4
    vector = gym.make_vec("onco_gym/mo-NSCLC-v0", num_envs=256, decide="events")
    vector.reset(seed=0)
    _, reward, _, _, info = vector.step(np.full(256, 2))
    assert reward.shape == (256, 4)
    assert (info["cycles"] >= 1).all()
    assert (info["cycles"] <= LONGEST).all()
