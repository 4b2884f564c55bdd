"""Request counters for /metrics."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

# Seconds; a subset of the buckets of kube-apiserver's request durations.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RequestHistogram(msgspec.Struct):
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum_s += seconds


class RequestMetrics(msgspec.Struct):
    """`requests` is by (verb, group, resource, subresource, code); durations by the first four."""

    requests: dict[tuple[str, str, str, str, int], int] = {}
    durations: dict[tuple[str, str, str, str], RequestHistogram] = {}
    watchers: dict[str, int] = {}  # by resource
    in_flight: int = 0
    refused: int = 0  # by rate or number
    faults: int = 0  # responses with 500 from an error of the server

    def count(self, verb: str, group: str, resource: str, subresource: str, code: int, seconds: float) -> None:
        what = (verb, group, resource, subresource)
        self.requests[(*what, code)] = self.requests.get((*what, code), 0) + 1
        if verb != "watch":
            histogram = self.durations.get(what)
            if histogram is None:
                histogram = self.durations[what] = RequestHistogram()
            histogram.add(seconds)

    @property
    def all_watchers(self) -> int:
        return sum(self.watchers.values())
