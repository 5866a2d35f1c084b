"""The workflow: what is known when, what it costs, and that information has value."""

import functools

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import CARDS, interval, refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from onco_gym.agents import Agent, AgentError, rollout
from onco_gym.agents.workflow import Indications, WorkflowAgent
from onco_gym.cards import load_card
from onco_gym.cards.scenarios import scenario
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.origins import Seat
from onco_gym.interfaces.workflow import APPEAL, AWAITED, action_parts, observation_fields
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.patients import CausalGenerator
from onco_gym.patients.traits import NEVER, encode
from onco_gym.rewards import TERMS, group_divergence, hear
from onco_gym.simulator.chance import Sampled
from onco_gym.simulator.observation import ctdna, diameter

N = 1000
OUTCOME, GUIDELINE, FAIRNESS, CARBON = (list(TERMS).index(name) for name in ("outcome", "guideline", "fairness", "carbon"))
TESTING = ("indicated", "never", "everything")


@functools.cache
def clinic():
    """The engine of NSCLC, and its compiled step; nothing is donated, so that a visit can be played twice."""
    engine = make_engine("nsclc", kind="workflow", decide="cycles")

    @jax.jit
    def step(encounter, tally, action):
        after, tally, outcome = engine.advance(encounter, tally, action)
        return after, tally, outcome, *engine.look(after)

    return engine, step


@functools.cache
def first_visit():
    """The first visit of N patients: the encounter, what is seen, and the mask."""
    engine, _ = clinic()
    encounter, observation, mask, _ = engine.admit(Seat.first(np.arange(N, dtype=np.uint64)))
    return encounter, np.asarray(observation).T, np.asarray(mask).T


@pytest.fixture(scope="module")
def engine():
    return clinic()[0]


@pytest.fixture(scope="module")
def encounter():
    return first_visit()[0]


def visit(encounter, tally=None, **parts):
    """One step under the same or one action per patient: the encounter, the tally, the outcome, what is seen, and the mask."""
    engine, step = clinic()
    wanted = {"regimen": engine.scenario.holiday, "next_visit": 0, **parts}
    assert set(wanted) <= set(engine.kind.parts)
    columns = [np.broadcast_to(wanted.get(name, 0), N) for name in engine.kind.parts]
    action = engine.kind.checked(np.stack(columns, 1), N)
    after, tally, outcome, observation, mask = step(encounter, engine.tally() if tally is None else tally, action)
    return after, tally, outcome, np.asarray(observation), np.asarray(mask)


def shown(observation, name):
    """(n,) a field in its unit."""
    field = next(field for field in clinic()[0].kind.fields if field.name == name)
    return field.low + (field.high - field.low) * observation[field.index]


def with_state(encounter, **changes):
    journey = encounter.journey
    return encounter._replace(journey=journey._replace(state=journey.state._replace(**changes)))


def with_clone(encounter, name, share):
    """The same patients with a resistant clone of that share."""
    state = encounter.journey.state
    row = clinic()[0].scenario.clones.index(name)
    shares = jnp.full_like(state.clones, 1e-9).at[row].set(share).at[0].set(1 - share)
    return with_state(encounter, clones=jnp.log(shares) + state.volume)


def regimen(name):
    return clinic()[0].scenario.regimens.index(name)


def kg(outcome):
    return -1000 * np.asarray(outcome.terms)[CARBON]


# ---------------------------------------------------------------- What is known, and when


def test_nothing_is_known_at_the_first_visit(engine):
    _, seen, _ = first_visit()
    index = {field.name: field.index for field in engine.kind.fields}
    tests = [f"{what}_{test}" for what in ("known", "pending") for test in engine.scenario.tests]
    for name in (*engine.scenario.biomarkers, *tests, "ctdna", "known_ctdna"):
        assert (seen[index[name]] == 0).all(), name
    assert (shown(seen, "cycles_since_ctdna") == 12).all()
    assert (seen[len(engine.scenario.fields) :][-len(engine.scenario.regimens) :] == 0).all()
    assert (shown(seen, "diameter") > 0).all()  # but there is a baseline scan


def test_a_result_comes_after_the_patients_own_wait_and_later_where_it_has_to_be_fought_for(engine, encounter):
    patient = encounter.journey.patient
    refused = np.asarray(patient.result_cycle) >= NEVER
    comes = 1 + np.asarray(patient.wait) + APPEAL * refused
    assert (refused.mean(1) > 0.1).all()
    assert (refused.mean(1) < 0.9).all()
    orders = dict.fromkeys(engine.scenario.tests, 1)
    for cycle in range(1, 7):
        encounter, _, _, seen, _ = visit(encounter, **orders)
        orders = {}
        known = np.stack([shown(seen, f"known_{test}") for test in engine.scenario.tests]) > 0.5
        pending = np.stack([shown(seen, f"pending_{test}") for test in engine.scenario.tests]) > 0.5
        assert np.array_equal(known, comes <= cycle)
        assert np.array_equal(pending, ~known)
        traits = len(engine.scenario.traits)
        columns = seen[traits : traits + len(engine.scenario.biomarkers)]
        revealed = known[list(engine.scenario.biomarker_test)]
        np.testing.assert_array_equal(columns, np.asarray(patient.shown)[traits:] * revealed)
    assert known.mean() > 0.95


@pytest.mark.slow
def test_nobody_is_judged_by_a_result_that_was_not_read(encounter):
    """In the step that orders a test, and until the next visit, the panel knows what the agent knows."""
    held = {"regimen": regimen("pembrolizumab_platinum_pemetrexed"), "next_visit": 3}
    _, _, without, _, _ = visit(encounter, **held)
    _, _, ordered, seen, _ = visit(encounter, ngs=1, pdl1=1, **held)
    assert (shown(seen, "known_ngs") > 0.5).mean() > 0.9  # came meanwhile
    treated = np.asarray(ordered.given) == held["regimen"]
    assert treated.mean() > 0.5
    for said in ("code", "share", "points", "first"):
        one, two = (np.asarray(getattr(outcome.verdict, said)) for outcome in (without, ordered))
        assert np.array_equal(one[treated], two[treated]), said


def test_waiting_for_a_result_is_accepted_before_the_first_line(encounter):
    _, _, waits, _, _ = visit(encounter, ngs=1)
    _, _, idles, _, _ = visit(encounter)
    assert (np.asarray(waits.verdict.code) >= VERDICTS.index("option")).all()
    assert (np.asarray(idles.verdict.code) < VERDICTS.index("option")).mean() > 0.5


def test_ordering_again_begins_nothing_anew_but_costs(engine):
    once, *_ = first_visit()
    once, _, first, _, _ = visit(once, ngs=1, pdl1=1)
    alone, _, nothing, _, _ = visit(once)
    twice, _, again, _, _ = visit(once, ngs=1)
    prices = {test.name: test.cost_usd for test in engine.card.tests}
    footprints = {test.name: test.kgco2e for test in engine.card.tests}
    under_way = np.asarray(once.memory.due)[0] < NEVER
    np.testing.assert_array_equal(np.asarray(twice.memory.due)[0][under_way], np.asarray(alone.memory.due)[0][under_way])
    assert np.allclose(first.cost, prices["ngs"] + prices["pdl1"])
    assert np.allclose(again.cost, prices["ngs"])
    assert np.allclose(nothing.cost, 0)
    alive = np.asarray(once.journey.state.alive) > 0.5
    np.testing.assert_allclose((kg(again) - kg(nothing))[alive], footprints["ngs"], atol=1e-2)


def test_the_footprint_of_a_test_counts_once_when_it_is_ordered(engine):
    """Whether the result comes or the patient dies before, and also where ctDNA tells sooner."""
    ordered = plain = first_visit()[0]
    orders, spent = {"ngs": 1, "pdl1": 1, "ctdna": 1}, np.zeros(N)
    for _ in range(5):
        ordered, _, with_tests, _, _ = visit(ordered, **orders)
        plain, _, without, _, _ = visit(plain)
        orders, spent = {}, spent + kg(with_tests) - kg(without)
    total = sum(test.kgco2e for test in engine.card.tests) + engine.card.workup.ctdna_kgco2e
    np.testing.assert_allclose(spent, total, atol=1e-2)


# ---------------------------------------------------------------- ctDNA, resistant clones, scans


def test_ctdna_shows_what_was_last_measured(engine, encounter):
    encounter, _, outcome, seen, _ = visit(encounter, ctdna=1)
    journey = encounter.journey
    level = np.asarray(ctdna(engine.params, journey, Sampled(journey.key, journey.state.cycle)))
    np.testing.assert_allclose(shown(seen, "ctdna"), np.clip(level, 0, 6), atol=1e-4)
    assert np.allclose(outcome.cost, engine.card.workup.ctdna_cost_usd)
    for since in (0, 2, 4):
        alive = np.asarray(encounter.journey.state.alive) > 0.5
        assert (shown(seen, "known_ctdna") == 1).all()
        np.testing.assert_allclose(shown(seen, "cycles_since_ctdna")[alive], since, atol=1e-4)
        np.testing.assert_allclose(shown(seen, "ctdna"), np.clip(level, 0, 6), atol=1e-4)
        encounter, _, _, seen, _ = visit(encounter, next_visit=1)


def test_ctdna_tells_what_sequencing_tells_where_enough_is_shed(engine, encounter):
    little = with_state(encounter, volume=encounter.journey.state.volume - 3.5, clones=encounter.journey.state.clones - 3.5)
    _, _, _, seen, _ = visit(little, ctdna=1)
    shed = shown(seen, "ctdna") >= engine.card.workup.ctdna_detection
    assert 0.05 < shed.mean() < 0.95
    assert np.array_equal(shown(seen, "known_ngs") > 0.5, shed)
    assert (shown(seen, "known_pdl1") == 0).all()
    assert (shown(seen, "pending_ngs") == 0).all()


def test_a_resistant_clone_is_seen_by_ctdna_or_sequencing_only(engine, encounter):
    large = with_clone(encounter, "gatekeeper", 0.4)
    small = with_clone(encounter, "gatekeeper", 0.2 * engine.card.observation.marker_detection)

    def found(encounter, **orders):
        encounter, _, _, seen, _ = visit(encounter, **orders)
        return encounter, shown(seen, "marker_gatekeeper") > 0.5, seen

    assert not found(large)[1].any()
    _, scanned, _ = found(with_state(large, result_cycle=large.journey.state.result_cycle * 0), imaging=1)
    assert not scanned.any()  # though sequencing was known, and some have progressed
    assert not found(small, ctdna=1)[1].any()
    _, by_blood, seen = found(large, ctdna=1)
    assert np.array_equal(by_blood, shown(seen, "ctdna") >= engine.card.workup.ctdna_detection)
    # Sequencing shows the clones that were in the tissue, and shows them when its result comes.
    encounter, _, seen = found(large, ngs=1)
    for _ in range(5):
        encounter, by_tissue, seen = found(with_clone(encounter, "gatekeeper", 1e-6))
        assert np.array_equal(by_tissue, shown(seen, "known_ngs") > 0.5)
    assert by_tissue.mean() > 0.95


def test_sequencing_again_shows_what_has_grown_since_and_after_its_turnaround():
    encounter = with_clone(first_visit()[0], "gatekeeper", 1e-9)
    encounter, _, _, seen, _ = visit(encounter, ngs=1, next_visit=3)
    known = shown(seen, "known_ngs") > 0.5
    assert not (shown(seen, "marker_gatekeeper") > 0.5).any()
    encounter = with_clone(encounter, "gatekeeper", 0.4)
    encounter, _, _, seen, _ = visit(encounter, ngs=1)
    assert not (shown(seen, "marker_gatekeeper") > 0.5)[~known].any()  # of the first sample, sent before the clone was there
    slow = np.asarray(encounter.memory.due)[0] < NEVER
    assert (slow & known).sum() > 100
    assert np.array_equal((shown(seen, "marker_gatekeeper") > 0.5)[known], ~slow[known])
    assert np.array_equal(shown(seen, "pending_ngs") > 0.5, slow)
    _, _, outcome, seen, _ = visit(encounter, next_visit=3)
    there = known & ~np.asarray(outcome.terminated)
    assert (shown(seen, "marker_gatekeeper") == 1)[there].mean() > 0.95


def test_scans_are_made_only_where_they_are_ordered_or_the_tumour_is_noticed(engine):
    encounter, before, _ = first_visit()
    after, _, outcome, seen, _ = visit(encounter)
    noticed = shown(seen, "cycles_since_scan") < 0.5
    assert noticed.mean() < 0.2
    assert np.array_equal(shown(seen, "diameter")[~noticed], shown(before, "diameter")[~noticed])
    assert (np.asarray(outcome.cost) == 0).all()
    measured = {}
    for imaging, price in ((1, engine.card.workup.ct_cost_usd), (2, engine.card.workup.mri_cost_usd)):
        scanned, _, outcome, seen, _ = visit(encounter, imaging=imaging)
        assert (shown(seen, "cycles_since_scan") == 0).all()
        assert np.allclose(outcome.cost, price)
        measured[imaging] = np.asarray(scanned.journey.state.diameter)
        np.testing.assert_allclose(shown(seen, "diameter"), np.minimum(measured[imaging], 600), rtol=1e-4, atol=1e-3)
    journey = after.journey
    true = np.asarray(diameter(journey.state.volume, journey.patient.lesions))
    np.testing.assert_allclose(measured[2] / true - 1, (measured[1] / true - 1) / 2, atol=1e-5)
    assert np.abs(measured[1] / true - 1).mean() > 0.01


def test_a_scan_is_made_before_the_next_visit_and_change_is_counted_from_it(encounter):
    orders = {"imaging": 1, "regimen": regimen("carboplatin_paclitaxel"), "next_visit": 2}
    one, _, outcome, seen, _ = visit(encounter, **orders)
    lives = ~np.asarray(outcome.terminated)
    state = one.journey.state
    assert (np.asarray(state.since_scan)[lives] == 0).all()
    change = np.clip(np.asarray(state.diameter / state.baseline) - 1, -1, 2)
    np.testing.assert_allclose(shown(seen, "change_from_baseline")[lives], change[lives], atol=1e-4)
    two, _, _, unscanned, _ = visit(one)
    quiet = lives & (np.asarray(two.journey.state.since_scan) > 0)
    for name in ("diameter", "change_from_baseline", "change_from_nadir"):
        assert np.array_equal(shown(unscanned, name)[quiet], shown(seen, name)[quiet])


# ---------------------------------------------------------------- Evidence


@jax.jit
def panel_shares(journey):
    engine, _ = clinic()
    return engine.panel.shares(jnp, hear(engine.panel, engine.scenario, engine.params, journey))


def test_evidence_is_shown_only_where_it_was_looked_up(engine):
    encounter = with_clone(first_visit()[0], "gatekeeper", 0.4)
    names = [f"evidence_{name}" for name in engine.scenario.regimens]
    for topic in range(3):
        after, _, _, seen, _ = visit(encounter, ctdna=1, evidence=topic)
        rows = np.stack([shown(seen, name) for name in names])
        assert (shown(seen, "looked_up_guideline") == (topic == 1)).all()
        assert (shown(seen, "looked_up_resistance") == (topic == 2)).all()
        if topic == 0:
            assert (rows == 0).all()
        if topic == 1:
            np.testing.assert_allclose(rows, panel_shares(after.journey), atol=1e-6)
        if topic == 2:
            marked = shown(seen, "marker_gatekeeper") > 0.5
            assert marked.any()
            assert np.array_equal(rows[regimen("gefitinib_erlotinib")] > 0.5, marked)
            assert (rows[regimen("best_supportive_care")] == 0).all()


# ---------------------------------------------------------------- The next visit


def seen_every_cycle(encounter, chosen, cycles, imaging):
    """The same patients seen every cycle, until each one's ``cycles`` are over: the journeys, totals of terms and weeks, how they
    ended, and whether one and the same regimen was given throughout.
    """
    steady = np.ones(N, bool)
    terms, lived = np.zeros((len(TERMS), N), np.float32), np.zeros(N, np.float32)
    over, ended, kept = np.zeros(N, bool), None, encounter
    for number in range(4):
        scan = np.where(number == cycles - 1, imaging, 0)
        encounter, _, outcome, _, _ = visit(encounter, regimen=chosen, imaging=scan)
        idle = over | (number >= cycles)
        terms += np.where(idle, 0, np.asarray(outcome.terms))
        lived += np.where(idle, 0, np.asarray(outcome.lived))
        steady &= idle | (np.asarray(outcome.given) == chosen)
        ends = np.stack([outcome.terminated, outcome.truncated])
        ended = ends if ended is None else np.where(idle, ended, ends)
        kept = jax.tree.map(lambda old, new, idle=idle: np.where(idle, old, new), kept, encounter)
        over = over | (~idle & ends.any(0))
    return kept, terms, lived, ended, steady


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), late=st.booleans())
def test_seeing_a_patient_after_k_cycles_is_living_through_k_cycles(engine, encounter, seed, late):
    """Also where patients die, where the episode is cut, and beside patients who are seen earlier."""
    rng = np.random.default_rng(seed)
    chosen, cycles, imaging = rng.integers(0, len(engine.scenario.regimens), N), rng.integers(1, 5, N), rng.integers(0, 3, N)
    if late:
        near = engine.horizon - jnp.asarray(rng.integers(1, 4, N), jnp.int32)
        encounter = with_state(encounter, cycle=near, performance=encounter.journey.state.performance + 1.5)
    after, _, outcome, _, _ = visit(encounter, regimen=chosen, next_visit=cycles - 1, imaging=imaging)
    kept, terms, lived, ended, steady = seen_every_cycle(encounter, chosen, cycles, imaging)
    assert np.array_equal(np.stack([outcome.terminated, outcome.truncated]), ended)
    assert ended[0].any()
    assert ended[1].any() == late
    for one, two in zip(jax.tree.leaves(after.journey), jax.tree.leaves(kept.journey), strict=True):
        np.testing.assert_allclose(np.asarray(one), two, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(outcome.lived, lived, atol=1e-5)
    for term in (OUTCOME, GUIDELINE):
        np.testing.assert_allclose(np.asarray(outcome.terms)[term], terms[term], atol=1e-5)
    saved = terms[CARBON] < np.asarray(outcome.terms)[CARBON] - 1e-6
    at_home = np.array([one.route in ("oral", "none") for one in engine.card.regimens])[np.asarray(outcome.given)]
    same = (cycles > 1) & (lived > 1.01) & steady
    assert saved[same & at_home].all()
    assert not saved[same & ~at_home].any()
    reward = sum(engine.weights[name] * np.asarray(outcome.terms)[row] for row, name in enumerate(TERMS))
    np.testing.assert_allclose(outcome.reward, reward, atol=1e-5)


def test_the_ledger_counts_one_decision_a_visit(encounter):
    filled = visit(encounter, regimen=regimen("docetaxel"))[1]
    counts = {}
    for cycles in (1, 4):
        _, tally, outcome, _, _ = visit(encounter, filled, regimen=regimen("platinum_pemetrexed"), next_visit=cycles - 1)
        counts[cycles] = np.asarray(tally.counts + tally.new), np.asarray(outcome.terms)[FAIRNESS]
    np.testing.assert_array_equal(counts[1][0], counts[4][0])
    np.testing.assert_array_equal(counts[1][1], counts[4][1])
    assert counts[4][0].sum() == pytest.approx(2 * N * len(clinic()[0].scenario.groups), rel=0.1)


def test_no_decisions_are_counted_after_death_or_the_horizon(engine, encounter):
    over = with_state(encounter, cycle=jnp.full(N, engine.horizon, jnp.int32))
    dead = with_state(encounter, alive=jnp.zeros(N))
    for gone in (over, dead):
        _, tally, outcome, _, _ = visit(gone, regimen=regimen("docetaxel"), next_visit=3)
        assert all(one.decisions == 0 for one in group_divergence(engine.scenario, tally).values())
        assert (np.asarray(outcome.terms) == 0).all()
        assert (np.asarray(outcome.lived) == 0).all()


def test_what_is_given_in_the_clinic_needs_its_visits():
    """Injections too: fulvestrant has no infusions, and is not taken at home."""
    engine = make_engine("breast", kind="workflow")
    needs = dict(zip(engine.scenario.regimens, engine.kind._in_clinic, strict=True))
    asked = ("fulvestrant", "cdk46_fulvestrant", "letrozole", "drug_holiday")
    assert [bool(needs[name]) for name in asked] == [True, True, False, False]


# ---------------------------------------------------------------- Any actions


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whatever_is_done_what_is_known_stays_known(engine, encounter, seed):
    rng = np.random.default_rng(seed)
    sizes = action_parts(engine.card)
    prices = {test.name: test.cost_usd for test in engine.card.tests}
    workup = engine.card.workup
    known, marker = np.zeros((len(engine.scenario.tests), N), bool), np.zeros((len(engine.scenario.clones) - 1, N))
    for _ in range(6):
        action = {name: rng.integers(0, size, N) for name, size in sizes.items()}
        encounter, _, outcome, seen, mask = visit(encounter, **action)
        state, memory = encounter.journey.state, encounter.memory
        result, cycle = np.asarray(state.result_cycle), np.asarray(state.cycle)
        assert np.isin(result[result > cycle], [NEVER, AWAITED]).all()
        assert (np.asarray(memory.due) > cycle).all()
        assert (known <= (result <= cycle)).all()
        assert (marker <= np.asarray(state.marker)).all()
        known, marker = result <= cycle, np.asarray(state.marker)
        assert ((seen >= 0) & (seen <= 1)).all()
        assert seen.shape[0] == len(engine.kind.fields)
        assert mask.shape[0] == sum(sizes.values())
        cost = sum(price * action[name] for name, price in prices.items()) + workup.ctdna_cost_usd * action["ctdna"]
        cost = cost + np.array([0, workup.ct_cost_usd, workup.mri_cost_usd])[action["imaging"]]
        np.testing.assert_allclose(outcome.cost, cost)
        assert (np.asarray(outcome.lived) <= action["next_visit"] + 1).all()


def test_wrong_actions_are_named():
    kind = clinic()[0].kind
    good = np.zeros(len(kind.parts), int)
    assert kind.checked(good, None).dtype == np.int32
    for part, name in enumerate(kind.parts):
        wrong = good.copy()
        wrong[part] = 99
        refuses(gym.error.InvalidAction, f"{name} is 99, expected 0", kind.checked, wrong, None)
    for wrong in (good[:-1], good.astype(float)):
        refuses(gym.error.InvalidAction, "expected whole numbers of shape", kind.checked, wrong, None)


def test_maskable_ppo_reads_the_mask(engine, encounter):
    """Its distribution takes the masks of all parts in one row, and then chooses only regimens that can be given."""
    import torch
    from sb3_contrib.common.maskable.distributions import MaskableMultiCategoricalDistribution

    _, _, _, _, mask = visit(encounter, regimen=regimen("platinum_pemetrexed"), next_visit=3)
    sizes = engine.kind.space.nvec
    torch.manual_seed(0)
    chances = MaskableMultiCategoricalDistribution(sizes.tolist()).proba_distribution(torch.zeros(N, int(sizes.sum())))
    chances.apply_masking(mask.T.copy())
    actions = chances.sample().numpy()
    start = sizes[:-2].sum()
    can = mask[start : start + sizes[-2]]
    assert can.mean() < 1
    assert can[actions[:, -2], np.arange(N)].all()
    assert mask[:start].all()
    assert mask[start + sizes[-2] :].all()
    assert {len(np.unique(column)) for column in actions.T[:-2]} == {2, 3}


# ---------------------------------------------------------------- Agents, and the value of information


@functools.cache
def run(name, testing, n=N):
    engine = make_engine(name, kind="workflow")
    return rollout(engine, WorkflowAgent(engine.card, testing), n, seed=7, keep_observations=n == N)


def part(name, testing, which):
    """(H, n) one part of the actions."""
    return run(name, testing).actions[:, :, list(action_parts(load_card(name))).index(which)]


def test_agents_keep_the_protocol(nsclc):
    assert isinstance(WorkflowAgent(nsclc), Agent)
    with pytest.raises(AgentError, match="expected one of indicated, never, everything"):
        WorkflowAgent(nsclc, "sometimes")


@pytest.mark.slow
def test_each_agent_tests_as_it_says():
    card = load_card("nsclc")
    tests = [test.name for test in card.tests]
    for name in (*tests, "ctdna"):
        assert (part("nsclc", "never", name) <= 0).all()
        assert (np.abs(part("nsclc", "everything", name)) == 1).all()  # -1 after the end
        ordered = part("nsclc", "indicated", name)
        assert ordered[0].mean() > 0.3
        assert (ordered > 0).sum(0).max() < 8
    scans = (part("nsclc", "indicated", "imaging") > 0).sum() * card.cycle_weeks / run("nsclc", "indicated").weeks.sum()
    assert 0.5 / card.observation.scan_every_cycles < scans < 1.5 / card.observation.scan_every_cycles
    assert (part("nsclc", "indicated", "next_visit") > 0).mean() > 0.01
    assert (part("nsclc", "everything", "next_visit") <= 0).all()


def test_the_first_line_waits_one_cycle_at_most_and_the_panel_accepts_it():
    engine, episodes = clinic()[0], run("nsclc", "indicated")
    chosen = part("nsclc", "indicated", "regimen")
    line = next(field for field in engine.kind.fields if field.name == "line")
    untreated = episodes.observations[:, :, line.index][: len(chosen)] == 0
    waiting = (chosen == engine.scenario.holiday) & untreated
    assert waiting[0].mean() > 0.3
    assert not waiting[WorkflowAgent.PATIENCE :].any()
    assert (episodes.verdicts[0][waiting[0]] == VERDICTS.index("option")).all()


def test_a_test_is_indicated_where_its_result_would_change_the_choice(nsclc):
    """Hand-worked from the card's first-line rules for fit patients without squamous histology."""
    _, seen, mask = first_visit()
    agent = WorkflowAgent(nsclc)
    known, can = agent._knowledge(seen.T), mask[agent._regimens].T
    indicated = Indications(nsclc)(seen.T, can)
    (ngs, pdl1), (ngs_decides, pdl1_decides) = indicated.helpful, indicated.decisive
    fit = (known["ecog"] <= 1) & (known["squamous"] < 0.5)
    smoker = fit & (known["smoking=ever"] > 0.5)
    assert ngs[fit].all()  # a driver brings its own drug
    assert ngs_decides[fit].all()  # and rules out what is given without one
    assert pdl1[smoker].all()  # from 50%: pembrolizumab alone
    assert not pdl1_decides[fit].any()  # but chemotherapy with it stays preferred
    after, _, _, _, _ = visit(first_visit()[0], ngs=1, pdl1=1, next_visit=3)
    _, _, _, seen, mask = visit(after, next_visit=3)
    nothing_left = (shown(seen, "known_ngs") > 0.5) & (shown(seen, "known_pdl1") > 0.5)
    assert nothing_left.mean() > 0.8
    assert not Indications(nsclc)(seen.T, mask[agent._regimens].T).helpful[:, nothing_left].any()


def test_genotypes_are_asked_for_only_where_a_triplet_is_considered():
    """Colorectal: UGT1A1 and DPYD speak against FOLFOXIRI, which is for fit patients under 70 with right-sided tumours."""
    card = load_card("colorectal")
    layout, agent = scenario(card), WorkflowAgent(card)
    fields, traits = layout.fields, encode(card, CausalGenerator(card).sample(N, seed=1))
    seen = np.zeros((N, len(observation_fields(layout))), np.float32)
    seen[:, : len(layout.traits)] = traits.shown[: len(layout.traits)].T
    seen[:, next(field.index for field in fields if field.name == "ecog")] = traits.ecog / 4
    known = agent._knowledge(seen)
    actions = dict(zip(action_parts(card), agent.act(seen, np.ones((N, sum(action_parts(card).values())), bool)).T, strict=True))
    candidate = (known["left_sided"] < 0.5) & (known["age"] < 70) & (known["ecog"] == 0)
    assert 0.05 < candidate.mean() < 0.5
    assert np.array_equal(actions["germline"] > 0, candidate)
    assert actions["ngs"].mean() > 0.9
    assert actions["msi"].mean() > 0.9


@pytest.mark.parametrize(("name", "n"), [("nsclc", N), *(pytest.param(name, 4000, marks=pytest.mark.slow) for name in CARDS)])
def test_information_has_value_and_too_much_of_it_costs(name, n):
    """Paired: the same patients with the same chance. Where the effect is small, only that it is not the other way round.

    In breast cancer tests mostly decide later lines; in melanoma scans every cycle do little harm.
    """
    indicated, never, everything = (run(name, testing, n) for testing in TESTING)
    low, high = interval(indicated.terms["outcome"] - never.terms["outcome"])
    assert (high if name == "breast" else low) > 0, f"{name}: indicated tests bring {low:.3f} to {high:.3f} years"
    low, high = interval(everything.terms["outcome"] - indicated.terms["outcome"])
    assert low <= 0, f"{name}: testing everything brings {low:.3f} to {high:.3f} years more"
    assert everything.cost_usd.mean() > 5 * indicated.cost_usd.mean()
    assert everything.carbon_kg.mean() > 1.2 * indicated.carbon_kg.mean()
    assert indicated.cost_usd.mean() > never.cost_usd.mean()
    low, high = interval(everything.returns - indicated.returns)
    assert (low if name == "melanoma" else high) < 0, f"{name}: testing everything pays {low:.3f} to {high:.3f}"
