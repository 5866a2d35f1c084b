"""onco_gym: reinforcement-learning environments for precision oncology.

Importing it registers the environments with Gymnasium. Everything else is imported when it is first used, so that
``import onco_gym`` stays cheap; ``__init__.pyi`` lists what is here.

Research software: nothing here is for treating patients.
"""

import os

from onco_gym.foundation.lazy import attach
from onco_gym.interfaces.registry import register_all

# JAX reads this when it starts. Flags that the user has set stay. See docs/design.md, "Speed".
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=65536 --xla_cpu_prefer_vector_width=512",
)

register_all()

__getattr__, __dir__, __all__ = attach(__name__, __file__)
