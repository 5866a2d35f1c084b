"""Exact fairness: counterfactual twins, and what a policy makes of them.

>>> from onco_gym.agents import GuidelineAgent
>>> from onco_gym.fairness import audit
>>> from onco_gym.interfaces.engine import make_engine
>>> engine = make_engine("nsclc")
>>> print(audit(GuidelineAgent(engine.card), engine, n=1000))
"""

from onco_gym.fairness.audit import TOLERANCE, Audit, Finding, audit
from onco_gym.fairness.biased import BiasedAgent
from onco_gym.fairness.counterfactual import EFFECTS, Effect, FairnessError
from onco_gym.fairness.divergence import AttributeDivergence, DivergenceReport, Pair, Reading, Standing, divergence
from onco_gym.fairness.estimates import Estimate
from onco_gym.fairness.groups import GroupMetrics
from onco_gym.fairness.twins import Twins, twins

__all__ = [
    "twins",
    "divergence",
    "audit",
    "Twins",
    "DivergenceReport",
    "AttributeDivergence",
    "Reading",
    "Pair",
    "Standing",
    "GroupMetrics",
    "Audit",
    "Finding",
    "Estimate",
    "BiasedAgent",
    "FairnessError",
    "Effect",
    "EFFECTS",
    "TOLERANCE",
]
