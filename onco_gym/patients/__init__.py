"""Patients: cohorts, and the generators that make them."""

from onco_gym.patients.causal import CausalGenerator
from onco_gym.patients.cohort import Cohort, CohortError

__all__ = ["CausalGenerator", "Cohort", "CohortError"]
