"""Conformance checks for environments. You can run them on your own cards and wrappers too.

Names are imported when they are first used; ``__init__.pyi`` lists them.
"""

from onco_gym.foundation.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
