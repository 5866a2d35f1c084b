"""onco_gym: reinforcement-learning environments for precision oncology.

Research software: nothing here is for treating patients.
"""

import os
from typing import TYPE_CHECKING, Any

from onco_gym.registration import register_all, registered_ids
from onco_gym.version import __version__

if TYPE_CHECKING:
    from onco_gym.cards import Card, CardError, load_card
    from onco_gym.cards.citations import citation
    from onco_gym.interfaces.sb3 import make_sb3
    from onco_gym.patients import CausalGenerator, Cohort, CohortError

__all__ = [
    "CausalGenerator",
    "Card",
    "CardError",
    "Cohort",
    "CohortError",
    "__version__",
    "citation",
    "load_card",
    "make_sb3",
    "registered_ids",
]

_LAZY = {
    "Card": "onco_gym.cards",
    "CardError": "onco_gym.cards",
    "load_card": "onco_gym.cards",
    "citation": "onco_gym.cards.citations",
    "CausalGenerator": "onco_gym.patients",
    "Cohort": "onco_gym.patients",
    "CohortError": "onco_gym.patients",
    "make_sb3": "onco_gym.interfaces.sb3",
}

# Read when JAX starts; flags that the user has set stay. See docs/design.md, "Speed".
os.environ.setdefault("XLA_FLAGS", "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=65536")

register_all()


def __getattr__(name: str) -> Any:  # imported when first used, so that registering ids stays cheap
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
