"""Evaluation of agents: figures with intervals, and a report.

>>> import onco_gym as og
>>> found = og.evaluate(og.make_engine("nsclc"), "guideline", episodes=1000)
>>> found.qalys, found.to_json()

Names are imported when they are first used; ``__init__.pyi`` lists them.
"""

from onco_gym.foundation.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
