"""Evaluation: what an agent is worth, how sure that is, and a page that shows it.

>>> from onco_gym.evaluation import evaluate
>>> from onco_gym.interfaces.engine import make_engine
>>> found = evaluate("guideline", make_engine("nsclc"), episodes=1000)
>>> found.qalys, found.to_json()
"""

from onco_gym.evaluation.evaluate import (
    CHUNK,
    REFERENCE,
    Chunk,
    Evaluation,
    EvaluationError,
    Reference,
    Runs,
    Timing,
    evaluate,
    evaluate_all,
    evaluate_chunk,
    improvement,
)
from onco_gym.evaluation.report import write_report
from onco_gym.evaluation.statistics import Interval, StatisticsError

__all__ = [
    "CHUNK",
    "REFERENCE",
    "Chunk",
    "Evaluation",
    "EvaluationError",
    "Interval",
    "Reference",
    "Runs",
    "StatisticsError",
    "Timing",
    "evaluate",
    "evaluate_all",
    "evaluate_chunk",
    "improvement",
    "write_report",
]
