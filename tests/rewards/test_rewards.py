"""Four rewards in one: each term worked out by hand, and what the environments make of them."""

import functools

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import open_keys

from onco_gym.agents import GuidelineAgent
from onco_gym.cards import load_card
from onco_gym.cards.scenarios import params
from onco_gym.fairness import BiasedAgent
from onco_gym.foundation.units import WEEKS_PER_YEAR
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.origins import Origin, Seat
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.patients.traits import NEVER
from onco_gym.rewards.carbon import carbon_kg
from onco_gym.rewards.fairness import HALF_LIFE, PRIOR, Tally, count_decisions, empty_tally, group_divergence
from onco_gym.rewards.guideline import PATIENCE, hear
from onco_gym.rewards.scene import Scene, Verdict
from onco_gym.rewards.terms import TERMS, UNITS, blend, card_weights, reward_terms
from onco_gym.simulator.observation import one_hot
from onco_gym.simulator.transition import USUAL_ORDERS, Events, Orders, step

NAMES = list(TERMS)


@pytest.fixture(scope="module")
def lung():
    return make_engine("nsclc")


@functools.cache
def newcomer(engine):
    return jax.jit(engine.begin)(Origin(jnp.zeros(1, jnp.int32), open_keys(1))).journey


def first_visit(engine, n=1):
    """The same patient n times."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.repeat(leaf, n, axis=-1)), newcomer(engine))


def scene(engine, regimen, km=37.2, cycle=4, results=NEVER, points=0.0, surprise=0.0, orders=None, lived=1.0, **events):
    """One cycle of one patient, everything given by hand; ``results`` is the cycle in which tests come back."""
    one = jnp.ones(1)
    journey = first_visit(engine)
    patient = journey.patient._replace(travel=km * one)
    tests = jnp.full_like(journey.state.result_cycle, NEVER).at[0].set(results)
    before = journey.state._replace(cycle=jnp.array([cycle]), result_cycle=tests)
    after = before._replace(cycle=before.cycle + 1)
    happened = {name: value * one for name, value in {**dict.fromkeys(Events._fields, 0), "lived": lived, **events}.items()}
    given = jnp.array([engine.scenario.regimens.index(regimen)], jnp.int32)
    said = Verdict(given, one, points * one, given, jnp.ones((len(engine.scenario.regimens), 1), bool))
    return Scene(
        journey._replace(patient=patient, state=before),
        journey._replace(patient=patient, state=after),
        Orders(**{name: jnp.array([value]) for name, value in (orders or {}).items()}),
        Events(**{**happened, "given": one_hot(given, len(engine.scenario.regimens))}),
        said,
        jnp.full((len(engine.scenario.groups), 1), surprise),
    )


def term(engine, name, regimen="pembrolizumab", **kwargs):
    return float(TERMS[name](engine.scenario, engine.params, scene(engine, regimen, **kwargs))[0])


# ---------------------------------------------------------------- outcome


def test_outcome_is_quality_adjusted_life(lung):
    """Three weeks at utility 0.8: 0.8 x 3 / 52.18 = 0.046 years."""
    assert term(lung, "outcome", utility=0.8) == pytest.approx(0.8 * 3 / WEEKS_PER_YEAR) == pytest.approx(0.046, abs=1e-4)
    assert term(lung, "outcome", utility=0.8, lived=0.25) == pytest.approx(0.25 * 0.8 * 3 / WEEKS_PER_YEAR)
    assert term(lung, "outcome", utility=0.4) == pytest.approx(0.4 * 3 / WEEKS_PER_YEAR)
    assert term(lung, "outcome", utility=0.8, lived=0.0) == 0.0


# ---------------------------------------------------------------- guideline


def test_guideline_points_count_for_the_share_lived(lung):
    assert term(lung, "guideline", points=0.6) == pytest.approx(0.6)
    assert term(lung, "guideline", points=-1.0, lived=0.5) == pytest.approx(-0.5)


def test_waiting_for_a_result_has_an_end(lung):
    """A holiday before the first line is accepted while a result is awaited, for three cycles at most."""
    journey = first_visit(lung, 5)
    tests = jnp.full_like(journey.state.result_cycle, NEVER).at[0].set(jnp.array([0, 2, 9, 9, NEVER]))
    state = journey.state._replace(result_cycle=tests, cycle=jnp.array([0, 1, PATIENCE - 1, PATIENCE, 0]))
    pause = jax.jit(lambda state: hear(lung.panel, lung.scenario, lung.params, journey._replace(state=state)).pause)
    assert pause(state).tolist() == [False, True, True, False, False], "known, awaited, awaited, for too long, never tested"
    started = state._replace(line=jnp.ones(5), treatment=jnp.full(5, lung.scenario.regimens.index("osimertinib"), jnp.int32))
    assert not pause(started).any(), "too late for that"
    assert pause(started._replace(held=jnp.ones(5))).all(), "the next dose is withheld"


# ---------------------------------------------------------------- carbon

# kg CO2e at an American clinic at 10:00, where a kWh has 369.5 x (1.08 - 0.16 x 13 / 14) = 344.16 g.
GRID = 369.5 * (1.08 - 0.16 * 13 / 14)
VISIT = 5 * (0.5 + 0.5 * GRID / 237.6) + 0.25 * (0.9 + 0.1 * GRID / 548.7)  # measured in Britain, blood panel in Australia
CT, MRI = (kg * (0.2 + 0.8 * GRID / 548.7) for kg in (9.2, 17.5))
BED_DAY = 45 * (0.7 + 0.3 * GRID / 369.5)
INFERENCE, PROMPT = 1e-6 * GRID / 480, 3e-5 * GRID / 369.5
PEMBROLIZUMAB = 3.0 + 8.8 + VISIT  # drug, infusion, visit
TRAVEL = 37.2 * 0.168


def kg(engine, regimen="pembrolizumab", **kwargs):
    return -1000 * term(engine, "carbon", regimen, **kwargs)


def test_carbon_of_a_cycle_by_hand(lung):
    assert pytest.approx(24.41, abs=0.01) == PEMBROLIZUMAB + TRAVEL
    assert kg(lung) == pytest.approx(PEMBROLIZUMAB + TRAVEL + INFERENCE, rel=1e-5)
    assert kg(lung, scanned=1) - kg(lung) == pytest.approx(CT, rel=1e-4)
    assert kg(lung, hospital=3) - kg(lung) == pytest.approx(3 * BED_DAY, rel=1e-4)
    assert kg(lung, km=110) - kg(lung) == pytest.approx((110 - 37.2) * 0.168, rel=1e-4)
    assert kg(lung, "best_supportive_care") == pytest.approx(0.5 * (VISIT + TRAVEL) + INFERENCE, rel=1e-5)
    assert kg(lung, "osimertinib") == pytest.approx(0.5 + 0.75 * (VISIT + TRAVEL) + INFERENCE, rel=1e-5)


def test_carbon_of_what_is_ordered(lung):
    assert kg(lung, scanned=1, orders={"imaging": 2}) - kg(lung) == pytest.approx(MRI, rel=1e-4)
    assert kg(lung, orders={"prompts": 1000.0}) - kg(lung) == pytest.approx(1000 * PROMPT, rel=1e-3)
    assert kg(lung, orders={"extra_kg": 7.0}) - kg(lung) == pytest.approx(7.0, rel=1e-4)
    assert kg(lung, "best_supportive_care", orders={"visits": 0.0}) == pytest.approx(INFERENCE, rel=1e-3)


def test_a_test_is_counted_in_the_cycle_in_which_its_result_comes(lung):
    cost = lung.card.tests[0].kgco2e
    assert cost > 0
    assert kg(lung, cycle=4, results=5) - kg(lung) == pytest.approx(cost, rel=1e-4)
    for cycle, results in ((4, 4), (4, 6), (4, NEVER), (1, 0)):
        assert kg(lung, cycle=cycle, results=results) == pytest.approx(kg(lung), rel=1e-5)
    assert kg(lung, cycle=0, results=0) - kg(lung) == pytest.approx(cost, rel=1e-4), "results known at the first visit"
    # whoever lives half a cycle uses half of its care
    assert kg(lung, lived=0.5) == pytest.approx((PEMBROLIZUMAB + TRAVEL) / 2 + INFERENCE, rel=1e-5)


def test_fewer_scans_mean_less_carbon(lung):
    """The same patients, scanned every two cycles and every six: kg CO2e per cycle lived."""
    n = 256
    start = lung.admit(Seat.first(np.arange(n, dtype=np.uint64)))[0].journey
    osimertinib = jnp.full(n, lung.scenario.regimens.index("osimertinib"), jnp.int32)

    @jax.jit
    def cycle(figures, journey):
        after, events = step(lung.scenario, figures, journey, osimertinib)
        said = Verdict(*[osimertinib] * 5)
        made = Scene(journey, after, USUAL_ORDERS, events, said, said.share)
        return after, carbon_kg(lung.scenario, figures, made), events.lived

    each = {}
    for every in (2, 6):
        watched = lung.card.observation.model_copy(update={"scan_every_cycles": every})
        figures = params(lung.card.model_copy(update={"observation": watched}))
        journey, used, lived = start, 0.0, 0.0
        for _ in range(12):
            journey, kg, share = cycle(figures, journey)
            used, lived = used + float(kg.sum()), lived + float(share.sum())
        each[every] = used / lived
    assert each[6] < each[2] - CT / 6, "a third of a scan less each cycle, but some are made for symptoms"


# ---------------------------------------------------------------- fairness


write = jax.jit(count_decisions, static_argnums=0)


def decisions(engine, sex, given, need=None, tally=None):
    """Write decisions down for patients who differ in sex only: the tally, and (A, n) surprises."""
    sex, given = np.asarray(sex), np.asarray(given, np.int32)
    journey = first_visit(engine, len(sex))
    attributes = [name for name, _ in engine.scenario.groups]
    groups = np.zeros((len(attributes), len(sex)), np.float32)
    groups[attributes.index("sex")] = sex
    journey = journey._replace(patient=journey.patient._replace(groups=jnp.asarray(groups)))
    need = np.asarray(np.zeros(len(sex)) if need is None else need, np.int32)
    return write(engine.scenario, empty_tally(engine.scenario) if tally is None else tally, journey, need, given)


def test_equal_treatment_has_no_divergence(lung):
    tally, surprise = decisions(lung, sex=[0, 0, 1, 1] * 50, given=[2, 3, 2, 3] * 50)
    found = group_divergence(lung.scenario, tally)
    assert all(value.nats == pytest.approx(0, abs=1e-6) for value in found.values())
    assert found["sex"].decisions == 200
    assert found["sex"].chance == pytest.approx(1 / 400), "one degree of freedom, 200 decisions"
    assert float(abs(surprise).max()) == pytest.approx(0, abs=1e-6), "the first decisions surprise nobody"


def test_divergence_by_hand(lung):
    """Women get regimen 2; of the men half are denied it: H(3/4, 1/4) - H(1/2, 1/2) / 2 = 0.5623 - 0.3466 = 0.2158 nats."""
    tally, _ = decisions(lung, sex=[0, 0, 1, 1] * 50, given=[2, 2, 2, 0] * 50)
    found = group_divergence(lung.scenario, tally)
    assert found["sex"].nats == pytest.approx(0.21576, abs=1e-4)
    assert found["rural"].nats == pytest.approx(0, abs=1e-6), "everybody is of one group there"
    apart, _ = decisions(lung, sex=[0, 1] * 100, given=[2, 0] * 100)
    assert group_divergence(lung.scenario, apart)["sex"].nats == pytest.approx(np.log(2), rel=1e-5)


def test_different_need_is_no_divergence(lung):
    """Men and women are treated differently, but so are all patients of that need."""
    tally, _ = decisions(lung, sex=[0, 1] * 100, given=[2, 0] * 100, need=[2, 0] * 100)
    assert group_divergence(lung.scenario, tally)["sex"].nats == pytest.approx(0, abs=1e-6)


def test_the_term_of_one_decision_by_hand(lung):
    """After 100 women with regimen 2, and 50 of 100 men denied it, one more man is denied it."""
    tally, _ = decisions(lung, sex=[0, 0, 1, 1] * 50, given=[2, 2, 2, 0] * 50)
    _, denied = decisions(lung, sex=[1], given=[0], tally=tally)
    _, treated = decisions(lung, sex=[1], given=[2], tally=tally)
    usual = 50 / 200
    ours = (50 + PRIOR * usual) / (100 + PRIOR)
    row = [name for name, _ in lung.scenario.groups].index("sex")
    assert float(denied[row, 0]) == pytest.approx(np.log(ours / usual), abs=1e-3) == pytest.approx(0.606, abs=1e-3)
    assert float(treated[row, 0]) < 0
    assert term(lung, "fairness", surprise=0.606) == pytest.approx(-0.606)


def test_the_mean_of_the_term_is_minus_the_divergence(lung):
    """A full tally, and decisions as before."""
    sex, given = np.array([0, 0, 1, 1] * 5000), np.array([2, 2, 2, 0] * 5000)
    tally, _ = decisions(lung, sex, given)
    _, surprise = decisions(lung, sex, given, tally=tally)
    row = [name for name, _ in lung.scenario.groups].index("sex")
    assert float(surprise[row].mean()) == pytest.approx(group_divergence(lung.scenario, tally)["sex"].nats, rel=0.02)


def test_old_decisions_fade(lung):
    n = int(HALF_LIFE)
    tally, _ = decisions(lung, np.zeros(n), np.full(n, 2))
    assert group_divergence(lung.scenario, tally)["sex"].decisions == pytest.approx(n)
    tally, _ = decisions(lung, np.zeros(n), np.full(n, 3), tally=tally)
    assert group_divergence(lung.scenario, tally)["sex"].decisions == pytest.approx(1.5 * n, rel=1e-4)


def test_going_on_is_no_decision(lung):
    journey = first_visit(lung, 3)
    state = journey.state._replace(last=jnp.array([2, 2, 2]), progressed=jnp.array([0.0, 0.0, 1.0]))
    need, given = np.full(3, 2, np.int32), np.array([2, 0, 2], np.int32)

    def counted(state, given):
        tally, _ = write(lung.scenario, empty_tally(lung.scenario), journey._replace(state=state), need, given)
        return group_divergence(lung.scenario, tally)["sex"].decisions

    assert counted(state, given) == 2, "stopping is one, and staying after progression"
    untreated = state._replace(last=jnp.full(3, lung.scenario.supportive), progressed=jnp.ones(3))
    given = np.array([lung.scenario.supportive, lung.scenario.holiday, 2], np.int32)
    assert counted(untreated, given) == 2, "going on without treatment is none"
    assert counted(state._replace(alive=jnp.zeros(3)), given) == 0


def test_chance_is_what_equal_treatment_shows(lung):
    """Groups by lot, regimens by lot: the mean divergence of many such tallies is the chance figure."""
    scenario, rng = lung.scenario, np.random.default_rng(0)
    regimens, sizes = len(scenario.regimens), [len(names) for _, names in scenario.groups]
    found = []
    for _ in range(200):
        joint = np.zeros((regimens, regimens, sum(sizes)))
        given = rng.choice(4, 400, p=[0.1, 0.2, 0.3, 0.4])
        for size, start in zip(sizes, np.cumsum([0, *sizes]), strict=False):
            np.add.at(joint, (5, given, start + rng.integers(0, size, 400)), 1)
        found.append(group_divergence(scenario, Tally(joint, np.zeros_like(joint))))
    for name, levels in scenario.groups:
        assert found[0][name].chance == pytest.approx((len(levels) - 1) * 3 / 800)
        assert np.mean([one[name].nats for one in found]) == pytest.approx(found[0][name].chance, rel=0.15)


# ---------------------------------------------------------------- the blend


def test_weights_of_a_card_can_be_changed(card):
    weights = card_weights(card, {"carbon": 3.0})
    assert weights == {**{name: getattr(card.reward, name) for name in TERMS}, "carbon": 3.0}
    with pytest.raises(ValueError, match=r"weights name \['kindness'\], expected \['outcome'"):
        card_weights(card, {"kindness": 1.0})
    assert set(UNITS) == set(TERMS)


def test_the_blend_is_the_weighted_sum(lung):
    one = scene(lung, "pembrolizumab", points=0.6, surprise=0.1, scanned=1)
    terms = reward_terms(lung.scenario, lung.params, one, frozenset(TERMS))
    values = dict(zip(TERMS, np.asarray(terms)[:, 0], strict=True))
    assert values["guideline"] == pytest.approx(0.6)
    assert values["fairness"] == pytest.approx(-0.1)
    assert values["carbon"] == pytest.approx(-(PEMBROLIZUMAB + TRAVEL + CT) / 1000, rel=1e-4)
    weights = {"outcome": 1.0, "guideline": 2.0, "fairness": 3.0, "carbon": 4.0}
    assert float(blend(weights, terms)[0]) == pytest.approx(sum(weights[name] * values[name] for name in TERMS), rel=1e-5)
    some = reward_terms(lung.scenario, lung.params, scene(lung, "pembrolizumab", points=0.6), {"guideline"})
    assert np.asarray(some)[:, 0] == pytest.approx([0, 0.6, 0, 0])


def test_a_cycle_lived_is_never_punished(card):
    """Outcome, guideline and carbon at the card's weights, wherever utility is 0.1 or more: death is never the better choice.

    Treatments given once are left out: all that their making costs falls into one cycle.
    """
    engine = make_engine(card, terms=("outcome", "guideline", "carbon"))
    weights, rng, n = card_weights(card), np.random.default_rng(0), 256
    once = np.array([regimen.max_cycles == 1 for regimen in card.regimens])
    cycle, tally = jax.jit(engine.cycle), engine.tally()
    journey = jax.jit(engine.begin)(Origin(jnp.arange(n), open_keys(n))).journey
    worst, cycles = np.inf, 0
    for _ in range(80):
        choice = rng.integers(0, len(card.regimens), n).astype(np.int32)
        journey, _, outcome = cycle(journey, tally, choice)
        terms = dict(zip(TERMS, np.asarray(outcome.terms), strict=True))
        utility = terms["outcome"] * WEEKS_PER_YEAR / card.cycle_weeks
        counted = (np.asarray(outcome.lived) == 1) & (utility >= 0.1) & ~once[np.asarray(outcome.given)]
        reward = sum(weights[name] * terms[name] for name in ("outcome", "guideline", "carbon"))
        worst, cycles = reward[counted].min(initial=worst), cycles + counted.sum()
    assert cycles > 4000
    assert worst >= 0


# ---------------------------------------------------------------- environments

KINDS = ["Card", "Card-Dose", "Card-Workflow", "mo-Card"]


@functools.cache
def small():
    """A card with few rules, which compiles sooner."""
    card = load_card("melanoma")
    return card.model_copy(update={"guideline": card.guideline[:8], "experts": card.experts[:2]})


@pytest.mark.parametrize("kind", KINDS)
def test_info_says_what_a_single_step_was_worth(kind):
    env = gym.make(f"onco_gym/{kind}-v0", card=small())
    names = set(env.unwrapped.action_names)
    _, info = env.reset(seed=3)
    assert info["reward_terms"] == dict.fromkeys(TERMS, 0.0)
    assert info["carbon_kg"] == 0
    assert info["guideline"]["verdict"] is None
    assert info["guideline"]["best"]
    assert set(info["guideline"]["best"]) <= names
    env.action_space.seed(0)
    for _ in range(3):
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        assert list(info["reward_terms"]) == NAMES
        assert info["carbon_kg"] == pytest.approx(-1000 * info["reward_terms"]["carbon"])
        assert info["guideline"]["verdict"] in VERDICTS
        assert 0 <= info["guideline"]["share"] <= 1
        assert set(info["guideline"]["best"]) <= names
        if terminated or truncated:
            break


@pytest.mark.parametrize("kind", KINDS)
def test_info_says_what_a_vector_step_was_worth(kind):
    n = 8
    env = gym.make_vec(f"onco_gym/{kind}-v0", num_envs=n, card=small())
    regimens = len(env.unwrapped.action_names)
    _, info = env.reset(seed=3)
    assert info["guideline"]["best"].shape == (n, regimens)
    assert info["guideline"]["best"].any(1).all()
    env.action_space.seed(0)
    for _ in range(3):
        _, _, _, _, info = env.step(env.action_space.sample())
        assert {name: term.shape for name, term in info["reward_terms"].items()} == dict.fromkeys(TERMS, (n,))
        assert info["carbon_kg"] == pytest.approx(-1000 * info["reward_terms"]["carbon"])
        assert info["guideline"]["best"].shape == (n, regimens)
        assert set(info["guideline"]["verdict"]) <= set(range(len(VERDICTS)))
        assert ((info["guideline"]["share"] >= 0) & (info["guideline"]["share"] <= 1)).all()


def test_what_is_given_agrees_with_what_was_best():
    """A regimen among the best options of the last look has a share of experts behind it, any other has none."""
    env = gym.make("onco_gym/Card-v0", card=small())
    rng = np.random.default_rng(0)
    for seed in range(8):
        _, info = env.reset(seed=seed)
        for _ in range(12):
            _, _, terminated, truncated, info = env.step(int(rng.integers(env.action_space.n)))
            said = info["guideline"]
            assert (info["given"] in said["best"]) == (said["share"] > 0)
            assert (said["share"] > 0) == (said["verdict"] in ("later", "option", "preferred"))
            assert (info["reward_terms"]["guideline"] >= 0) == (said["share"] > 0)
            if terminated or truncated:
                break


def test_terms_that_are_not_wanted_are_zero():
    env = gym.make("onco_gym/NSCLC-v0", terms=("outcome",), decide="cycles")
    env.reset(seed=1)
    for _ in range(3):
        _, reward, _, _, info = env.step(env.unwrapped.action_names.index("docetaxel"))
        assert reward == pytest.approx(info["reward_terms"]["outcome"])
        assert [info["reward_terms"][name] for name in NAMES[1:]] == [0, 0, 0]
        assert info["carbon_kg"] == 0


def test_weights_can_be_given_to_make():
    weights = {"outcome": 0.0, "guideline": 1.0, "carbon": 2.0}
    one, two = gym.make("onco_gym/Card-v0", card=small(), weights=weights), gym.make("onco_gym/Card-v0", card=small())
    one.reset(seed=4), two.reset(seed=4)
    for action in (3, 3, 11):
        _, reward, _, _, info = one.step(action)
        assert info["reward_terms"] == pytest.approx(two.step(action)[4]["reward_terms"])
        terms = info["reward_terms"]
        expected = terms["guideline"] + 2 * terms["carbon"] + two.unwrapped.engine.card.reward.fairness * terms["fairness"]
        assert reward == pytest.approx(expected, abs=1e-6)


def play(env, agent, steps=80, seed=0):
    """Mean fairness term of a decision, and the report."""
    observation, info = env.reset(seed=seed)
    total = 0.0
    for _ in range(steps):
        observation, _, _, _, info = env.step(agent.act(observation, info["action_mask"]))
        total += float(info["reward_terms"]["fairness"].sum())
    report = env.unwrapped.fairness()
    return total / report["sex"].decisions, report


def test_a_policy_that_withholds_from_one_group_is_seen():
    env = gym.make_vec("onco_gym/NSCLC-v0", num_envs=384)
    engine = env.unwrapped.engine
    equal_term, equal = play(env, GuidelineAgent(engine.card))
    unequal_term, unequal = play(env, BiasedAgent(engine.card, "insurance", "medicaid", 1.0))
    assert set(equal) == {name for name, _ in engine.scenario.groups}
    for value in equal.values():
        assert value.decisions > 2000
        assert value.nats < 3 * value.chance + 0.002
    assert abs(equal_term) < 0.02
    assert unequal["insurance"].nats > 5 * unequal["insurance"].chance
    assert unequal["insurance"].nats == max(value.nats for value in unequal.values())
    assert unequal_term < -0.01


def test_the_tally_of_an_environment_begins_anew_with_a_seed():
    env = gym.make("onco_gym/Card-v0", card=small())
    vector = gym.make_vec("onco_gym/Card-v0", num_envs=8, card=small())
    for one, action, n in ((env, 3, 1), (vector, np.full(8, 3), 8)):
        one.reset(seed=0)
        one.step(action)
        assert one.unwrapped.fairness()["sex"].decisions == n
        one.reset()
        assert one.unwrapped.fairness()["sex"].decisions == n, "the next patients are written into the same tally"
        one.step(action)
        assert one.unwrapped.fairness()["sex"].decisions == pytest.approx(2 * n, rel=0.01)
        one.reset(seed=0)
        assert one.unwrapped.fairness()["sex"].decisions == 0
        one.step(action)
        one.unwrapped.reset_fairness()
        assert one.unwrapped.fairness()["sex"].decisions == 0


def test_linear_reward_of_mo_gymnasium():
    mo_gymnasium = pytest.importorskip("mo_gymnasium")
    vector = mo_gymnasium.make("onco_gym/mo-NSCLC-v0", decide="cycles")
    weights = card_weights(vector.unwrapped.engine.card)
    env = mo_gymnasium.wrappers.LinearReward(vector, weight=np.array([weights[name] for name in TERMS]))
    plain = gym.make("onco_gym/NSCLC-v0", decide="cycles")
    env.reset(seed=5), plain.reset(seed=5)
    over = False
    while not over:
        _, reward, terminated, truncated, info = env.step(17)
        _, expected, _, _, _ = plain.step(17)
        assert np.ndim(reward) == 0
        assert reward == pytest.approx(expected, abs=1e-6)
        assert info["vector_reward"] in env.unwrapped.reward_space
        over = terminated or truncated
    env.set_weight(np.array([0.0, 0.0, 0.0, 1.0]))
    env.reset(seed=5)
    travel = vector.unwrapped.journey.patient.travel[0] * 0.168
    assert env.step(17)[1] == pytest.approx(-(1.5 + 8.8 + VISIT + travel) / 1000, abs=0.01)
