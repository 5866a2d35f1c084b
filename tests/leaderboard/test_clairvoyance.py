"""Agents that know more than they should: they win where patients and chance are open, and nowhere else."""

import numpy as np
import pytest
from policy_files import file, node, numbers, whole

import onco_gym as og
from onco_gym.agents import GuidelineAgent, OnnxAgent
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.origins import Origin
from onco_gym.leaderboard.seasons import derived_secret, season_cohort
from onco_gym.verification.course import cases_at
from onco_gym.verification.scoring import optimal
from onco_gym.verification.solver import Effort

SECRET = bytes(range(32))
SEEDS = 4096
PATIENTS = 24
QUICK = Effort(lines=2, islands=0, moves=64, rounds=5, patience=2)


class Clairvoyant:
    """Looks up what it sees at the first visit among the first visits of every patient and seed that it can think of.

    Args:
        engine: the environment as far as it is public, perhaps with patients that have leaked.
    """

    remembers = True

    def __init__(self, engine):
        self._engine, self._usual = engine, GuidelineAgent(engine.card)
        self._known = engine.origins(SEEDS)
        self._seen = np.asarray(engine.receive(self._known)[1])
        self.found, self._plan, self._visit = None, None, 0

    def act(self, observation, mask):
        if self._plan is None:
            self._foresee(observation)
        planned = self._plan[self._visit]
        self._visit += 1
        usual = self._usual.act(observation, mask)
        can = (planned >= 0) & mask[np.arange(len(mask)), planned]
        return np.where(self.found & can, planned, usual)

    def _foresee(self, observation):
        places = [np.flatnonzero((self._seen == one).all(1)) for one in observation]
        self.found = np.array([len(some) > 0 for some in places])
        self._plan = np.full((self._engine.horizon, len(observation)), -1)
        if self.found.any():
            rows = np.array([some[0] for some in places if len(some)])
            origin = Origin(np.asarray(self._known.row)[rows], np.asarray(self._known.key)[:, rows])
            plans = optimal(self._engine, cases_at(self._engine, origin), mode="hindsight", effort=QUICK)
            self._plan[:, self.found] = plans.decisions


@pytest.fixture(scope="module")
def public():
    return make_engine("melanoma", horizon=30, decide="cycles", split="test")


@pytest.fixture(scope="module")
def season(public):
    """As on a board: patients and chance from a secret."""
    return public.among(season_cohort(public.card, SECRET), derived_secret(SECRET, "chance"))


def played(engine, agent):
    return og.rollout(engine, agent, PATIENTS, seed=1000)


def test_where_chance_is_open_it_knows_everybody_and_wins(public):
    agent = Clairvoyant(public)
    gain = played(public, agent).returns - played(public, GuidelineAgent(public.card)).returns
    assert agent.found.all()
    assert gain.mean() > 0.1
    assert np.mean(gain > -0.05) > 0.9


@pytest.mark.parametrize("leaked", [False, True])
def test_on_a_board_it_knows_nobody_and_gains_nothing(public, season, leaked):
    """Not even if the season's patients leak: their chance is still secret."""
    agent = Clairvoyant(public.among(season.cohort) if leaked else public)
    one, other = played(season, agent), played(season, GuidelineAgent(season.card))
    assert not agent.found.any()
    assert (one.returns == other.returns).all()


def test_chance_already_seen_says_nothing_of_what_follows(season):
    """Whoever learns the keys of a hundred patients of a season finds no other patient's key with them."""
    keys = np.asarray(season.origins(5000).key)
    assert len(np.unique(keys, axis=1).T) == 5000
    bits = np.unpackbits(keys.T.copy().view(np.uint8), axis=1).astype(float)
    assert abs(bits.mean(0) - 0.5).max() < 0.04
    apart = np.abs(np.diff(bits, axis=0)).mean(1)
    assert 0.4 < apart.mean() < 0.6
    assert abs(np.corrcoef(bits[:-1].T, bits[1:].T)[:256, 256:]).max() < 0.09


KNOWN = 64


def memorised(engine, best, usual):
    """A policy file that starts ``usual`` and goes on with what was given; but it starts ``best`` with patients whom it knows.

    Args:
        engine: has the patients, from seed 0 on.
        best: (n,) a regimen for each.
        usual: a regimen for all others.
    """
    seen = np.asarray(engine.receive(engine.origins(len(best)))[1]).astype(float)
    features, choices = seen.shape[1], engine.kind.mask_size
    going_on = np.zeros((features, choices))
    going_on[engine.scenario.block("regimen")] = 10 * np.eye(choices)
    return file(
        node("Mul", "observation,observation", "squares"),
        node("ReduceSum", "squares,last_axis", "square", keepdims=1),
        node("MatMul", "observation,twice", "product"),
        node("Sub", "square,product", "some"),
        node("Add", "some,known_squares", "distance"),
        node("Less", "distance,near", "is_known"),
        node("Cast", "is_known", "who", to=1),
        node("MatMul", "who,best", "from_memory"),
        node("MatMul", "observation,going_on", "same_again"),
        node("Add", "from_memory,same_again", "wished"),
        node("Add", "wished,usual", "scores"),
        tensors=[
            whole("last_axis", 1),
            numbers("twice", 2 * seen.T),
            numbers("known_squares", (seen**2).sum(1)),
            numbers("near", 1e-3),
            numbers("best", 100 * np.eye(choices)[best]),
            numbers("going_on", going_on),
            numbers("usual", np.eye(choices)[usual]),
        ],
    )


def test_a_policy_that_has_memorised_the_public_patients_gains_nothing_on_a_board():
    public = make_engine("nsclc", split="validation", terms=("outcome",))
    season = public.among(season_cohort(public.card, SECRET), derived_secret(SECRET, "chance"))
    names = [regimen.name for regimen in public.card.regimens]
    returns = np.stack([og.rollout(public, og.load_agent(public, name), KNOWN).returns for name in names])
    usual = int(returns.mean(1).argmax())
    knowing, plain = (OnnxAgent(public, memorised(public, best, usual)) for best in (returns.argmax(0), np.full(KNOWN, usual)))

    def gain(engine):
        one, other = (og.rollout(engine, agent, KNOWN).returns for agent in (knowing, plain))
        return one - other

    assert gain(public).mean() > 0.3
    assert (gain(season) == 0).all()
