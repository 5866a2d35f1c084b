"""Rate limits. They are kept in memory: each server process has its own, and forgets them when it ends."""

import threading
import time
from collections import OrderedDict

MOST_KEYS = 10_000
"""Keys that are remembered; the one that was not seen for the longest time is forgotten first."""


class Limiter:
    """A bucket of tokens for each key, such as an address or an account. A request takes one; they come back with time.

    Args:
        burst: how many requests a key may make at once.
        rate: how many more a second.
    """

    def __init__(self, burst: float, rate: float) -> None:
        self._burst, self._rate = burst, rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, key: str) -> float:
        """Take a token. 0 if there was one, else the seconds until there will be."""
        with self._lock:
            now = time.monotonic()
            left, seen = self._buckets.pop(key, (self._burst, now))
            left = min(self._burst, left + (now - seen) * self._rate)
            enough = left >= 1
            self._buckets[key] = (left - 1 if enough else left, now)
            if len(self._buckets) > MOST_KEYS:
                self._buckets.popitem(last=False)
            return 0.0 if enough else (1 - left) / self._rate
