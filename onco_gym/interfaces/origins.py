"""Where episodes begin: from a seed to a stream, from a stream to a patient and the key of its chance."""

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.interfaces.arguments import EngineError, checked_seed


class Origin(NamedTuple):
    """Where episodes begin. With the actions, this is all that is needed to replay them."""

    row: Any  # (n,) int32, rows of the engine's cohort
    key: Any  # (words, n) uint32, sources of chance; see onco_gym.simulator.chance

    def take(self, which: Any) -> "Origin":
        """The origins at ``which`` (m,)."""
        return Origin(self.row[which], self.key[:, which])

    def of(self, i: int) -> tuple[int, str]:
        """Row and key of episode ``i``. The key is hexadecimal text."""
        return int(self.row[i]), "".join(f"{int(word):08x}" for word in self.key[:, i])

    @classmethod
    def one(cls, row: int, key: str) -> "Origin":
        """The origin of one episode, from its row and its key as :meth:`of` gives them.

        Raises:
            EngineError: if the key is not 16 or 64 hexadecimal digits.
        """
        return cls(np.array([row], np.int32), key_words(key)[:, None])


class Seat(NamedTuple):
    """One environment's place in its sequence of patients."""

    stream: Any  # (2, n) uint32, from the seed; NumPy's or JAX's
    episode: Any  # (n,) uint32, episodes since the seed

    @classmethod
    def first(cls, seeds: NDArray[np.uint64]) -> "Seat":
        """The first episodes under ``seeds`` (n,)."""
        return cls(stream_of(seeds), np.zeros(len(seeds), np.uint32))


def stream_of(seeds: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """(2, n) uint32 streams of 64-bit seeds (splitmix64): different seeds have different streams, also neighbouring ones."""
    with np.errstate(over="ignore"):
        z = seeds.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        return np.stack([z >> np.uint64(32), z & np.uint64(0xFFFFFFFF)]).astype(np.uint32)


def key_words(key: Any) -> NDArray[np.uint32]:
    """(words,) the words of a key in hexadecimal text: 16 digits for an open key, 64 for a sealed one.

    Raises:
        EngineError: for anything else.
    """
    if not isinstance(key, str) or not re.fullmatch("[0-9a-f]{16}([0-9a-f]{48})?", key):
        raise EngineError(f"key is {key!r}, expected 16 or 64 hexadecimal digits")
    return np.array([int(key[i : i + 8], 16) for i in range(0, len(key), 8)], np.uint32)


def seeds_from(seed: Any, n: int) -> NDArray[np.uint64]:
    """(n,) the seeds ``seed``, ``seed + 1``, and so on.

    Raises:
        EngineError: if ``n`` is below 1, or one of them is not from 0 to 2**64 - 1.
    """
    if n < 1:
        raise EngineError(f"n is {n}, expected at least one patient")
    checked_seed(checked_seed(seed) + n - 1)
    return np.uint64(seed) + np.arange(n, dtype=np.uint64)
