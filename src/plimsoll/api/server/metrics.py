"""/metrics of the API server: requests, durations, watchers, the store; named as in kube-apiserver.

/metrics/slis has the results of health checks, /metrics/objects the objects, named as in kube-state-metrics, and
/metrics/targets the nodes as targets for Prometheus' HTTP service discovery (`object_metrics`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from plimsoll.api.discovery.pages import StaticPage
from plimsoll.api.machinery.metrics import BUCKETS, RequestMetrics
from plimsoll.api.server.app import App
from plimsoll.api.server.object_metrics import PATH as OBJECTS
from plimsoll.api.server.object_metrics import TARGETS, objects_page, targets_page
from plimsoll.metrics.exposition import CONTENT_TYPE, Computed, Histogram, Registry, Sample
from plimsoll.metrics.health import PATH as HEALTH
from plimsoll.store.store import Store

PATH = "/metrics"
Reader = Callable[[], float]
_REQUEST = ("verb", "group", "resource", "subresource")


@asynccontextmanager
async def metrics_service(app: App) -> AsyncIterator[None]:
    """Serve the page while the server runs."""
    registered = registry(app.meter, app.cluster.store)
    store = app.cluster.store
    app.pages.added[PATH] = lambda: StaticPage(200, registered.text().encode(), CONTENT_TYPE)
    app.pages.added[HEALTH] = lambda: StaticPage(200, app.pages.health.registry.text().encode(), CONTENT_TYPE)
    app.pages.added[OBJECTS] = lambda: StaticPage(200, objects_page(store).encode(), CONTENT_TYPE)
    app.pages.added[TARGETS] = lambda: StaticPage(200, targets_page(store, app.pages.address))
    try:
        yield
    finally:
        for path in (PATH, HEALTH, OBJECTS, TARGETS):
            del app.pages.added[path]


def registry(meter: RequestMetrics, store: Store) -> Registry:
    metrics = Registry()
    metrics.add(
        Computed(
            "counter",
            "apiserver_request_total",
            "Requests by verb, resource and response code.",
            (*_REQUEST, "code"),
            lambda: (((*what[:4], str(what[4])), count) for what, count in meter.requests.items()),
        ),
        Durations(meter),
        Computed(
            "gauge",
            "apiserver_longrunning_requests",
            "Open watches.",
            ("verb", "resource"),
            lambda: ((("watch", resource), count) for resource, count in meter.watchers.items()),
        ),
        _single("gauge", "apiserver_current_inflight_requests", "Requests being answered.", lambda: meter.in_flight),
        _single("counter", "apiserver_refused_requests_total", "Requests refused by a limit.", lambda: meter.refused),
        _single("counter", "apiserver_faults_total", "Responses with 500.", lambda: meter.faults),
        _single("gauge", "plimsoll_store_objects", "Objects stored.", store.count),
        _single("gauge", "plimsoll_store_resource_version", "The newest version.", lambda: store.version),
        _single("gauge", "plimsoll_store_waiting_changes", "Changes not yet durable.", lambda: store.meter.waiting),
        _single("counter", "plimsoll_store_changes_total", "Changes on disk.", lambda: store.meter.committed_changes),
        _single(
            "counter",
            "plimsoll_store_failed_commits_total",
            "Transactions that failed.",
            lambda: store.meter.failed_commits,
        ),
        _single(
            "counter",
            "plimsoll_store_failed_checkpoints_total",
            "Attempts to move SQLite's write-ahead log into the database that failed.",
            lambda: store.meter.failed_checkpoints,
        ),
        _commits(store),
    )
    return metrics


class Durations(Histogram):
    """The histogram of the request metrics, read at each scrape."""

    def __init__(self, meter: RequestMetrics) -> None:
        name, text = "apiserver_request_duration_seconds", "Duration of requests in seconds, without watches."
        super().__init__(name, text, _REQUEST, BUCKETS)
        self._meter = meter

    def lines(self) -> Iterable[str]:
        self._counts = {what: [*histogram.counts, histogram.sum_s] for what, histogram in self._meter.durations.items()}
        return super().lines()


def _commits(store: Store) -> Histogram:
    histogram = Histogram("plimsoll_store_commit_duration_seconds", "Seconds until a transaction is on disk.")
    store.observe_commits(lambda _, seconds: histogram.observe(seconds))
    return histogram


def _single(kind: str, name: str, text: str, read: Reader) -> Computed:
    def samples() -> Iterable[Sample]:
        yield (), read()

    return Computed(kind, name, text, (), samples)
