"""Trials on simulated patients: arms, statistics, calibration against published arms, and trial design."""

from onco_gym.trials.arms import Setting, TrialError
from onco_gym.trials.published import reproduce
from onco_gym.trials.trial import TrialResult, as_json, run_trial

__all__ = ["Setting", "TrialError", "TrialResult", "as_json", "reproduce", "run_trial"]
