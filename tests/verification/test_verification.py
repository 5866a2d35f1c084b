"""Inverse simulation: courses and their value, best decisions, decisions inferred from what was seen, episodes verified."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import CARDS, refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from onco_gym.agents import EpisodesError, engine_of, load_agent, play, read_episodes, replay, rollout, write_episodes
from onco_gym.cards import CardError, load_card
from onco_gym.cards.load import digest
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.stamp import StampError
from onco_gym.verification import scoring
from onco_gym.verification.amortised import SHARE, network_file, network_for, read_network, train, write_network
from onco_gym.verification.course import cases, filled, follow, redrawn
from onco_gym.verification.reasons import effects, within
from onco_gym.verification.reconstruction import misfit, reconstruct
from onco_gym.verification.records import read_record, record_episodes, write_record
from onco_gym.verification.relaxed import climb, stretch_of, worth_of
from onco_gym.verification.report import write_report
from onco_gym.verification.scoring import optimal, repeated, verify, weeks_lost
from onco_gym.verification.solutions import Solutions
from onco_gym.verification.solver import Effort, by_lines, improve, permitted, totals_of, value_of

QUICK = Effort(lines=2, islands=2, draws=1, moves=40, rounds=3)


@pytest.fixture(scope="module")
def engine():
    return make_engine("melanoma", horizon=10, decide="cycles")


@pytest.fixture(scope="module")
def who(engine):
    return cases(engine, 24, seed=7)


@pytest.fixture(scope="module")
def kept(engine):
    return record_episodes(engine, load_agent(engine, "clinician"), 24, seed=7, name="clinician")


@pytest.fixture(scope="module")
def found(engine, kept):
    return verify(engine, kept, effort=QUICK)


@pytest.fixture
def path(engine, kept, tmp_path):
    """The file of a record."""
    write_record(tmp_path / "episodes.json", engine, kept)
    return tmp_path / "episodes.json"


def random_sequences(engine, n, seed=0):
    """Regimens that change a few times."""
    rng = np.random.default_rng(seed)
    changes = rng.random((engine.horizon, n)) < 0.3
    changes[0] = True
    draws = rng.integers(0, len(engine.scenario.regimens), (engine.horizon, n))
    rows = np.maximum.accumulate(np.where(changes, np.arange(engine.horizon)[:, None], 0), axis=0)
    return np.take_along_axis(draws, rows, 0).astype(np.int32)


def test_a_course_with_ones_own_chance_is_the_episode(engine, who):
    episodes = rollout(engine, load_agent(engine, "guideline"), 24, seed=7)
    course = follow(engine, who, filled(engine, episodes.given), "sampled")
    without = episodes.returns - engine.weights["fairness"] * episodes.terms["fairness"]
    np.testing.assert_allclose(course.worth.sum(0), without, atol=1e-5)
    np.testing.assert_allclose(course.quality.sum(0), episodes.terms["outcome"], atol=1e-5)
    again = play(engine, load_agent(engine, "guideline"), who.origin)
    np.testing.assert_array_equal(again.given, episodes.given)


def test_the_expected_reading_is_close_to_the_mean_over_draws(engine, who):
    done = random_sequences(engine, 24)
    expected = follow(engine, who, done, "expected").worth.sum(0)
    others = [who._replace(key=who.key + jnp.uint32(7919 * k)) for k in range(1, 121)]
    mean = np.mean([follow(engine, one, done, "sampled").worth.sum(0) for one in others], 0)
    assert abs(expected.mean() - mean.mean()) < 0.03 * mean.mean()
    assert np.corrcoef(expected, mean)[0, 1] > 0.95


def test_gradients_are_those_of_finite_differences(engine, who):
    few = who.take(np.arange(3))
    rng = np.random.default_rng(3)
    logits = jnp.asarray(rng.normal(0, 1, (engine.horizon, len(engine.scenario.regimens), 3)), jnp.float32)
    direction = jnp.asarray(rng.normal(0, 1, logits.shape), jnp.float32)

    @jax.jit
    def value(step):
        return jnp.sum(worth_of(engine, few, jax.nn.softmax(logits + step * direction, axis=1)))

    slope = float(jax.jit(jax.grad(value))(0.0))
    width = 0.02
    difference = float(value(width) - value(-width)) / (2 * width)
    assert slope == pytest.approx(difference, rel=0.05, abs=2e-3)


@pytest.mark.slow
def test_the_climb_ends_above_its_start(engine, who):
    few = who.take(np.arange(8))
    open_to = permitted(engine, few, 8)
    ends = climb(engine, few, 8, open_to, iterations=15, seed=1)
    rng = np.random.default_rng([1, 13])
    start = np.where(open_to[None], rng.normal(0, 0.5, (int(stretch_of(10).max()) + 1, len(open_to), 8)), -30)
    begun = start.argmax(1)[stretch_of(10)].astype(np.int32)
    assert value_of(engine, few, ends).mean() > value_of(engine, few, begun).mean() + 0.005
    assert open_to[ends, np.arange(8)].all()


def test_improving_never_loses_and_respects_what_may_be_given(engine, who):
    starts = [random_sequences(engine, 24, seed) for seed in (1, 2)]
    among = np.zeros((len(engine.scenario.regimens), 24), bool)
    among[:6] = among[engine.scenario.holiday] = True
    starts = [np.where(among[one, np.arange(24)], one, engine.scenario.holiday) for one in starts]
    before = np.maximum(*(value_of(engine, who, one) for one in starts))
    plans = improve(engine, who, starts, effort=QUICK, among=among)
    assert (plans.value >= before - 1e-6).all()
    assert plans.value.mean() > before.mean()
    assert among[plans.decisions, np.arange(24)].all()
    np.testing.assert_allclose(plans.value, value_of(engine, who, plans.decisions), atol=1e-5)


def test_a_shortlist_saves_courses_and_is_kept_to(engine, who):
    network = network_for(engine)
    assert network is not None, "the card has changed: onco-gym yardstick ID --network"
    tables = []
    advice = network.shortlist(engine, who, 24)
    short, few = by_lines(engine, who, 24, 10, shortlist=advice, on_line=lambda d, since, table: tables.append(table))
    every, many = by_lines(engine, who, 24, 10)
    assert few < many / 2
    open_to, few_regimens = permitted(engine, who, 24), round(len(engine.scenario.regimens) / SHARE)
    for table in tables:
        tried = np.isfinite(table)
        assert (tried.sum(0) <= few_regimens).all()
        assert not (tried & ~open_to).any()
    values = [value_of(engine, who, one) for one in (short, every)]
    assert (values[1] >= values[0] - 0.05).all()
    assert values[0].mean() > 0.97 * values[1].mean()


@pytest.mark.parametrize("card", CARDS)
def test_every_card_has_a_network_that_fits(card):
    network = read_network(network_file(card))
    assert network.card_digest == digest(load_card(card)), "the card has changed: onco-gym yardstick ID --network"


@pytest.mark.slow
def test_a_network_learns_and_survives_its_file(engine, who, tmp_path):
    stages = []
    network = train(engine, 64, progress=lambda stage, done, total: stages.append((stage, done / total)))
    assert stages[-1] == ("learning", 1.0)
    write_network(tmp_path / "networks" / "card.npz", network)
    again = read_network(tmp_path / "networks" / "card.npz")
    assert again.card_digest == network.card_digest
    for name, values in network.weights.items():
        np.testing.assert_allclose(again.weights[name], values, rtol=1e-2, atol=1e-3)
    done, since = np.zeros((10, 24), np.int32), np.zeros(24, np.int32)
    chosen = network.shortlist(engine, who, 24)(done, since)
    assert (chosen.sum(0) == round(len(engine.scenario.regimens) / SHARE)).all()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not much of an archive"])
def test_a_damaged_network_gives_one_clear_error(tmp_path, content):
    path = tmp_path / "card.npz"
    path.write_bytes(content)
    refuses(CardError, "is not a network", read_network, path)
    np.savez(path, card_digest=np.array("x"), seen=np.zeros(3))
    refuses(CardError, "are not those of a network", read_network, path)


def test_hindsight_is_above_every_sequence_it_knows_of(engine, who, kept):
    done = filled(engine, kept.actions)
    best = optimal(engine, who, effort=QUICK)
    late = optimal(engine, who, mode="hindsight", starts=[done, best.decisions], effort=QUICK)
    for one in (done, best.decisions):
        assert (late.value >= value_of(engine, who, one, "sampled") - 1e-6).all()


def test_solved_patients_are_remembered_where_that_is_asked_for(engine, who):
    few, known = who.take(np.arange(6)), Solutions(most=8)
    first = optimal(engine, few, effort=QUICK, known=known)
    again = optimal(engine, few, effort=QUICK, known=known)
    assert (first.tried > 0).all()
    assert not again.tried.any()
    np.testing.assert_array_equal(again.decisions, first.decisions)
    np.testing.assert_array_equal(again.value, first.value)
    assert (optimal(engine, few, effort=QUICK).tried == first.tried).all(), "nothing is remembered by itself"
    assert optimal(engine, few, effort=QUICK, seed=1, known=known).tried.all(), "asked for something else"
    assert len(known) == 8
    assert optimal(engine, few, effort=QUICK, known=known).tried.all(), "the oldest are forgotten"


def test_agents_are_verified_on_patients_that_were_solved_once(engine, kept, found):
    known, few = Solutions(), record_episodes(engine, load_agent(engine, "guideline"), 24, seed=7)
    again = verify(engine, kept, effort=QUICK, known=known)
    assert len(known) == 24
    np.testing.assert_array_equal(again.best, found.best)
    other = verify(engine, few, effort=QUICK, known=known)
    assert len(known) == 24
    np.testing.assert_array_equal(other.regret, verify(engine, few, effort=QUICK).regret)


def test_the_weeks_lost_alone_are_those_of_a_verification(engine, kept, found):
    assert (weeks_lost(engine, kept, QUICK) == found.weeks).all()


def test_over_draws_of_chance_what_is_settled_on_is_no_worse(engine, who, monkeypatch):
    monkeypatch.setattr(scoring, "SETTLED", 4)
    monkeypatch.setattr(scoring, "SETTLE", Effort(islands=0, moves=16, rounds=2))
    plan = optimal(engine, who, effort=QUICK)
    settled = optimal(engine, who, mode="drawn", effort=QUICK)
    many = redrawn(who, 2**20 + np.arange(4))
    assert (settled.value >= value_of(engine, many, plan.decisions, "weighed") - 1e-6).all()
    assert settled.value.mean() > value_of(engine, many, plan.decisions, "weighed").mean()
    np.testing.assert_allclose(settled.value, value_of(engine, many, settled.decisions, "weighed"), atol=1e-5)


def test_weighing_death_changes_no_mean_and_makes_it_surer(engine, who):
    n, draws = who.key.shape[-1], 200
    many = redrawn(who, np.arange(draws))
    done = np.repeat(by_lines(engine, who, n, engine.horizon, lines=0)[0], draws, 1)
    weighed, sampled = (value_of(engine, many, done, reading).reshape(n, draws) for reading in ("weighed", "sampled"))
    error = np.sqrt((weighed.var(1) + sampled.var(1)).sum() / draws) / n
    assert abs(weighed.mean() - sampled.mean()) < 4 * error
    assert weighed.var(1).mean() < 0.7 * sampled.var(1).mean()


def test_a_sequence_for_several_is_valued_by_their_mean(engine, who):
    done = random_sequences(engine, 24)[:, :12]
    pairs = who.take(np.repeat(np.arange(12), 2) + np.tile([0, 12], 12))
    alone = value_of(engine, who, np.concatenate([done, done], 1))
    np.testing.assert_allclose(value_of(engine, pairs, done), (alone[:12] + alone[12:]) / 2, atol=1e-5)
    some = np.array([7, 0, 7])
    found = totals_of(engine, pairs, 12, done[:, some], some)[0]
    np.testing.assert_allclose(found, value_of(engine, pairs, done)[some], atol=1e-5)


def test_decisions_are_recovered_from_what_was_seen(engine, who, kept):
    inferred = reconstruct(engine, who, kept.observed)
    idle = np.isin(kept.actions, (engine.scenario.holiday, engine.scenario.supportive))
    held = np.zeros_like(idle)
    held[1:] = kept.observed.severe[:-1].any(1)  # nothing was given after a severe event
    told = kept.observed.alive & ~idle & ~held
    assert told.sum() > 60
    assert (inferred.decisions == kept.actions)[told].mean() > 0.9
    assert ((inferred.probability >= 0) & (inferred.probability <= 1 + 1e-6)).all()
    assert (inferred.decisions[~kept.observed.alive] == -1).all()


def falsified(kept, engine, share, seed=0):
    """The record with a share of its decisions replaced by others."""
    rng = np.random.default_rng(seed)
    claimed = kept.actions.copy()
    for i in range(claimed.shape[1]):
        length = int((claimed[:, i] >= 0).sum())
        for cycle in rng.choice(length, max(1, round(share * length)), replace=False):
            others = [r for r in range(len(engine.scenario.regimens)) if r != claimed[cycle, i]]
            claimed[cycle, i] = rng.choice(others)
    return dataclasses.replace(kept, actions=claimed)


def area_under_curve(honest, forged):
    return float(np.mean((forged[:, None] > honest) + 0.5 * (forged[:, None] == honest)))


def test_false_claims_do_not_fit_what_was_seen(engine, who, kept):
    claimed = falsified(kept, engine, 0.2)
    honest, forged = (misfit(engine, who, one.observed, one.actions).sum(0) for one in (kept, claimed))
    assert area_under_curve(honest, forged) > 0.85  # a tenth of a full horizon; the long one is a slow test
    assert (honest <= forged + 25).all()


def test_findings_hang_together(engine, found, kept):
    assert (found.best >= found.value - 1e-5).all()
    assert (found.hindsight >= found.achieved - 1e-5).all()
    low, high = found.regret_interval
    assert ((low <= found.regret) & (found.regret <= high)).all()
    assert (found.accepted <= (kept.actions >= 0)).all()
    assert ((found.deviation >= 0) & (found.deviation <= 1)).all()
    assert not found.flagged.any()
    # Who died is not charged with what was not given afterwards.
    died = (kept.actions >= 0).sum(0) < len(kept.actions)
    assert died.any()
    assert (found.value[died] > value_of(engine, kept.who(engine), filled(engine, kept.actions))[died]).any()
    mean, low, high = found.mean_regret()
    assert low < mean < high
    assert mean > 0
    lost = [sum(reason.lost for reason in reasons) for reasons in found.reasons]
    # Stretches add up to the regret, where each of them held something other than the best.
    whole = np.array([len(reasons) > 0 for reasons in found.reasons])
    assert np.corrcoef(np.array(lost)[whole], (found.best - found.value)[whole])[0, 1] > 0.95


def test_an_agent_is_asked_to_decide_again(engine, kept):
    assert repeated(engine, kept, load_agent(engine, "clinician")) == pytest.approx(1.0)
    other = repeated(engine, kept, load_agent(engine, "random"))
    assert other.mean() < 0.6
    claimed = kept.actions.copy()
    claimed[0] = (claimed[0] + 1) % len(engine.scenario.regimens)
    forged = dataclasses.replace(kept, actions=claimed)
    assert repeated(engine, forged, load_agent(engine, "clinician")) == pytest.approx(0.0)


def test_reasons_are_plain_words(engine, found):
    titles = {regimen.title for regimen in engine.card.regimens}
    for reasons in found.reasons:
        for reason in reasons:
            assert reason.cause in ("resistance", "sensitivity", "toxicity", "evidence", "order")
            assert any(title in reason.text for title in titles)
            assert reason.text.startswith("Cycle")
            assert 1 <= reason.first <= reason.last <= engine.horizon


def test_a_record_survives_its_file(engine, kept, path):
    again = read_record(path, engine)
    assert (again.agent, again.seed, again.stamp) == ("clinician", 7, engine.stamp)
    assert (again.actions == kept.actions).all()
    lived = kept.actions >= 0
    for one, other in zip(again.observed, kept.observed, strict=True):
        assert one.dtype == other.dtype
        where = lived if one.ndim == 2 else lived[:, None]
        np.testing.assert_allclose(np.where(where, one, 0), np.where(where, other, 0), atol=0.01)
    assert (again.who(engine).key == cases(engine, 24, seed=7).key).all()
    assert (again.who(engine).patient.growth == cases(engine, 24, seed=7).patient.growth).all()


def test_a_record_is_a_file_of_episodes(engine, kept, path):
    assert engine_of(path).stamp == engine.stamp
    played = rollout(engine, load_agent(engine, "clinician"), 24, seed=7)
    for script in (kept, read_episodes(path, engine)):
        again = replay(engine, script)
        np.testing.assert_array_equal(again.returns, played.returns)
        np.testing.assert_array_equal(again.given, played.given)


class Fickle:
    """Asks for one regimen and then for another, and so on, whether or not they can be given again."""

    def __init__(self):
        self.turn = 0

    def act(self, observation, mask):
        self.turn += 1
        return np.full(len(observation), 2 + self.turn % 2)


def test_what_could_not_be_given_is_a_pause_in_the_record(engine):
    """An agent is recorded, and replayed, by what its patients got."""
    played, kept = rollout(engine, Fickle(), 24, seed=7), record_episodes(engine, Fickle(), 24, seed=7)
    assert (played.actions != played.given).any()
    np.testing.assert_array_equal(kept.actions, played.given)
    again = replay(engine, kept)
    np.testing.assert_array_equal(again.returns, played.returns)
    np.testing.assert_array_equal(again.given, played.given)


def test_any_patients_can_be_recorded_and_verified(engine, kept, tmp_path):
    """Some episodes out of a rollout: they have no seed any more, and the same figures."""
    some = np.array([17, 3, 5])
    observed = type(kept.observed)(*(part[..., some] for part in kept.observed))
    origin = kept.origin.take(some)
    few = dataclasses.replace(kept, origin=origin, actions=kept.actions[:, some], observed=observed, seed=None)
    write_record(tmp_path / "few.json", engine, few)
    again = read_record(tmp_path / "few.json", engine)
    assert again.seed is None
    assert repeated(engine, again, load_agent(engine, "clinician")) == pytest.approx(1.0)
    found = verify(engine, again, effort=QUICK)
    np.testing.assert_allclose(found.achieved, verify(engine, kept, effort=QUICK).achieved[some], atol=1e-5)


def test_a_record_of_another_engine_or_cohort_is_refused(engine, kept, path):
    """What else can differ, tests/agents/test_scripts.py checks."""
    for other, said in (
        (make_engine("melanoma", horizon=9, decide="cycles"), "horizon"),
        (make_engine("melanoma", engine.generator.sample(50, seed=3), horizon=10, decide="cycles"), "split"),
    ):
        refuses(EpisodesError, said, read_record, path, other)
        refuses(StampError, said, verify, other, kept)
        refuses(StampError, said, write_record, path, other, kept)


def test_records_are_of_regimens(path):
    doses, said = make_engine("melanoma", horizon=10, kind="dose"), "records need an environment whose actions are regimens"
    refuses(EpisodesError, said, read_record, path, doses)
    refuses(EpisodesError, said, record_episodes, doses, load_agent(doses, "guideline"), 2)


def edited(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.__setitem__("format", "something else"), "format"),
        (lambda c: c["episodes"][1]["observed"].pop("ctdna_log10"), "ctdna_log10"),
        (lambda c: c["episodes"][1]["observed"]["toxicity"][0].pop(), "toxicity"),
        (lambda c: c["episodes"][1]["observed"]["diameter_mm"].__setitem__(0, float("nan")), "diameter_mm"),
        (lambda c: c["episodes"][1]["observed"]["diameter_mm"].__setitem__(0, 10**400), "diameter_mm"),
        (lambda c: c["episodes"][1]["observed"]["diameter_mm"].__setitem__(0, "12"), "diameter_mm"),
        (lambda c: c["episodes"][1]["observed"]["alive"].__setitem__(0, 2), "alive has other values than 0 and 1"),
        (lambda c: c["episodes"][1].pop("observed"), "episode 1 does not say what was seen"),
        (lambda c: c["episodes"][1].__setitem__("observed", [1]), "episode 1 does not say what was seen"),
    ],
)
def test_a_damaged_record_gives_one_clear_error(engine, path, change, said):
    """Of what was seen; of the rest, tests/agents/test_scripts.py."""
    edited(path, change)
    with pytest.raises(EpisodesError, match=said) as error:
        read_record(path, engine)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_file_that_says_nothing_of_what_was_seen_is_no_record(engine, tmp_path):
    path = tmp_path / "episodes.json"
    write_episodes(path, engine, rollout(engine, load_agent(engine, "guideline"), 3))
    with pytest.raises(EpisodesError, match="episode 0 does not say what was seen: observed is None"):
        read_record(path, engine)


def test_a_forged_record_can_be_read_and_is_found_out(engine, kept, path):
    """Decisions changed in the file, observations kept."""
    longest = int(kept.lengths.argmax())

    def forge(content):
        content["agent"] = "somebody else"
        content["episodes"][longest]["actions"] = ["imatinib"] * int(kept.lengths[longest])

    edited(path, forge)
    forged = read_record(path, engine)
    found = verify(engine, forged, load_agent(engine, "clinician"), effort=QUICK)
    assert found.record.agent == "somebody else"
    assert found.flagged[longest]
    assert found.flagged.sum() == 1
    assert found.repeated[longest] < 1
    assert (np.delete(found.repeated, longest) == 1).all()


def test_the_page_shows_what_was_found(engine, found, tmp_path):
    path = tmp_path / "report.html"
    write_report(path, engine, found, shown=[0, 1])
    text = path.read_text()
    assert text.count("<svg") == 2
    assert "quality-adjusted weeks lost" in text
    assert "Research software, not for treating patients." in text


EXTREMES = {"growth": (0, 1), "sensitivity": (0, 50), "clones": (-60, 12), "frailty": (0, 20), "hazard": (0, 500)}


@settings(max_examples=20, deadline=None)
@given(st.tuples(*(st.floats(low, high) for low, high in EXTREMES.values())))
def test_no_patient_is_too_extreme(engine, who, values):
    odd = {name: getattr(who.patient, name) * 0 + value for name, value in zip(EXTREMES, values, strict=True)}
    strange, done = who._replace(patient=who.patient._replace(**odd)), random_sequences(engine, 24)
    assert np.isfinite(value_of(engine, strange, done)).all()
    assert np.isfinite(slope(engine, strange, done)).all()


@functools.partial(jax.jit, static_argnums=0)
def slope(engine, who, done):
    """The gradient of what a course is worth."""
    weights = jax.nn.one_hot(done, len(engine.scenario.regimens), axis=1)
    return jax.grad(lambda weights: jnp.sum(worth_of(engine, who, weights)))(weights)


def test_what_reasons_say_a_regimen_takes_off_is_what_a_cycle_takes_off():
    engine = make_engine("breast")  # some of its drugs slow growth instead of killing
    who, count = cases(engine, 4, seed=3), len(engine.scenario.regimens)
    ones = jnp.ones_like(who.patient.adherence)
    who = who._replace(patient=who.patient._replace(adherence=ones, delay=0 * ones))
    acts = np.asarray(engine.params.regimens)[:count, : len(engine.scenario.mechanisms)] > 0
    late = acts[:, np.asarray(engine.scenario.immune)].any(1)  # an immune response takes its time
    assert acts[~late][:, np.asarray(engine.scenario.static)].any()
    for i in range(4):
        row = np.tile(np.arange(count, dtype=np.int32), (2, 1))
        course = follow(engine, who.take(np.full(count, i)), row)
        compared = ~late & (course.given[0] == row[0])
        assert compared.sum() > 5
        after = course.clones[1]
        taken = after[:, [engine.scenario.holiday]] - after
        said = effects(engine, who, i, course.clones[0, :, 0])[:count].T
        np.testing.assert_allclose(said[:, compared], taken[:, compared], atol=1e-3)


def test_a_title_inside_a_sentence():
    assert within("Bypass by MET") == "bypass by MET"
    assert within("RB1 loss") == "RB1 loss"
    assert within("T790M") == "T790M"
