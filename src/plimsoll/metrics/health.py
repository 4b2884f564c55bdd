"""Results of health checks as metrics, on the page /metrics/slis of every component of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.metrics.exposition import Counter, Gauge, Registry

PATH = "/metrics/slis"


class HealthMeters:
    def __init__(self, started_s: float) -> None:
        """`started_s`: when the server was started, so that the page has a value before the first check."""
        self._last = Gauge(
            "kubernetes_healthcheck", "This metric records the result of a single healthcheck.", ("name", "type")
        )
        self._total = Counter(
            "kubernetes_healthchecks_total",
            "This metric records the results of all healthcheck.",
            ("name", "type", "status"),
        )
        start = Gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")
        start.set(started_s)
        self.registry = Registry()
        self.registry.add(self._last, self._total, start)

    def observe(self, kind: str, faults: Mapping[str, str]) -> None:
        """`kind`: healthz, livez or readyz. `faults` has every check by name, empty where it passed."""
        for name, fault in faults.items():
            self._last.set(0 if fault else 1, name, kind)
            self._total.add(name, kind, "error" if fault else "success")
