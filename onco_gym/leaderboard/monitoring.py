"""What Prometheus reads of a server: its requests, and the submissions by state."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from onco_gym.leaderboard.store import Store

SECONDS = (0.005, 0.02, 0.1, 0.3, 1, 3, 10, 60)
"""Bounds of the histogram of response times."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods that are counted apart. A client may send any word, and each would stay in memory."""


class Monitor(Collector):
    """Counts requests, and reads the queue when it is asked.

    Args:
        store: whose submissions are counted.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._registry = store, CollectorRegistry()
        names = ["method", "route"]
        about = "Requests by route and status"
        self._requests = Counter("onco_gym_requests", about, [*names, "status"], registry=self._registry)
        about = "Time of responses"
        self._seconds = Histogram("onco_gym_response_seconds", about, names, buckets=SECONDS, registry=self._registry)
        self._registry.register(self)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The submissions, by board and state."""
        found = GaugeMetricFamily("onco_gym_submissions", "Submissions by board and state", labels=["board", "state"])
        for (board, state), number in sorted(self._store.states().items()):
            found.add_metric([board, state], number)
        yield found

    def text(self) -> bytes:
        """All of it, in the format of Prometheus."""
        return generate_latest(self._registry)
