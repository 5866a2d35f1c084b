"""Splits: patients to train on, to tune on and to be tested on. Nobody is in two of them."""

from collections.abc import Mapping

from onco_gym.patients.cohort import Cohort
from onco_gym.patients.generator import Generator

POOL = 16_384
"""Patients in a split."""

SPLITS: Mapping[str, int] = {"train": 0, "validation": 0x56414C49, "test": 0x54455354}
"""The splits that environments draw from, and the seeds that a generator draws them with."""

DONORS = 0x444F4E4F
"""Seed of the patients whom the planner compares others with. They are in no split."""


def draw_split(generator: Generator, split: str) -> Cohort:
    """The :data:`POOL` patients of a split."""
    return generator.sample(POOL, SPLITS[split])
