"""A cache of solved patients, for verifying several agents on the same patients."""

import hashlib
from collections import OrderedDict
from typing import Any

import numpy as np

from onco_gym.interfaces.engine import Engine
from onco_gym.verification.course import Cases, Sequence
from onco_gym.verification.solver import Plans


class Solutions:
    """The best sequences of patients, as :func:`onco_gym.verification.optimal` found them.

    Args:
        most: the number of patients to remember. When there are more, the oldest are forgotten.
    """

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._found: OrderedDict[bytes, tuple[Sequence, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def recall(self, marks: list[bytes]) -> Plans | None:
        """The plans of patients if all of them are known, with 0 courses tried."""
        if any(mark not in self._found for mark in marks):
            return None
        rows, values = zip(*(self._found[mark] for mark in marks), strict=True)
        return Plans(np.stack(rows, 1), np.array(values, np.float32), np.zeros(len(marks), np.int64))

    def keep(self, marks: list[bytes], plans: Plans) -> None:
        """Remember plans."""
        for i, mark in enumerate(marks):
            self._found[mark] = plans.decisions[:, i].copy(), float(plans.value[i])
        while len(self._found) > self._most:
            self._found.popitem(last=False)


def marks(engine: Engine, who: Cases, n: int, asked: tuple[Any, ...]) -> list[bytes]:
    """The cache keys of n patients: card, weights, what was ``asked``, the patient and the chance."""
    rows = np.concatenate([np.asarray(part, np.float32).reshape(-1, who.key.shape[-1]) for part in who.patient])
    keys, size = np.asarray(who.key), who.key.shape[-1] // n
    about = repr((engine.stamp.card_digest, sorted(engine.weights.items()), asked)).encode()
    each = (slice(i * size, (i + 1) * size) for i in range(n))
    return [hashlib.sha256(about + rows[:, some].tobytes() + keys[:, some].tobytes()).digest() for some in each]
