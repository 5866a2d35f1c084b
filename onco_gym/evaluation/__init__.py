"""Evaluation of agents: figures with intervals, and a report.

>>> import onco_gym as og
>>> found = og.evaluate(og.make_engine("nsclc"), "guideline", episodes=1000)
>>> found.qalys, found.to_json()
"""

from onco_gym.evaluation.figures import Evaluation, EvaluationError, improvement, read_evaluation, write_evaluation
from onco_gym.evaluation.report import write_report
from onco_gym.evaluation.rollouts import RolloutSummary, summarise_rollout
from onco_gym.evaluation.running import evaluate, evaluate_all
from onco_gym.evaluation.statistics import StatisticsError
from onco_gym.foundation.intervals import Interval

__all__ = [
    "Evaluation",
    "EvaluationError",
    "Interval",
    "RolloutSummary",
    "StatisticsError",
    "evaluate",
    "evaluate_all",
    "improvement",
    "read_evaluation",
    "summarise_rollout",
    "write_evaluation",
    "write_report",
]
