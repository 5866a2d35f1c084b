"""The planner: what it believes of a patient, and what comes of planning on that."""

import jax
import numpy as np
import pytest
from conftest import open_keys, refuses

from onco_gym.agents import AgentError, load_agent, rollout
from onco_gym.agents.belief import Cloud
from onco_gym.agents.planner import PlannerAgent
from onco_gym.evaluation import evaluate
from onco_gym.fairness import measure_divergence
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.origins import Origin
from onco_gym.simulator.observation import diameter, observe


@pytest.fixture(scope="module")
def engine():
    return make_engine("melanoma", horizon=15, decide="cycles")


@pytest.fixture(scope="module")
def brief():
    """Half a year, for tests that look at the planner's manners only."""
    return make_engine("melanoma", horizon=9)


class Watched:
    """The guideline, with a cloud beside it."""

    def __init__(self, engine, size):
        self.engine, self.cloud, self.guideline = engine, Cloud(engine, size), load_agent(engine, "guideline")
        self.sizes, self.seen, self.observations = [], [], []
        self.observe = jax.jit(lambda journey: observe(engine.scenario, engine.params, journey))

    def act(self, observation, mask):
        seen = self.cloud.update(observation, mask)
        journey = self.cloud.journey
        self.sizes.append(np.asarray(diameter(journey.state.volume, journey.patient.lesions)).reshape(len(observation), -1))
        self.observations.append(np.asarray(self.observe(journey)))
        self.seen.append((observation, seen))
        return self.guideline.act(observation, mask)


@pytest.fixture(scope="module")
def watched(engine):
    agent = Watched(engine, 48)
    episodes = rollout(engine, agent, 40, seed=7)
    return agent, (episodes.given >= 0).sum(0)


def test_the_cloud_shows_what_was_seen(engine, watched):
    """Everything that the clinic sees is the same for all of a cloud, but for what is measured anew at every look."""
    agent, lengths = watched
    measured = {"ctdna", "ldh", "albumin", "neutrophils", "ecog"}
    same = [field.index for field in engine.scenario.fields if field.name not in measured]
    tests = len(engine.scenario.traits) + len(engine.scenario.biomarkers)
    fields = {field.name: field.index for field in engine.scenario.fields}
    for cycle in (0, 1, 4):
        alive = lengths > cycle
        observation, _ = agent.seen[cycle]
        cloud = agent.observations[cycle].reshape(observation.shape[1], len(observation), -1)
        for index in same:
            if index < tests or index >= fields["cycle"]:
                apart = np.abs(cloud[index] - observation[:, index][:, None])[alive]
                assert apart.max() < 2e-3, engine.scenario.fields[index].name


def test_the_cloud_follows_the_tumour(watched):
    """At a scan, the measured sum of diameters lies within what the cloud holds possible, most of the time."""
    agent, lengths = watched
    inside = []
    for cycle in range(2, 12):
        _, seen = agent.seen[cycle]
        low, high = np.quantile(agent.sizes[cycle], (0.02, 0.98), axis=1)
        scanned = (seen.since_scan == 0) & (lengths > cycle)
        inside += list(((seen.diameter > 0.8 * low) & (seen.diameter < 1.25 * high))[scanned])
    assert len(inside) > 60
    assert np.mean(inside) > 0.8


def test_nobody_of_the_environment_is_in_a_cloud(brief):
    def numbers(patients):
        return np.concatenate([np.asarray(leaf).reshape(-1, leaf.shape[-1]) for leaf in patients]).T.copy()

    ours, donors = numbers(brief.patients(np.arange(500))), numbers(Cloud(brief, 4)._donors.patients())
    assert donors.shape[1] == ours.shape[1]
    assert not {row.tobytes() for row in ours} & {row.tobytes() for row in donors}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nsclc", "melanoma"])
def test_planning_beats_the_guideline(name):
    engine = make_engine(name)
    planned, usual = (rollout(engine, agent, 300, seed=50) for agent in (PlannerAgent(engine), load_agent(engine, "guideline")))
    gain = planned.returns.astype(float) - usual.returns
    assert gain.mean() > 0


def test_it_chooses_what_can_be_given_and_repeats_itself(brief):
    small = {"cloud": 16, "tried": (4, 8)}
    one, other = (rollout(brief, PlannerAgent(brief, **small), 6, seed=3) for _ in range(2))
    assert np.array_equal(one.actions, other.actions)
    under_way = one.given >= 0
    assert np.array_equal(one.actions[under_way], one.given[under_way]), "nothing was replaced by a holiday"


@pytest.mark.slow
def test_it_is_asked_in_order_only(brief):
    agent = load_agent(brief, "planner")
    with pytest.raises(AgentError, match="remembers its patients"):
        measure_divergence(brief, agent, 5)
    found = evaluate(brief, PlannerAgent(brief, cloud=16, tried=(4, 8)), episodes=4, fairness=True)
    assert found.fairness is None or not found.fairness


def test_doses_are_not_planned():
    engine = make_engine("melanoma", kind="dose")
    for name in ("planner", "clinician"):
        refuses(AgentError, f"'{name}' is for regimen environments", load_agent, engine, name)
    refuses(AgentError, "the planner needs an environment whose actions are regimens", PlannerAgent, engine)


def test_values_are_finite_for_extreme_patients(brief):
    """The largest, fastest and frailest of the pool."""
    pool = brief.patients()
    hazard, growth = np.asarray(pool.hazard), np.asarray(pool.growth)
    rows = np.concatenate([np.argsort(hazard)[-3:], np.argsort(growth)[-3:]]).astype(np.int32)
    encounter = jax.jit(brief.begin)(Origin(rows, open_keys(6)))
    observation, mask = brief.look(encounter)
    action = PlannerAgent(brief, cloud=16, tried=(4, 8)).act(np.asarray(observation).T, np.asarray(mask).T)
    assert np.asarray(mask).T[np.arange(6), action].all()
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(encounter.journey.state))
