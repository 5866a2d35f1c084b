"""Cards: everything known about a disease, as data. A card file becomes a validated :class:`Card`.

Names are imported when first used, because registering environments does not need the schema. ``__init__.pyi`` lists them.
"""

from onco_gym.foundation.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
