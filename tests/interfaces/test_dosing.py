"""Dosing: what a level does, what a pause does, and that adaptive therapy can win."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
from conftest import CARDS, refuses
from gymnasium.error import InvalidAction
from hypothesis import given, settings
from hypothesis import strategies as st

from onco_gym.agents import AgentError, GuidelineAgent, rollout
from onco_gym.agents.adaptive import AdaptiveDose, ConstantDose, GuidelineDose, dosed, time_to_progression, without_death
from onco_gym.cards import load_card
from onco_gym.foundation.units import WEEKS_PER_MONTH
from onco_gym.interfaces.dosing import PAUSE
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.origins import Seat
from onco_gym.patients import CausalGenerator
from onco_gym.simulator.observation import MINIMUM_MM, PROGRESSION

N, CYCLES = 256, 24
EGFR = "egfr_sensitising and ecog <= 1"
SEEDS = st.integers(0, 2**32 - 1)


@functools.lru_cache
def make(name, kind="dose"):
    card = load_card(name)
    return make_engine(
        card, cohort=CausalGenerator(card).sample(1024, seed=3), kind=kind, terms=("outcome", "carbon"), decide="cycles"
    )


@functools.partial(jax.jit, static_argnums=0)
def admitted(engine, seat):
    return engine.begin(engine.draw(seat))


@functools.partial(jax.jit, static_argnums=0)
def stepped(engine, encounter, action):
    after, _, outcome = engine.advance(encounter, engine.tally(), action)
    return after, (after.journey.state, after.memory, outcome, *engine.look(after))


def start(engine, seed=0):
    return admitted(engine, Seat.first(np.arange(N, dtype=np.uint64) + np.uint64(seed)))


def played(engine, encounter, actions):
    """Patients after ``actions`` (cycles, N, ...); state, memory, outcome, observation and mask of every cycle."""
    seen = []
    for action in actions:
        encounter, now = stepped(engine, encounter, action)
        seen.append(now)
    return encounter, jax.tree.map(lambda *rows: np.stack(rows), *seen)


def doses(engine, regimen, intensities):
    """(cycles, N, D) the same ``intensities`` (cycles,) of a regimen for all."""
    actions = np.zeros((len(intensities), N, engine.kind.mask_size), np.float32)
    actions[:, :, dosed(engine.card).index(regimen)] = np.asarray(intensities, np.float32)[:, None]
    return actions


def carryover(engine, regimen):
    return float(engine.params.carryover[engine.scenario.regimens.index(regimen)])


def lasting(engine):
    """The regimen that stays longest in the body."""
    return engine.scenario.regimens[int(np.argmax(engine.params.carryover))]


def steady(engine, seen):
    """(N,) patients whose treatment began at once, was never held, and could always be given."""
    state = seen[0]
    fit = (state.held.max(0) < 0.5) & (state.barred.max((0, 1)) < 0.5) & (state.performance.max(0) < 1.4)
    return fit & (np.asarray(start(engine).journey.patient.delay) <= 1)


@pytest.mark.parametrize("name", CARDS)
def test_the_standard_dose_is_the_plain_environment(name):
    plain, dose = make(name, "regimen"), make(name)
    short = min((regimen for regimen in plain.card.regimens if regimen.active), key=lambda regimen: regimen.max_cycles or 999)
    for regimen in {lasting(dose), short.name, dosed(plain.card)[0]}:
        index = plain.scenario.regimens.index(regimen)
        one = played(plain, start(plain), np.full((CYCLES, N), index, np.int32))[1]
        two = played(dose, start(dose), doses(dose, regimen, np.ones(CYCLES)))[1]
        np.testing.assert_array_equal(one[2].given, two[2].given)
        np.testing.assert_allclose(one[2].terms, two[2].terms, atol=1e-5)
        np.testing.assert_allclose(one[0].volume, two[0].volume, atol=1e-4)
        np.testing.assert_allclose(one[3], two[3][:, :-2], atol=1e-4)
        assert np.asarray(two[0].held).sum() > 0, "no hold was met"
        assert np.asarray(start(dose).journey.patient.delay).max() > 1, "no late start was met"


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_levels_and_observations_stay_in_their_bounds(seed):
    engine = make("melanoma")
    rng = np.random.default_rng(seed)
    actions = rng.random((CYCLES, N, engine.kind.mask_size)).astype(np.float32) * rng.integers(0, 2, (CYCLES, N, 1))
    _, memory, outcome, observation, _ = played(engine, start(engine, seed=seed), actions)[1]
    level = memory.level
    assert ((level >= 0) & (level <= 1)).all()
    assert ((level == 0) | (level >= PAUSE * (1 - 1e-6))).all(), "a level below PAUSE is none"
    assert ((observation >= 0) & (observation <= 1)).all()
    np.testing.assert_array_equal(observation[:, -2], level)
    assert (outcome.terms[:, 0] >= 0).all()


@settings(max_examples=20, deadline=None)
@given(sequence=st.lists(st.floats(0, 1, width=32), min_size=CYCLES, max_size=CYCLES))
def test_the_level_follows_the_dose(sequence):
    """Superposition: what is left plus what comes; a first dose loads; a pause decays geometrically."""
    engine = make("breast")
    regimen = lasting(engine)
    keep = carryover(engine, regimen)
    seen = played(engine, start(engine), doses(engine, regimen, sequence))[1]
    level, whole = seen[1].level, steady(engine, seen)
    assert keep > 0.5
    assert whole.sum() > 5
    expected = 0.0
    for cycle, dose in enumerate(sequence):
        if dose < PAUSE:
            expected = keep * expected if keep * expected >= PAUSE else 0.0
        else:
            expected = keep * expected + (1 - keep) * dose if expected else dose
        np.testing.assert_allclose(level[cycle, whole], expected, atol=1e-5)


def test_a_pause_decays_and_keeps_the_line():
    engine = make("breast")
    regimen = lasting(engine)
    keep, row = carryover(engine, regimen), dosed(engine.card).index(lasting(engine))
    encounter, seen = played(engine, start(engine), doses(engine, regimen, [1.0] * 6 + [0.0] * 12))
    state, memory, outcome, _, mask = seen
    whole = steady(engine, seen)
    assert whole.sum() > 5
    for cycle in range(6, 18):
        left = keep ** (cycle - 5)
        np.testing.assert_allclose(memory.level[cycle][whole], left if left >= PAUSE else 0.0, atol=1e-5)
    had = np.diff(state.exposure[:, engine.scenario.regimens.index(regimen)], axis=0)
    np.testing.assert_allclose(had[5:, whole], memory.level[6:, whole], atol=1e-4, err_msg="exposure is the level that acts")
    assert (state.line[:, whole] == 1).all()
    assert mask[:, row][:, whole].all()
    names = np.array(engine.scenario.regimens)[outcome.given]
    assert (names[6][whole] == regimen).all()
    assert (names[-1] == "drug_holiday")[whole].all()
    resumed = played(engine, encounter, doses(engine, regimen, [0.6, 0.6]))[1]
    fit = whole & (resumed[0].held.max(0) < 0.5)
    np.testing.assert_allclose(resumed[1].level[:, fit], 0.6, atol=1e-5)


def test_an_impossible_choice_loses_the_cycle_and_the_level_decays():
    engine = make("breast")
    regimen, other = lasting(engine), "letrozole"
    actions = np.concatenate([doses(engine, other, [0.1]), doses(engine, regimen, [1.0]), doses(engine, other, [1.0])])
    state, memory, outcome, _, mask = played(engine, start(engine), actions)[1]
    begun = (state.exposure[0, engine.scenario.regimens.index(other)] > 0) & (memory.level[1] == 1)
    assert begun.sum() > 10
    assert not mask[1, dosed(engine.card).index(other)][begun].any(), "a line that was left is closed, however short"
    free = begun & (state.held[1] < 0.5)
    assert (np.array(engine.scenario.regimens)[outcome.given[2]][free] == "drug_holiday").all()
    np.testing.assert_allclose(memory.level[2][free], carryover(engine, regimen), atol=1e-5)
    assert (memory.level[2][begun & ~free] == 0).all(), "nothing is left after a hold"


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, intensity=st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32)))
def test_less_dose_never_means_more_toxicity(seed, intensity):
    engine = make("melanoma")
    regimen = dosed(engine.card)[seed % engine.kind.mask_size]
    encounter, _ = played(engine, start(engine, seed=seed), doses(engine, regimen, [1.0, 0.3, 0.7, 0.0]))
    less, more = (played(engine, encounter, doses(engine, regimen, [dose]))[1] for dose in sorted(intensity))
    assert (less[2].severe <= more[2].severe).all()
    calm = more[2].severe[0] < 0.5  # which organ an event hits may change with the dose
    assert (less[0].toxicity <= more[0].toxicity + 1e-6)[..., calm].all()
    assert (less[1].level <= more[1].level + 1e-6).all()
    assert (less[0].volume >= more[0].volume - 1e-5).all()


def test_wrong_actions_are_refused():
    kind = make("melanoma").kind
    good = np.full((3, kind.mask_size), 0.5)
    assert kind.checked(good, 3).dtype == np.float32
    shapes = (good[:, :-1], good[0], good[None], [[0.1], [0.1, 0.2], []])
    types = (good.astype(object), good > 0.1, good + 0j, "osimertinib", None)
    for wrong in (good * np.nan, good + 0.5001, good - 0.5001, good + 1e6, *shapes, *types):
        refuses(InvalidAction, r"expected|share of the standard dose", kind.checked, wrong, 3)


def limit(reference):
    return np.maximum(reference * PROGRESSION, reference + MINIMUM_MM)


def test_regrowth_in_a_pause_counts_from_the_baseline():
    engine = make("melanoma")
    state, _, _, _, mask = played(engine, start(engine), doses(engine, "vemurafenib", [1.0] * 4 + [0.0] * 20))[1]
    resumable = mask[3:, dosed(engine.card).index("vemurafenib")].all(0)
    fresh = resumable & (state.progressed[3] < 0.5) & (state.since_scan[3] == 0)
    scanned, before, now = state.since_scan[4:] == 0, state.progressed[3:-1] > 0.5, state.progressed[4:] > 0.5
    judged = fresh & scanned & ~before
    beyond = (state.diameter >= limit(state.baseline) * (1 - 1e-6))[4:]
    assert judged.sum() > 100
    np.testing.assert_array_equal(now[judged], beyond[judged])
    assert now[-1][fresh].mean() > 0.4, "who pauses for good progresses"
    kept = judged & ~now
    np.testing.assert_allclose(state.nadir[4:][kept], np.minimum(state.diameter, state.baseline)[4:][kept], rtol=1e-5)


def test_a_pause_when_a_scan_is_due_changes_nothing_about_recist():
    engine = make("melanoma")
    every = int(engine.card.observation.scan_every_cycles)
    assert every > 1
    pattern = [0.0 if (cycle + 1) % every == 0 else 1.0 for cycle in range(CYCLES)]
    state = played(engine, start(engine), doses(engine, "vemurafenib", pattern))[1][0]
    late = np.asarray(start(engine).journey.patient.delay) > 1
    larger = (state.since_scan[1:] == 0) & (state.diameter[1:] >= limit(state.nadir[:-1]) * (1 + 1e-6)) & ~late
    assert larger.sum() > 50
    assert (state.progressed[1:][larger] == 1).all()


def test_the_guideline_at_standard_dose_is_the_guideline():
    returns = []
    for kind, agent in (("regimen", GuidelineAgent), ("dose", GuidelineDose)):
        engine = make("nsclc", kind)
        encounter, agent = start(engine), agent(engine.card)
        observation, mask = engine.look(encounter)
        total, alive = np.zeros(N), np.ones(N, bool)
        for _ in range(60):
            action = engine.kind.checked(agent.act(np.asarray(observation).T, np.asarray(mask).T), N)
            encounter, (_, _, outcome, observation, mask) = stepped(engine, encounter, action)
            total += np.where(alive, outcome.terms[0], 0)
            alive &= ~np.asarray(outcome.terminated)
        returns.append(total)
    # Not always the same: what is left of a drug after the last line goes on acting for a while.
    assert np.isclose(*returns, atol=1e-3).mean() > 0.9
    assert abs(returns[0].mean() - returns[1].mean()) < 0.02


@pytest.fixture(scope="module")
def arms():
    """Patients with EGFR mutations under an EGFR inhibitor, continuously and adaptively, with death switched off."""
    card = load_card("nsclc")
    patients = CausalGenerator(card).sample(1000, seed=7, where=EGFR)
    engine = make_engine(without_death(card), cohort=patients, kind="dose", terms=("outcome",), horizon=174)
    agents = {}
    for regimen in ("osimertinib", "gefitinib_erlotinib"):
        agents[regimen, "continuous"] = ConstantDose(card, regimen)
        agents[regimen, "adaptive"] = AdaptiveDose(card, regimen, stop=-0.3, restart=-0.2)
    return card, {name: rollout(engine, agent, 1000, seed=7, keep_observations=True) for name, agent in agents.items()}


@pytest.mark.parametrize("regimen", ["osimertinib", "gefitinib_erlotinib"])
def test_adaptive_dosing_beats_the_maximum_dose_in_time_to_progression(arms, regimen):
    """Time to a sum of diameters 20% above that before treatment, same patients and same chance in both arms."""
    card, runs = arms
    continuous, _ = time_to_progression(card, runs[regimen, "continuous"])
    adaptive, progressed = time_to_progression(card, runs[regimen, "adaptive"])
    gain = (adaptive - continuous) / WEEKS_PER_MONTH
    assert gain.mean() > max(3 * gain.std() / np.sqrt(len(gain)), 0.75)
    assert (gain > 0).mean() > 2 * (gain < 0).mean()
    assert progressed.mean() > 0.7
    for run in (runs[regimen, "adaptive"], runs[regimen, "continuous"]):
        assert not run.died.any()
    given = runs[regimen, "adaptive"].actions.max(2)
    assert given[given >= 0].mean() < 0.9
    # Regrowth in a pause is progression for RECIST, which knows of no pauses: by its letter the adaptive arm does worse.
    by_nadir = [np.median(time_to_progression(card, runs[regimen, arm], "nadir")[0]) for arm in ("adaptive", "continuous")]
    assert by_nadir[0] < by_nadir[1]


def test_adaptive_dosing_treats_rests_and_treats_again(arms):
    run = arms[1]["osimertinib", "adaptive"]
    given = run.actions.max(2)
    restarts = ((given[1:] > 0.5) & (given[:-1] < 0.5)).sum(0)
    assert np.median(restarts) >= 2
    field = next(field for field in make("nsclc").scenario.fields if field.name == "change_from_baseline")
    change = field.low + (field.high - field.low) * run.observations[..., field.index]
    stops = (given[1:] < 0.5) & (given[:-1] > 0.5)
    assert (change[1:][stops] <= -0.3 + 1e-4).all()
    assert (change[1:][(given[1:] > 0.5) & (given[:-1] < 0.5)] >= -0.2 - 1e-4).all()


def test_agents_say_what_is_wrong(arms):
    card, runs = arms
    for wrong in (
        lambda: ConstantDose(card, "drug_holiday"),
        lambda: ConstantDose(card, "osimertinib", 1.5),
        lambda: AdaptiveDose(card, "osimertinib", stop=-0.1, restart=-0.2),
        lambda: AdaptiveDose(card, "osimertinib", rest=1.0),
        lambda: time_to_progression(card, replace(runs["osimertinib", "adaptive"], observations=None)),
    ):
        with pytest.raises(AgentError, match=r"expected|it has|keep_observations"):
            wrong()
