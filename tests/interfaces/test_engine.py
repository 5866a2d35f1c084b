"""Engines: how they are found, what they refuse, what they say of themselves."""

import pickle

import gymnasium as gym
import jax
import numpy as np
import pytest
from conftest import refuses

import onco_gym as og
from onco_gym.interfaces.arguments import EngineError
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.origins import Seat, seeds_from
from onco_gym.interfaces.registry import KINDS, UnknownEnvironmentError, environments, find_environment
from onco_gym.interfaces.stamp import Stamp, StampError

SHORT = {"horizon": 6}


@pytest.mark.parametrize("text", ["onco_gym/NSCLC-v0", "NSCLC-v0", "NSCLC", "nsclc"])
def test_an_environment_has_many_names_and_one_engine(text):
    assert make_engine(text) is make_engine("nsclc")
    assert find_environment(text).id == "onco_gym/NSCLC-v0"


def test_every_id_leads_to_its_engine():
    for one in environments():
        found = find_environment(one.id)
        assert (found.card, found.kind, found.multi_objective) == (one.card, one.kind, one.multi_objective)
        assert gym.spec(one.id).kwargs == {"card": one.card, "kind": one.kind}
    assert make_engine("NSCLC-Dose", **SHORT).kind.name == "dose"
    assert make_engine("NSCLC-Dose", **SHORT) is make_engine("nsclc", kind="dose", **SHORT)
    assert make_engine("mo-NSCLC", **SHORT) is make_engine("nsclc", **SHORT)


def test_a_kind_says_what_its_actions_are():
    for name in KINDS:
        kind = make_engine("nsclc", kind=name, **SHORT).kind
        assert kind.name == name
        assert sum(kind.parts.values()) == (0 if name == "dose" else kind.mask_size)
        actions = np.stack([kind.space.sample() for _ in range(5)])
        regimens = kind.regimens(kind.checked(actions, 5))
        assert regimens.shape == (5,)
        assert ((regimens >= 0) & (regimens < len(make_engine("nsclc").scenario.regimens))).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NSCL", r"did you mean 'NSCLC'\?"),
        ("onco_gym/Melanom-v0", "did you mean 'onco_gym/Melanoma-v0'"),
        ("onco_gym/Card-v0", "needs a card of your own"),
        ("CartPole-v1", "there is no environment or card"),
    ],
)
def test_an_unknown_environment_gets_one_clear_error(text, expected):
    with pytest.raises(UnknownEnvironmentError, match=expected):
        make_engine(text)


def test_a_kind_must_exist_and_fit_the_id():
    with pytest.raises(UnknownEnvironmentError, match="kind is 'doses', expected one of regimen, dose, workflow"):
        make_engine("nsclc", kind="doses")
    with pytest.raises(UnknownEnvironmentError, match="is of kind 'dose', not 'workflow'"):
        make_engine("NSCLC-Dose", kind="workflow")


BAD = [
    ({"weights": {"carbon": float("nan")}}, "the weight of carbon is nan"),
    ({"weights": {"carbon": 1e308}}, r"the weight of carbon is 1e\+308"),
    ({"weights": {"carbon": True}}, "the weight of carbon is True"),
    ({"weights": {"carbon": "much"}}, "the weight of carbon is 'much'"),
    ({"weights": {"beauty": 1.0}}, "weights name 'beauty', expected some of outcome"),
    ({"weights": [1, 2]}, "weights are .1, 2., expected a mapping"),
    ({"horizon": 1.5}, "horizon is 1.5, expected a whole number"),
    ({"horizon": True}, "horizon is True, expected a whole number"),
    ({"horizon": 0}, "horizon is 0, expected a whole number"),
    ({"horizon": 10**9}, "horizon is 1000000000, expected a whole number"),
    ({"terms": "outcome"}, "terms are 'outcome', expected a list"),
    ({"terms": ["beauty"]}, "terms are .'beauty'., expected a list"),
    ({"terms": 3}, "terms are 3, expected a list"),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD)
def test_arguments_that_make_no_sense_get_one_clear_error(arguments, expected):
    for make in (
        lambda: make_engine("nsclc", **arguments),
        lambda: gym.make("onco_gym/NSCLC-v0", **arguments),
        lambda: gym.make_vec("onco_gym/NSCLC-v0", num_envs=2, **arguments),
    ):
        with pytest.raises(EngineError, match=expected):
            make()


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "3", True, np.float64(3)])
def test_a_seed_is_a_whole_number_of_64_bits(seed):
    single, vector = gym.make("onco_gym/NSCLC-v0").unwrapped, gym.make_vec("onco_gym/NSCLC-v0", num_envs=2)
    for reset in (single.reset, vector.unwrapped.reset, lambda seed: vector.unwrapped.reset(seed=[0, seed])):
        refuses(EngineError, "seed is", reset, seed=seed)
    refuses(EngineError, "seed is", make_engine("nsclc", **SHORT).origins, 3, seed)


def test_numpys_whole_numbers_are_seeds_too():
    env = gym.make("onco_gym/NSCLC-v0").unwrapped
    plain, _ = env.reset(seed=3)
    for kind in (np.int64, np.uint8, np.int32):
        seen, _ = env.reset(seed=kind(3))
        np.testing.assert_array_equal(seen, plain)
    env.reset(seed=np.uint64(2**64 - 1))
    assert seeds_from(2**64 - 2, 2).tolist() == [2**64 - 2, 2**64 - 1]
    with pytest.raises(EngineError, match="seed is 18446744073709551616"):
        seeds_from(2**64 - 2, 3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"patient": "first"}, "options.'patient'. is 'first'"),
        ({"patient": True}, "options.'patient'. is True"),
        ({"patient": -1}, r"expected 0\.\.16383"),
        ({"key": 5}, "key is 5, expected 16 or 64 hexadecimal digits"),
        ({"row": 3}, "reset options name 'row'"),
        ([3], "reset options are .3., expected a mapping"),
    ],
)
def test_options_that_make_no_sense_get_one_clear_error_and_lose_nothing(options, expected):
    env = gym.make("onco_gym/NSCLC-v0").unwrapped
    env.reset(seed=5)
    before = env.origin
    with pytest.raises(EngineError, match=expected):
        env.reset(options=options)
    assert env.origin == before
    env.step(0)  # the episode goes on


def test_a_stamp_tells_engines_apart_and_reads_itself_back():
    plain = make_engine("nsclc", **SHORT).stamp
    assert Stamp.from_json(plain.to_json()) == plain
    plain.check(make_engine("NSCLC", **SHORT).stamp)
    others = {
        "horizon": make_engine("nsclc", horizon=7),
        "weights": make_engine("nsclc", weights={"carbon": 0.3}, **SHORT),
        "split": make_engine("nsclc", split="test", **SHORT),
        "decide": make_engine("nsclc", decide="cycles", **SHORT),
        "cohort_digest": make_engine("nsclc", og.CausalGenerator(og.load_card("nsclc")).sample(50, seed=9), **SHORT),
        "environment": make_engine("nsclc", kind="dose", **SHORT),
        "terms": make_engine("nsclc", terms=("outcome",), **SHORT),
    }
    for name, engine in others.items():
        refuses(StampError, f"made with {name.replace('cohort_digest', 'split')}", plain.check, engine.stamp)
    for damaged in (None, {}, {**plain.to_json(), "horizon": "six"}):
        refuses(StampError, "not an object with environment", Stamp.from_json, damaged)


def test_an_engine_travels_and_is_made_again_at_its_destination():
    for kind in KINDS:
        shared = make_engine("nsclc", kind=kind, **SHORT)
        assert pickle.loads(pickle.dumps(shared)) is shared, "one that is there already need not be compiled again"
    own = make_engine("nsclc", og.CausalGenerator(shared.card).sample(40, seed=2), weights={"carbon": 0.2}, **SHORT)
    again = pickle.loads(pickle.dumps(own))
    assert again is not own
    assert again.stamp == own.stamp
    np.testing.assert_array_equal(again.pool, own.pool)


def test_an_engine_draws_its_patients_from_its_generator():
    class Clones:
        """A generator of one patient, over and over."""

        card = og.load_card("nsclc")

        def sample(self, n, seed=0, where=None, do=None):
            return og.CausalGenerator(self.card).sample(1, seed=7).take(np.zeros(min(n, 64), int))

        def counterfactual(self, cohort, do, hold=()):
            return og.CausalGenerator(self.card).counterfactual(cohort, do, hold)

    engine = make_engine("nsclc", generator=Clones(), **SHORT)
    assert len(np.unique(engine.pool, axis=0)) == 1
    with pytest.raises(EngineError, match="the generator belongs to the card 'NSCLC', expected"):
        make_engine("breast", generator=Clones())


def test_long_things_have_short_names():
    engine = make_engine("nsclc")
    for thing in (engine, engine.cohort, og.rollout(engine, og.load_agent(engine, "guideline"), 4)):
        assert len(repr(thing)) < 120


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_keeps_every_type_of_number(kind):
    """What strict promotion would protect: nothing in a patient's state drifts to another type, and nothing is 64 bits wide."""
    engine = make_engine("nsclc", kind=kind, **SHORT)
    encounter, *_ = jax.eval_shape(engine.admit, Seat.first(np.arange(3, dtype=np.uint64)))
    action = jax.ShapeDtypeStruct((3, *engine.kind.space.shape), np.float32 if kind == "dose" else np.int32)
    after, _, observation, mask, outcome = jax.eval_shape(engine.step, encounter, jax.eval_shape(engine.tally), action)
    assert [leaf.dtype for leaf in jax.tree.leaves(after)] == [leaf.dtype for leaf in jax.tree.leaves(encounter)]
    assert (observation.dtype, mask.dtype, outcome.reward.dtype) == (np.float32, bool, np.float32)
    assert all(leaf.dtype.itemsize <= 4 for leaf in jax.tree.leaves((after, outcome)))
