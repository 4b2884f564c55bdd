"""Every metric of the node's pages, by page, for docs/metrics.md and for tests that compare names."""

from __future__ import annotations

from plimsoll.metrics.exposition import Family, Metric
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.stats import line_metrics, prometheus
from plimsoll.rules.profile import RELEASES, profile_named


def node_metrics() -> dict[str, list[Family]]:
    """Page → its metrics. Those that only newer releases have are those of the newest profile."""
    meters = NodeMeters("", profile_named(RELEASES[-1]), memory_qos=True, io=True)
    return {
        "/metrics": list(map(_family, meters.registry.metrics)),
        "/metrics/cadvisor": [*prometheus.cadvisor_families(), *line_metrics.FAMILIES],
        "/metrics/resource": prometheus.resource_families(),
        "/metrics/probes": list(map(_family, meters.probe_registry.metrics)),
    }


def _family(metric: Metric) -> Family:
    return Family(metric.kind, metric.name, metric.help_text, metric.labels)
