"""Inverse simulation: from outcomes to the decisions that explain them, and to those that would have been best."""

from onco_gym.verification.course import Cases, Course, cases, follow
from onco_gym.verification.explain import Reason
from onco_gym.verification.reconstruct import Observed, Reconstruction, misfit, reconstruct, watch
from onco_gym.verification.record import Record, RecordError, read_record, record, write_record
from onco_gym.verification.report import write_report
from onco_gym.verification.solver import Effort, Plans
from onco_gym.verification.verify import Finding, optimal, verify

__all__ = [
    "Cases",
    "Course",
    "Effort",
    "Finding",
    "Observed",
    "Plans",
    "Reason",
    "Reconstruction",
    "Record",
    "RecordError",
    "cases",
    "follow",
    "misfit",
    "optimal",
    "read_record",
    "reconstruct",
    "record",
    "verify",
    "watch",
    "write_record",
    "write_report",
]
