"""Patients: cohorts, and the generators that make them."""

from onco_gym.patients.causal import CausalGenerator
from onco_gym.patients.cohort import Cohort, CohortError
from onco_gym.patients.generator import Generator, default_generator
from onco_gym.patients.splits import SPLITS, draw_split
from onco_gym.patients.tables import read_cohort, write_cohort

__all__ = [
    "SPLITS",
    "CausalGenerator",
    "Cohort",
    "CohortError",
    "Generator",
    "default_generator",
    "draw_split",
    "read_cohort",
    "write_cohort",
]
