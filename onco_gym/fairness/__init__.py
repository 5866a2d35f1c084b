"""Exact fairness: how a policy treats patients and their counterfactual twins.

>>> from onco_gym.agents import GuidelineAgent
>>> from onco_gym.fairness import audit_fairness
>>> from onco_gym.interfaces.engine import make_engine
>>> engine = make_engine("nsclc")
>>> print(audit_fairness(engine, GuidelineAgent(engine.card), n=1000))

Names are imported when they are first used; ``__init__.pyi`` lists them.
"""

from onco_gym.foundation.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
