"""The leaderboard: submit a policy, have it run again on secret patients, and see it on a page.

Names are imported when they are first used; ``__init__.pyi`` lists them.
"""

from onco_gym.foundation.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
