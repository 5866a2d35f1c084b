"""The clinician: mostly the guideline, varied, and unfair as published."""

import numpy as np
import pytest

from onco_gym.agents import ClinicianAgent, GuidelineAgent, load_agent, rollout
from onco_gym.agents.clinician import ODDS
from onco_gym.cards.scenarios import scenario
from onco_gym.fairness import audit_fairness
from onco_gym.interfaces.engine import make_engine

N = 400


class Watched:
    """Keeps what an agent was asked."""

    def __init__(self, agent):
        self.agent, self.seen = agent, []

    def act(self, observation, mask):
        self.seen.append((observation.copy(), mask.copy()))
        return self.agent.act(observation, mask)


@pytest.fixture(scope="module")
def played():
    """(engine, agent, episodes, every visit's observation and mask)."""
    engine = make_engine("nsclc", horizon=20)
    watched = Watched(ClinicianAgent(engine.card, seed=1))
    return engine, watched.agent, rollout(engine, watched, N), watched.seen


def visits(played):
    _, _, episodes, seen = played
    for (observation, mask), given in zip(seen, episodes.given, strict=True):
        yield observation[given >= 0], mask[given >= 0]


def test_probabilities_are_probabilities_within_the_mask(played):
    _, agent, episodes, _ = played
    for observation, mask in visits(played):
        found = agent.probabilities(observation, mask)
        assert found.shape == mask.shape
        assert found.min() >= 0
        np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)
        assert not found[~mask].any()
    assert (episodes.given == episodes.actions).all()  # what was chosen could always be given


def test_draws_follow_the_probabilities(played):
    """Over seeds, the same patients get each regimen as often as it says."""
    engine, agent, _, seen = played
    observation, mask = seen[0]
    drawn = np.zeros((N, mask.shape[1]))
    for seed in range(60):
        drawn[np.arange(N), ClinicianAgent(engine.card, seed).act(observation, mask)] += 1 / 60
    expected = agent.probabilities(observation, mask)
    assert np.abs(drawn.mean(0) - expected.mean(0)).max() < 0.01
    error = np.sqrt(expected * (1 - expected) / 60)
    assert (np.abs(drawn - expected) <= 5 * error + 0.01).all()
    assert not drawn[expected == 0].any()


def test_most_first_choices_are_the_guidelines(played):
    engine, _, episodes, seen = played
    first = GuidelineAgent(engine.card).act(*seen[0])
    assert 0.70 <= (episodes.actions[0] == first).mean() <= 0.90
    verdicts = episodes.verdicts[episodes.verdicts >= 0]
    assert (verdicts >= 3).mean() > 0.8
    assert (verdicts == 0).mean() < 0.03  # of decisions, not of cycles


def test_a_draw_depends_on_seed_and_patient_alone(played):
    engine, agent, _, seen = played
    observation, mask = seen[3]
    choice = agent.act(observation, mask)
    np.testing.assert_array_equal(choice, ClinicianAgent(engine.card, seed=1).act(observation, mask))
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_array_equal(choice[order], agent.act(observation[order], mask[order]))
    np.testing.assert_array_equal(choice[7:8], agent.act(observation[7:8], mask[7:8]))
    assert (choice != ClinicianAgent(engine.card, seed=2).act(observation, mask)).any()


@pytest.mark.parametrize(
    ("field", "value"),
    [("insurance=medicaid", 1), ("insurance=uninsured", 1), ("race_ethnicity=black", 1), ("deprivation", 5), ("rural", 1)],
)
def test_groups_are_undertreated(played, field, value):
    """The same patients, shown in another group, get supportive care more often."""
    engine, agent, _, seen = played
    observation, mask = seen[0]
    fields = {f.name: f for f in engine.scenario.fields}
    usual, other = observation.copy(), observation.copy()
    for name in ("insurance", "race_ethnicity"):
        columns = [f.index for f in engine.scenario.fields if f.name.startswith(f"{name}=")]
        usual[:, columns] = np.eye(len(columns))[0]
        other[:, columns] = np.eye(len(columns))[0]
        if field.startswith(name):
            other[:, columns] = 0
    usual[:, fields["deprivation"].index] = other[:, fields["deprivation"].index] = 0.5
    usual[:, fields["rural"].index] = other[:, fields["rural"].index] = 0
    place = fields[field]
    other[:, place.index] = (value - place.low) / (place.high - place.low)
    supportive = engine.scenario.supportive
    one, two = (agent.probabilities(shown, mask)[:, supportive] for shown in (usual, other))
    assert (two >= one - 1e-12).all()
    assert two.mean() > one.mean() + 0.005


@pytest.mark.slow
def test_the_audit_finds_the_disparities_and_nothing_of_sex(nsclc):
    found = audit_fairness(make_engine("nsclc", horizon=6), ClinicianAgent(nsclc), n=200)
    named = {finding.attribute: finding for finding in found.findings}
    assert {"insurance", "race_ethnicity"} <= set(named)
    assert "sex" not in named
    assert named["insurance"].group in ("uninsured", "medicaid")
    assert named["race_ethnicity"].group == "black"
    assert named["race_ethnicity"].followed < named["race_ethnicity"].followed_others


def test_every_card(card):
    """Odds speak of what the card's environments show; choices hold to the mask."""
    shown = {field.name for field in scenario(card).fields}
    for odds in ODDS:
        assert (f"{odds.variable}={odds.level}" if odds.level else odds.variable) in shown
    rng = np.random.default_rng(0)
    seen, allowed = rng.random((500, len(shown)), np.float32), rng.random((500, len(card.regimens))) < 0.7
    allowed[:, scenario(card).supportive] = True
    agent = load_agent(make_engine(card), "clinician", 3)
    assert allowed[np.arange(500), agent.act(seen, allowed)].all()
    np.testing.assert_allclose(agent.probabilities(seen, allowed).sum(1), 1)
