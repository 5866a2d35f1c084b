"""Nobody whom an agent is tested on was met in training."""

import itertools

import numpy as np
import pytest

from onco_gym.interfaces.arguments import EngineError
from onco_gym.interfaces.engine import make_engine
from onco_gym.patients import SPLITS, CausalGenerator, draw_split
from onco_gym.patients.splits import DONORS

GENERATORS = [CausalGenerator]
"""Everything that draws patients."""


def persons(cohort):
    """The patients, as bytes of all that they are."""
    parts = [cohort.columns, cohort.noise, cohort.effects]
    table = np.stack([np.asarray(values).astype("U24") for part in parts for values in part.values()], 1)
    return {row.tobytes() for row in table}


@pytest.mark.parametrize("generator", GENERATORS)
def test_nobody_is_in_two_splits(card, generator):
    drawn = generator(card)
    groups = {name: persons(draw_split(drawn, name)) for name in SPLITS} | {"donors": persons(drawn.sample(32_768, DONORS))}
    for (one, some), (other, others) in itertools.combinations(groups.items(), 2):
        assert not some & others, f"{one} and {other} share {len(some & others)} patients"
    assert all(len(some) > 16_000 for some in groups.values()), "patients of one split differ"


def test_engines_of_two_splits_share_what_is_compiled():
    train, test = make_engine("nsclc"), make_engine("nsclc", split="test")
    assert train.on("test") is test
    assert test.on("train") is train
    assert train.step is test.step
    assert (train.stamp.split, test.stamp.split) == ("train", "test")
    assert train.stamp.cohort_digest != test.stamp.cohort_digest
    own = make_engine("nsclc", cohort=train.generator.sample(8, seed=1))
    assert own.on("test") is own
    assert own.stamp.split == "own"
    with pytest.raises(EngineError, match="split is 'tset', expected one of train, validation, test"):
        make_engine("nsclc", split="tset")
