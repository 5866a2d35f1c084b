"""Inverse simulation: from outcomes to the decisions that explain them, and to those that would have been best."""

from onco_gym.verification.course import Cases, Course, cases, follow
from onco_gym.verification.reasons import LostValue
from onco_gym.verification.reconstruction import Observed, Reconstruction, misfit, reconstruct, watch
from onco_gym.verification.records import Record, read_record, record_episodes, write_record
from onco_gym.verification.report import write_report
from onco_gym.verification.scoring import Verification, optimal, verify, weeks_lost
from onco_gym.verification.solutions import Solutions
from onco_gym.verification.solver import Effort, Plans

__all__ = [
    "Cases",
    "Course",
    "Effort",
    "Verification",
    "Observed",
    "Plans",
    "LostValue",
    "Reconstruction",
    "Record",
    "Solutions",
    "cases",
    "follow",
    "misfit",
    "optimal",
    "read_record",
    "reconstruct",
    "record_episodes",
    "verify",
    "watch",
    "weeks_lost",
    "write_record",
    "write_report",
]
