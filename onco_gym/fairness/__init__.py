"""Exact fairness: how a policy treats patients and their counterfactual twins.

>>> from onco_gym.agents import GuidelineAgent
>>> from onco_gym.fairness import audit_fairness
>>> from onco_gym.interfaces.engine import make_engine
>>> engine = make_engine("nsclc")
>>> print(audit_fairness(engine, GuidelineAgent(engine.card), n=1000))
"""

from onco_gym.fairness.biased import BiasedAgent
from onco_gym.fairness.counterfactual import EFFECTS, Effect, FairnessError
from onco_gym.fairness.divergences import AttributeDivergence, Contrast, DivergenceReport, Pair, Standing, measure_divergence
from onco_gym.fairness.findings import TOLERANCE, Audit, Finding, audit_fairness
from onco_gym.fairness.groups import GroupMetrics
from onco_gym.fairness.twins import Twins, find_twins
from onco_gym.foundation.intervals import Interval

__all__ = [
    "find_twins",
    "measure_divergence",
    "audit_fairness",
    "Twins",
    "DivergenceReport",
    "AttributeDivergence",
    "Contrast",
    "Pair",
    "Standing",
    "GroupMetrics",
    "Audit",
    "Finding",
    "Interval",
    "BiasedAgent",
    "FairnessError",
    "Effect",
    "EFFECTS",
    "TOLERANCE",
]
