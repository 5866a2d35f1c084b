"""The model's invariants, on random patients, states and decisions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import CARDS, open_keys
from hypothesis import given, settings
from hypothesis import strategies as st

from onco_gym.cards.scenarios import params, schedule
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.origins import Origin, Seat
from onco_gym.patients import CausalGenerator
from onco_gym.rewards import Scene
from onco_gym.rewards.outcome import outcome_term
from onco_gym.simulator import tumour
from onco_gym.simulator.admission import admit
from onco_gym.simulator.chance import OPEN, SEALED, Channel, Expected, Sampled, chacha, derived
from onco_gym.simulator.observation import is_scheduled
from onco_gym.simulator.survival import hazard
from onco_gym.simulator.transition import USUAL_ORDERS, step

CARD = st.sampled_from(CARDS)
N = 16


def compiled_step(engine):
    return jax.jit(lambda journey, action: step(engine.scenario, engine.params, journey, action))


@functools.cache
def compiled(name):
    engine = make_engine(name)
    return engine, compiled_step(engine)


def journeys(engine, seed):
    return engine.admit(Seat.first(np.arange(N, dtype=np.uint64) + np.uint64(seed)))[0].journey


def first_visit(engine, patient, key, expected=True):
    return jax.jit(lambda patient, key: admit(engine.scenario, engine.params, patient, key, expected))(patient, key)


grow = jax.jit(tumour.grow)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@settings(max_examples=20, deadline=None)
@given(name=CARD, seed=st.integers(0, 2**40), choices=st.lists(st.integers(0, 13), min_size=5, max_size=40))
def test_everything_stays_finite_and_in_range(name, seed, choices):
    engine, sampled = compiled(name)
    journey = journeys(engine, seed)
    for choice in choices:
        journey, events = sampled(journey, np.full(N, choice, np.int32))
        for leaf in leaves((journey.state, events)):
            assert np.isfinite(leaf.astype(float)).all()
    state = journey.state
    assert ((np.asarray(state.performance) >= 0) & (np.asarray(state.performance) <= 4)).all()
    assert ((np.asarray(state.toxicity) >= 0) & (np.asarray(state.toxicity) <= 5)).all()
    assert np.isin(np.asarray(state.alive), (0.0, 1.0)).all()
    assert (np.asarray(state.volume) <= float(engine.params.log_capacity) + 1e-3).all()


@settings(max_examples=50, deadline=None)
@given(
    name=CARD,
    volumes=st.lists(st.floats(-20, 8), min_size=7, max_size=7),
    kill=st.floats(0, 3),
    more=st.floats(0, 3),
    growth=st.floats(0, 0.2),
)
def test_more_kill_never_means_more_tumour(name, volumes, kill, more, growth):
    engine, _ = compiled(name)
    k = len(engine.scenario.clones)
    clones = jnp.asarray(volumes[:k], jnp.float32)[:, None]
    volume = tumour.log_volume(clones)
    rate = jnp.full(1, growth, jnp.float32)

    def after(amount):
        return grow(engine.params, rate, clones, volume, jnp.full((k, 1), amount, jnp.float32))

    less, more_killed = after(kill), after(kill + more)
    assert (np.asarray(more_killed[0]) <= np.asarray(less[0]) + 1e-5).all()
    assert np.asarray(more_killed[1]) <= np.asarray(less[1]) + 1e-5


@settings(max_examples=20, deadline=None)
@given(growth=st.floats(0.001, 0.15), start=st.floats(0, 9), cycles=st.integers(1, 80))
def test_growth_without_treatment_is_gompertz(growth, start, cycles):
    engine, _ = compiled("nsclc")
    alone = engine.params._replace(flux=np.zeros_like(engine.params.flux))
    k = len(engine.scenario.clones)
    clones = jnp.full((k, 1), -60.0, jnp.float32).at[0].set(start)
    volume = tumour.log_volume(clones)
    capacity = float(engine.params.log_capacity)
    for _ in range(cycles):
        clones, volume = grow(alone, jnp.full(1, 1 - np.exp(-growth), jnp.float32), clones, volume, jnp.zeros((k, 1)))
    closed = capacity - max(capacity - start, 0) * np.exp(-growth * cycles)
    assert float(volume[0]) == pytest.approx(closed, abs=2e-3)


def gained(engine, before, after, events):
    return outcome_term(engine.scenario, engine.params, Scene(before, after, USUAL_ORDERS, events, None, None))


@settings(max_examples=20, deadline=None)
@given(name=CARD, seed=st.integers(0, 2**40), choice=st.integers(0, 13), cycles=st.integers(1, 40))
def test_who_lives_longer_in_the_same_state_never_collects_less(name, seed, choice, cycles):
    """Death is the only difference: replace the draw of death by survival, and no total may fall."""
    engine, sampled = compiled(name)
    journey = immortal = journeys(engine, seed)
    total, longer = np.zeros(N), np.zeros(N)
    for _ in range(cycles):
        before = journey
        journey, events = sampled(journey, np.full(N, choice, np.int32))
        total += np.asarray(gained(engine, before, journey, events))
        before = immortal
        immortal, events = sampled(immortal, np.full(N, choice, np.int32))
        immortal = immortal._replace(state=immortal.state._replace(alive=jnp.ones(N)))
        events = events._replace(lived=jnp.ones(N))
        longer += np.asarray(gained(engine, before, immortal, events))
        assert (np.diff(np.stack([np.zeros(N), total]), axis=0) >= 0).all()
    assert (longer >= total - 1e-6).all()


@pytest.mark.parametrize("name", CARDS)
def test_the_dead_gain_nothing(name):
    engine, sampled = compiled(name)
    journey = journeys(engine, 1)
    journey = journey._replace(state=journey.state._replace(alive=jnp.zeros(N)))
    after, events = sampled(journey, np.zeros(N, np.int32))
    assert (np.asarray(after.state.alive) == 0).all()
    _, _, outcome = jax.jit(engine.cycle)(journey, engine.tally(), np.zeros(N, np.int32))
    assert (np.asarray(outcome.terms) == 0).all()
    assert (np.asarray(gained(engine, journey, after, events)) == 0).all()


@settings(max_examples=15, deadline=None)
@given(name=CARD, seed=st.integers(0, 2**40), cycle=st.integers(1, 20), other=st.integers(0, 13))
def test_twins_share_their_chance(name, seed, cycle, other):
    """Up to the cycle in which decisions part, twins are the same; afterwards chance is still shared."""
    engine, sampled = compiled(name)
    one = two = journeys(engine, seed)
    for now in range(cycle):
        one, two = sampled(one, np.full(N, now % 7, np.int32))[0], sampled(two, np.full(N, now % 7, np.int32))[0]
    assert all(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(two), strict=True))
    one, two = sampled(one, np.full(N, 0, np.int32))[0], sampled(two, np.full(N, other, np.int32))[0]
    assert np.array_equal(one.key, two.key)
    for channel in Channel:
        draws = [np.asarray(Sampled(journey.key, journey.state.cycle).uniform(channel)) for journey in (one, two)]
        assert np.array_equal(*draws)


def test_social_twins_have_the_same_tumour(card):
    """Same treatment, same start, same doses taken: the bodies of social twins go the same way."""
    generator = CausalGenerator(card)
    cohort = generator.sample(N, seed=11)
    twin = generator.counterfactual(cohort, {"race_ethnicity": "black", "insurance": "uninsured", "deprivation": 5.0})
    engines = [make_engine(card, cohort=patients) for patients in (cohort, twin)]
    rows, keys = np.arange(N, dtype=np.int32), open_keys(N)
    paths = []
    for engine in engines:
        journey = jax.jit(engine.begin)(Origin(rows, keys)).journey
        patient = journey.patient._replace(adherence=jnp.ones(N), delay=jnp.zeros(N))
        journey = first_visit(engine, patient, keys, expected=False)
        advance = compiled_step(engine)
        for _ in range(20):
            journey, _ = advance(journey, np.full(N, 3, np.int32))
        paths.append(journey.state)
    for name in ("clones", "response", "toxicity", "performance", "alive"):
        assert np.array_equal(getattr(paths[0], name), getattr(paths[1], name)), name


def test_expected_is_the_mean_of_sampled(engine):
    """One cycle: the expected reading's survival and utility are those of many sampled draws."""
    n = 20_000
    journey = jax.jit(engine.begin)(Origin(np.zeros(n, np.int32), open_keys(n))).journey
    sick = journey.state._replace(volume=journey.state.volume + 2.0, clones=journey.state.clones + 2.0)
    journey = journey._replace(state=sick)
    action = np.full(n, 3, np.int32)
    after, events = compiled_step(engine)(journey, action)
    weights = jax.nn.one_hot(action[:1], len(engine.scenario.regimens)).T
    patient, state, key = jax.tree.map(lambda leaf: leaf[..., :1], journey)
    blank = first_visit(engine, patient, key)
    first = blank._replace(state=blank.state._replace(volume=state.volume, clones=state.clones))
    mean, mean_events = jax.jit(lambda journey: step(engine.scenario, engine.params, journey, weights, expected=True))(first)
    assert float(mean.state.alive[0]) == pytest.approx(float(np.mean(after.state.alive)), abs=0.01)
    assert float(mean_events.lived[0]) == pytest.approx(float(np.mean(events.lived)), abs=0.01)
    assert float(mean_events.severe[0]) == pytest.approx(float(np.mean(events.severe)), abs=0.012)
    assert float(mean.state.volume[0]) == pytest.approx(float(np.mean(after.state.volume)), abs=0.01)


@functools.cache
def value_and_gradient(name):
    """Value of four cycles of a mixed decision, and its gradient."""
    engine, _ = compiled(name)

    def value(logits, journey):
        weights = jax.nn.softmax(logits)[:, None]

        def cycle(journey, _):
            journey, events = step(engine.scenario, engine.params, journey, weights, expected=True)
            return journey, (events.lived * events.utility)[0]

        return jax.lax.scan(cycle, journey, None, 4)[1].sum()

    return jax.jit(jax.value_and_grad(value))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(name=CARD, seed=st.integers(0, 2**40), direction=st.integers(0, 13))
def test_expected_is_smooth_in_the_decision(name, seed, direction):
    """The gradient is finite and lies between the slopes to both sides, which differ where the course bends sharply."""
    engine, _ = compiled(name)
    patient, _, key = jax.tree.map(lambda leaf: leaf[..., :1], journeys(engine, seed))
    journey = first_visit(engine, patient, key)
    function = value_and_gradient(name)
    logits = np.zeros(len(engine.scenario.regimens), np.float32)
    value, gradient = (np.asarray(part, float) for part in function(logits, journey))
    assert np.isfinite(gradient).all()
    bump = np.zeros_like(logits)
    bump[direction] = 0.05
    slopes = [(float(function(logits + sign * bump, journey)[0]) - value) / (sign * 0.05) for sign in (-1, 1)]
    assert min(slopes) - 5e-4 < gradient[direction] < max(slopes) + 5e-4


@pytest.mark.parametrize("words", [OPEN, SEALED])
def test_draws_are_uniform_independent_and_normal(words):
    keys = np.zeros((words, 200_000), np.uint32)
    keys[-1] = np.arange(200_000)
    chance, later = (Sampled(jnp.asarray(keys), jnp.full(200_000, cycle)) for cycle in (3, 4))
    draws = np.stack([*(np.asarray(chance.uniform(channel)) for channel in Channel), np.asarray(later.uniform(Channel.DEATH))])
    assert (np.abs(draws.mean(1) - 0.5) < 0.003).all()
    assert (np.abs(draws.var(1) - 1 / 12) < 0.002).all()
    correlation = np.corrcoef(draws)
    assert np.abs(correlation - np.eye(len(draws))).max() < 0.01
    normal = np.asarray(chance.normal(Channel.SCAN))
    assert abs(normal.mean()) < 0.01
    assert abs(normal.std() - 1) < 0.01


def test_sealed_chance_is_chacha20():
    """The block of RFC 8439, section 2.3.2."""
    key = np.frombuffer(bytes(range(32)), "<u4")
    nonce = np.frombuffer(bytes.fromhex("000000090000004a00000000"), "<u4")
    block = b"".join(int(word[0]).to_bytes(4, "little") for word in chacha(tuple(key), jnp.ones(1, jnp.uint32), tuple(nonce)))
    assert block[:16].hex() == "10f1e7e4d13b5915500fdd1fa32071c4"
    assert block[-16:].hex() == "b5129cd1de164eb9cbd083e8a2503c4e"


@pytest.mark.parametrize("words", [OPEN, SEALED])
def test_no_two_keys_become_one(words):
    keys = np.zeros((words, 4096), np.uint32)
    keys[0], keys[-1] = np.arange(4096) // 64, np.arange(4096) % 64
    for salt in (0, 1, 2**32 - 1):
        assert len(np.unique(derived(keys, np.uint32(salt)), axis=1).T) == 4096


def test_competing_events_happen_at_their_hazards():
    hazards = jnp.asarray([[0.1], [0.3], [0.05]]) * jnp.ones((1, 100_000))
    keys = jnp.asarray(open_keys(100_000))
    sampled, further = Sampled(keys, jnp.zeros(100_000, jnp.int32)).one_of(hazards, jnp.full(100_000, 0.25), Channel.SEVERE)
    assert float(sampled.sum(0).max()) == 1.0
    expected, expected_further = Expected().one_of(hazards[:, :1], jnp.full(1, 0.25), Channel.SEVERE)
    assert float(further.mean()) == pytest.approx(float(expected_further[0]), abs=0.005)
    assert float(expected_further[0]) == pytest.approx(float(expected.sum()) / 4)
    np.testing.assert_allclose(np.asarray(sampled).mean(1), np.asarray(expected)[:, 0], atol=0.005)


def test_published_toxicity_shares_come_out(engine):
    """A regimen given to the end has about the grade 3+ share that its card states."""
    card = engine.card

    def share(regimen):
        return 1 - np.prod([1 - one for one in regimen.toxicity.values()])

    regimen = max((r for r in card.regimens if r.active and not r.induction and r.max_cycles is None), key=share)
    n = 4000
    journey = jax.jit(engine.begin)(Origin(np.arange(n, dtype=np.int32), open_keys(n))).journey
    patient = journey.patient._replace(frailty=jnp.ones(n), hazard=jnp.zeros(n), delay=jnp.zeros(n), adherence=jnp.ones(n))
    table = engine.params.regimens.copy()
    table[:, len(card.mechanisms) + len(card.organs) + 1] = 0  # nobody stops for toxicity
    never_stops = engine.params._replace(regimens=table, fatal=np.zeros_like(engine.params.fatal), performance_rate=np.float32(0))
    index = card.regimens.index(regimen)
    journey = journey._replace(patient=patient._replace(ecog=jnp.zeros(n)))
    journey = journey._replace(state=journey.state._replace(performance=jnp.zeros(n)))
    harmed = np.zeros(n, bool)
    advance = jax.jit(lambda journey, action: step(engine.scenario, never_stops, journey, action))
    for _ in range(40):
        journey, events = advance(journey, np.full(n, index, np.int32))
        harmed |= np.asarray(events.severe) > 0.5
    assert harmed.mean() == pytest.approx(share(regimen), abs=0.06)


def test_progressions_are_counted_and_weigh_on_survival(engine):
    """Without treatment, a tumour progresses again and again; each time raises the hazard of death, up to a point."""
    n = 2000
    journey = jax.jit(engine.begin)(Origin(np.arange(n, dtype=np.int32), open_keys(n))).journey
    journey = journey._replace(patient=journey.patient._replace(hazard=jnp.zeros(n)))
    advance = compiled_step(engine)
    counts = []
    for _ in range(24):
        journey, _ = advance(journey, np.full(n, engine.scenario.supportive, np.int32))
        counts.append(np.asarray(journey.state.failed))
    assert (np.diff(np.stack(counts), axis=0) >= 0).all()
    assert counts[-1].mean() > counts[5].mean() + 0.5
    args = [jnp.ones(5), jnp.full(5, 4.0), jnp.ones(5)]
    hazards = np.asarray(hazard(engine.params, *args, jnp.arange(5.0)))
    assert (np.diff(hazards)[:3] > 0).all()
    assert hazards[4] == hazards[3]


@pytest.mark.parametrize(
    ("weeks", "cycles"), [((), (2, 4, 6, 8)), ((6, 6, 9), (2, 4, 7, 10)), ((8,), (3, 6, 8, 11)), ((12, 6), (4, 6, 8, 10))]
)
def test_scans_follow_their_schedule(nsclc, weeks, cycles):
    figures = params(nsclc)._replace(**schedule(nsclc, weeks))
    due = [cycle for cycle in range(1, 12) if bool(is_scheduled(figures, jnp.asarray([cycle]))[0])]
    assert tuple(due[:4]) == cycles


def test_a_new_regimen_right_after_another_starts_late():
    """Docetaxel after a cycle of platinum-pemetrexed, whose effect it does not share; nothing is lost after a pause."""
    engine, sampled = compiled("nsclc")
    names = list(engine.scenario.regimens)
    first, second = names.index("platinum_pemetrexed"), names.index("docetaxel")
    assert engine.card.growth.changeover_weeks == 2
    late, _ = sampled(journeys(engine, 3), np.full(N, first, np.int32))

    def shrunk(journey, choice=second):
        """(n,) log cm3 less than under supportive care."""
        treated, _ = sampled(journey, np.full(N, choice, np.int32))
        untreated, _ = sampled(journey, np.full(N, engine.scenario.supportive, np.int32))
        return np.asarray(untreated.state.clones[0] - treated.state.clones[0])

    state = late.state._replace(held=jnp.zeros(N), performance=jnp.zeros(N), progressed=jnp.zeros(N))
    late = late._replace(state=state)
    rested = late._replace(state=state._replace(last=jnp.full(N, engine.scenario.holiday)))
    there = shrunk(rested) > 0.01  # treatment has begun, the patient is alive
    assert there.sum() > N // 2
    np.testing.assert_allclose(shrunk(late)[there], shrunk(rested)[there] / 3, rtol=0.02)
    np.testing.assert_array_equal(shrunk(late, first), shrunk(rested, first))  # going on loses nothing


def test_immune_responses_are_kept_by_mechanism():
    """A clone that escapes one immune drug alone is still held by the other."""
    engine, sampled = compiled("melanoma")
    names = [engine.scenario.mechanisms[i] for i in np.flatnonzero(engine.scenario.immune)]
    regimens = engine.scenario.regimens
    journey = journeys(engine, 3)
    journey, _ = sampled(journey, np.full(N, regimens.index("ipilimumab"), np.int32))
    response = np.asarray(journey.state.response)
    assert (response[names.index("ctla4")] > 0).any()
    assert (response[names.index("pd1")] == 0).all()


def test_params_are_made_anew_for_every_engine(nsclc):
    first, second = params(nsclc), params(nsclc)
    first.regimens[:] = 0
    assert second.regimens.any()
