"""The limits of one server: requests per second and user, concurrent requests, watchers."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.api.machinery.cluster import Limits
from plimsoll.api.machinery.metrics import RequestMetrics
from plimsoll.api.machinery.status import too_many_requests

_USERS = 10_000  # above it the oldest are dropped, which only gives them a full bucket again


class Limiter:
    """One token bucket per user: a burst, then a rate per second."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # user → (tokens, when)

    def check(self, user: str, meter: RequestMetrics, *, is_watch: bool) -> None:
        """Raises 429."""
        now = self._clock()
        tokens, since = self._buckets.pop(user, (float(self._limits.burst), now))
        tokens = min(float(self._limits.burst), tokens + (now - since) * self._limits.requests_per_s)
        if len(self._buckets) >= _USERS:
            del self._buckets[next(iter(self._buckets))]
        if tokens < 1:
            self._buckets[user] = (tokens, now)
            meter.refused += 1
            raise too_many_requests("too many requests, please try again later", retry_after_s=1)
        self._buckets[user] = (tokens - 1, now)
        if is_watch and meter.all_watchers >= self._limits.watchers:
            meter.refused += 1
            raise too_many_requests(f"{self._limits.watchers} watches are open, which is the limit", retry_after_s=5)
        if not is_watch and meter.in_flight >= self._limits.in_flight:
            meter.refused += 1
            raise too_many_requests("too many concurrent requests, please try again later", retry_after_s=1)
