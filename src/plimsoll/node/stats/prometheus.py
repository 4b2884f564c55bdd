"""/metrics/resource and /metrics/cadvisor: one snapshot with the kubelet's and cAdvisor's names.

Built per request; each sample has the time when it was read. What the kernel does not report has no sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from plimsoll.cgroups.stats.usage import CgroupUsage
from plimsoll.metrics.exposition import Family, Labels, Sample, TextSample, family, label_text
from plimsoll.node.stats.stats import ContainerSample, Measured, PodSample, StatsSnapshot

Row = tuple[str, Measured]  # with the text of its labels: most metrics of a page have the same


class _Metric(NamedTuple):
    """One metric: a field of a part of `cgroups.stats.usage.CgroupUsage`; times are in µs there and in seconds here."""

    kind: Literal["counter", "gauge"]
    name: str
    part: str
    field: str
    text: str

    def samples(self, rows: Iterable[Row]) -> Iterable[TextSample]:
        in_seconds = self.field.endswith("_us")
        for labels, measured in rows:
            part = getattr(measured.usage, self.part)
            number = None if part is None else getattr(part, self.field)
            if number is not None:
                yield labels, number / 1_000_000 if in_seconds else number


_RESOURCE = (
    _Metric("counter", "cpu_usage_seconds_total", "cpu", "usage_us", "Cumulative cpu time consumed in core-seconds"),
    _Metric("gauge", "memory_working_set_bytes", "memory", "working_set_bytes", "Current working set in bytes"),
)
_CADVISOR_LABELS = ("container", "id", "image", "name", "namespace", "pod")
_CADVISOR = (
    _Metric("counter", "container_cpu_usage_seconds_total", "cpu", "usage_us", "Cumulative cpu time consumed"),
    _Metric("counter", "container_cpu_user_seconds_total", "cpu", "user_us", "Cumulative user cpu time consumed"),
    _Metric("counter", "container_cpu_system_seconds_total", "cpu", "system_us", "Cumulative system cpu time consumed"),
    _Metric("counter", "container_cpu_cfs_periods_total", "cpu", "periods", "Elapsed enforcement period intervals"),
    _Metric("counter", "container_cpu_cfs_throttled_periods_total", "cpu", "throttled_periods", "Throttled intervals"),
    _Metric("counter", "container_cpu_cfs_throttled_seconds_total", "cpu", "throttled_us", "Total time throttled"),
    _Metric("gauge", "container_memory_usage_bytes", "memory", "usage_bytes", "Current memory usage, page cache too"),
    _Metric("gauge", "container_memory_working_set_bytes", "memory", "working_set_bytes", "Current working set"),
    _Metric("gauge", "container_memory_rss", "memory", "anon_bytes", "Anonymous memory"),
    _Metric("gauge", "container_memory_cache", "memory", "file_bytes", "Page cache memory"),
    _Metric("gauge", "container_spec_memory_limit_bytes", "memory", "limit_bytes", "Memory limit"),
    _Metric("counter", "container_memory_failcnt", "events_local", "max", "Number of memory usage hits limits"),
    _Metric("gauge", "container_threads", "pids", "current", "Number of threads running inside"),
)
_FAULTS_TEXT = "Cumulative count of page faults"
_SCRAPE_ERROR_TEXT = "1 if there was an error while getting container metrics, 0 otherwise"
_FAULTS = (("page_faults", "pgfault"), ("major_page_faults", "pgmajfault"))
_CPU_SPEC = (
    ("shares", "container_spec_cpu_shares", "CPU share of the container"),
    ("quota_us", "container_spec_cpu_quota", "CPU quota of the container"),
    ("period_us", "container_spec_cpu_period", "CPU period of the container"),
)
_STARTED = ("container_start_time_seconds", "Start time of the container since unix epoch in seconds")


def resource_page(snapshot: StatsSnapshot) -> str:
    """The metrics that metrics-server reads."""
    at_ms, pods = int(snapshot.at_s * 1000), snapshot.pods
    of_container, of_pod = ("container", "namespace", "pod"), ("namespace", "pod")
    containers = [
        (label_text(of_container, _short_labels(pod, one)), one.measured) for pod in pods for one in pod.containers
    ]
    own = [
        (label_text(of_pod, (pod.place.namespace, pod.place.name)), pod.measured)
        for pod in pods
        if pod.measured is not None
    ]
    node = [("", snapshot.node.measured)]
    parts = [
        family(metric.kind, f"{level}_{metric.name}", metric.text, labels, metric.samples(rows), at_ms)
        for metric in _RESOURCE
        for level, labels, rows in (("container", of_container, containers), ("node", (), node), ("pod", of_pod, own))
    ]
    starts = [
        (_short_labels(pod, container), container.place.started_s)
        for pod in pods
        for container in pod.containers
        if container.place.started_s
    ]
    parts.append(family("gauge", *_STARTED, of_container, starts))
    parts.append(family("gauge", "scrape_error", _SCRAPE_ERROR_TEXT, (), [((), 0)]))
    return "".join(parts)


def _short_labels(pod: PodSample, container: ContainerSample) -> Labels:
    return container.place.name, pod.place.namespace, pod.place.name


NO_KILLS: Mapping[tuple[str, str, str], int] = {}
OOM_EVENTS = Family(
    "counter",
    "container_oom_events_total",
    "Processes of the container that the OOM killer killed, over all its instances; id and name are empty, so that the "
    "series survives a restart",
    _CADVISOR_LABELS,
)


def cadvisor_page(
    snapshot: StatsSnapshot, scraped: Mapping[str, CgroupUsage], kills: Mapping[tuple[str, str, str], int] = NO_KILLS
) -> Iterator[str]:
    """The node (`id="/"`), all pods together, each pod and each container; one text for each metric. `scraped`: by
    cgroup path. `kills`: by container, namespace and pod."""
    at_ms, cgroups = int(snapshot.at_s * 1000), list(_cgroups(snapshot))
    rows = [(label_text(_CADVISOR_LABELS, labels), measured) for labels, measured in cgroups]
    for one in _CADVISOR:
        yield family(one.kind, one.name, one.text, _CADVISOR_LABELS, one.samples(rows), at_ms)
    faults = (*_CADVISOR_LABELS, "failure_type", "scope")
    yield family("counter", "container_memory_failures_total", _FAULTS_TEXT, faults, _faults(rows), at_ms)
    starts = [(_long_labels(pod, one), one.place.started_s) for pod in snapshot.pods for one in pod.containers]
    yield family("gauge", *_STARTED, _CADVISOR_LABELS, starts, at_ms)
    yield OOM_EVENTS.written(_oom_events(snapshot, kills), at_ms)
    limited = [
        (text, limit)
        for (labels, _), (text, _) in zip(cgroups, rows, strict=True)
        if labels[4] and labels[1] in scraped and (limit := scraped[labels[1]].cpu_limit) is not None
    ]
    for field, name, help_text in _CPU_SPEC:
        samples = [(text, value) for text, limit in limited if (value := getattr(limit, field)) is not None]
        yield family("gauge", name, help_text, _CADVISOR_LABELS, samples, at_ms)


def cadvisor_families() -> list[Family]:
    """The metrics of the page, for the documentation."""
    faults = (*_CADVISOR_LABELS, "failure_type", "scope")
    return [
        *(Family(one.kind, one.name, one.text, _CADVISOR_LABELS) for one in _CADVISOR),
        Family("counter", "container_memory_failures_total", _FAULTS_TEXT, faults),
        Family("gauge", *_STARTED, _CADVISOR_LABELS),
        OOM_EVENTS,
        *(Family("gauge", name, text, _CADVISOR_LABELS) for _, name, text in _CPU_SPEC),
    ]


def resource_families() -> list[Family]:
    levels = (("container", ("container", "namespace", "pod")), ("node", ()), ("pod", ("namespace", "pod")))
    return [
        *(Family(one.kind, f"{level}_{one.name}", one.text, labels) for one in _RESOURCE for level, labels in levels),
        Family("gauge", *_STARTED, levels[0][1]),
        Family("gauge", "scrape_error", _SCRAPE_ERROR_TEXT, ()),
    ]


def _oom_events(snapshot: StatsSnapshot, kills: Mapping[tuple[str, str, str], int]) -> Iterable[Sample]:
    """Every container that runs, and those with kills that do not run at present."""
    counts = {key: 0 for pod in snapshot.pods for key in _oom_keys(pod)} | dict(kills)
    return [((container, "", "", "", namespace, pod), count) for (container, namespace, pod), count in counts.items()]


def _oom_keys(pod: PodSample) -> Iterable[tuple[str, str, str]]:
    return [(one.place.name, pod.place.namespace, pod.place.name) for one in pod.containers]


def _cgroups(snapshot: StatsSnapshot) -> Iterable[tuple[Labels, Measured]]:
    node = snapshot.node
    yield ("", "/", "", "", "", ""), node.measured
    if node.pods is not None:
        yield ("", node.place.pods_path, "", "", "", ""), node.pods
    for pod in snapshot.pods:
        if pod.measured is not None:
            yield ("", pod.place.cgroup, "", "", pod.place.namespace, pod.place.name), pod.measured
        for container in pod.containers:
            yield _long_labels(pod, container), container.measured


def _long_labels(pod: PodSample, container: ContainerSample) -> Labels:
    place = container.place
    return place.name, place.cgroup, place.image, place.id, pod.place.namespace, pod.place.name


def _faults(rows: Iterable[Row]) -> Iterable[TextSample]:
    for text, measured in rows:
        for field, kind in _FAULTS:
            number = getattr(measured.usage.memory, field, None)
            if number is not None:
                yield f'{text[:-1]},failure_type="{kind}",scope="hierarchy"}}', number
