"""Patients: cohorts, and the generators that make them.

Names are imported when they are first used; ``__init__.pyi`` lists them.
"""

from onco_gym.foundation.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
