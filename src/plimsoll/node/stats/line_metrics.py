"""The memory lines of the node's cgroups as metrics: declared and effective, and the time until one is reached.

On the same page as cAdvisor's metrics, from the same snapshot. The kernel's files are read for each scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from plimsoll.cgroups.stats.usage import CgroupUsage, Pressures
from plimsoll.codec.kernel.files import PressureStall
from plimsoll.metrics.exposition import Family, Labels, Sample, TextSample, label_text
from plimsoll.node.stats.stats import StatsSnapshot
from plimsoll.rules.explain.effective_lines import Lines, Slope, effective_lines, seconds_to
from plimsoll.rules.model.objects import QoSClass

LINE_BYTES = Family(
    "gauge",
    "plimsoll_line_bytes",
    "Memory lines of cgroups: min, low, high, max; kind is declared (the kernel's file) or effective (what holds when "
    "ancestors and siblings count). A line that is not set has no sample",
    ("container", "kind", "level", "line", "namespace", "pod", "qos_class"),
)
TIME_TO_LINE = Family(
    "gauge",
    "plimsoll_time_to_line_seconds",
    "Seconds until the working set reaches the next line at its present slope; no sample while it does not grow",
    ("container", "level", "line", "namespace", "pod"),
)
THRESHOLD_DISTANCE = Family(
    "gauge",
    "plimsoll_threshold_distance_bytes",
    "Bytes that can still be used before an eviction threshold is met; negative while it is met",
    ("kind", "signal"),
)
_PRESSURE_LABELS = ("container", "id", "image", "name", "namespace", "pod")
PRESSURE = tuple(
    (resource, share, Family("counter", f"container_pressure_{resource}_{word}_seconds_total", text, _PRESSURE_LABELS))
    for resource in ("cpu", "memory", "io")
    for share, word, text in (
        ("some", "waiting", f"Total time duration tasks in the container have waited due to {resource} congestion"),
        ("full", "stalled", f"Total time duration no tasks in the container could make progress due to {resource}"),
    )
)
FAMILIES = (LINE_BYTES, TIME_TO_LINE, THRESHOLD_DISTANCE, *(each for _, _, each in PRESSURE))
MEMORY_AVAILABLE = "memory.available"


class Place(NamedTuple):
    """One cgroup, as the labels name it."""

    path: str
    level: str
    container: str = ""
    namespace: str = ""
    pod: str = ""
    qos_class: str = ""
    image: str = ""
    id: str = ""


def places(snapshot: StatsSnapshot, class_paths: Iterable[str]) -> Iterator[Place]:
    pods_path = snapshot.node.place.pods_path
    classes = {path: _class_of(path) for path in class_paths}
    yield Place(pods_path, "node")
    for path, qos in classes.items():
        yield Place(path, "class", qos_class=qos)
    for pod in snapshot.pods:
        place = pod.place
        qos = classes.get(place.cgroup.rpartition("/")[0], "Guaranteed")
        yield Place(place.cgroup, "pod", "", place.namespace, place.name, qos)
        for each in pod.containers:
            one = each.place
            yield Place(one.cgroup, "container", one.name, place.namespace, place.name, qos, one.image, one.id)


def _class_of(path: str) -> QoSClass:
    return "BestEffort" if "besteffort" in path.rpartition("/")[2] else "Burstable"


class LineMetrics:
    """Keeps the slopes between scrapes."""

    def __init__(self) -> None:
        self._slopes: dict[str, Slope] = {}

    def page(
        self,
        snapshot: StatsSnapshot,
        scraped: Mapping[str, CgroupUsage],
        class_paths: Iterable[str],
        distances: Iterable[tuple[str, str, int, int]] = (),
    ) -> Iterator[str]:
        """One text for each metric. `distances`: of eviction thresholds: signal, kind, distance, threshold in bytes."""
        at_ms = int(snapshot.at_s * 1000)
        known = [place for place in places(snapshot, class_paths) if place.path in scraped]
        declared = {place.path: _lines(scraped[place.path]) for place in known}
        holding = effective_lines(declared)
        stalled = [
            (label_text(_PRESSURE_LABELS, _cadvisor_labels(place)), pressure)
            for place in known
            if place.level != "class" and (pressure := scraped[place.path].pressure) is not None
        ]
        distances = list(distances)
        times = [*self._times(snapshot, known, scraped, holding), *self._node_time(snapshot, distances)]
        yield LINE_BYTES.written(_line_samples(known, declared, holding), at_ms)
        yield TIME_TO_LINE.written(times, at_ms)
        yield THRESHOLD_DISTANCE.written([((kind, signal), away) for signal, kind, away, _ in distances], at_ms)
        for what, share, each in PRESSURE:
            yield each.written(_stalls(stalled, what, share), at_ms)

    def _times(
        self,
        snapshot: StatsSnapshot,
        known: Iterable[Place],
        scraped: Mapping[str, CgroupUsage],
        holding: Mapping[str, Lines],
    ) -> Iterator[Sample]:
        slopes: dict[str, Slope] = {}
        for place in known:
            memory, lines = scraped[place.path].memory, holding[place.path]
            used = None if memory is None else memory.working_set_bytes
            if used is None:
                continue
            slope = self._read(slopes, place.path, snapshot.at_s, used)
            ahead = [(amount, name) for name, amount in lines.named() if name in ("high", "max") and amount > used]
            if slope is None or not ahead:
                continue
            amount, name = min(ahead)
            seconds = seconds_to(amount, used, slope)
            if seconds is not None:
                yield (place.container, place.level, name, place.namespace, place.pod), round(seconds, 3)
        slopes.update({path: slope for path, slope in self._slopes.items() if path == MEMORY_AVAILABLE})
        self._slopes = slopes

    def _node_time(self, snapshot: StatsSnapshot, distances: Iterable[tuple[str, str, int, int]]) -> Iterator[Sample]:
        """Until the hard threshold of memory.available is met."""
        for signal, kind, away, _ in distances:
            if (signal, kind) != (MEMORY_AVAILABLE, "hard"):
                continue
            fall = self._read(self._slopes, MEMORY_AVAILABLE, snapshot.at_s, -away)
            seconds = None if fall is None else seconds_to(0, -away, fall)
            if seconds is not None:
                yield ("", "node", "eviction", "", ""), round(seconds, 3)

    def _read(self, into: dict[str, Slope], key: str, at_s: float, amount: int) -> float | None:
        before = self._slopes.get(key)
        if before is None:
            into[key] = Slope(at_s, amount, at_s, amount)
            return None
        into[key], slope = before.read(at_s, amount)
        return slope


def _lines(usage: CgroupUsage) -> Lines:
    limit = usage.memory.limit_bytes if usage.memory is not None else None
    lines = usage.lines
    if lines is None:
        return Lines(max_bytes=limit)
    return Lines(lines.min_bytes, lines.low_bytes, lines.high_bytes, limit)


def _line_samples(
    known: Iterable[Place], declared: Mapping[str, Lines], holding: Mapping[str, Lines]
) -> Iterator[Sample]:
    for place in known:
        rest = (place.namespace, place.pod, place.qos_class)
        effective = holding[place.path]
        for line, amount in declared[place.path].named():
            yield (place.container, "declared", place.level, line, *rest), amount
            if line in ("min", "low"):  # also where nothing is left of it
                yield (place.container, "effective", place.level, line, *rest), getattr(effective, f"{line}_bytes")
        for line, amount in effective.named():
            if line in ("high", "max"):
                yield (place.container, "effective", place.level, line, *rest), amount


def _stalls(stalled: Iterable[tuple[str, Pressures]], resource: str, share: str) -> Iterator[TextSample]:
    for labels, pressure in stalled:
        stall: PressureStall | None = getattr(pressure, resource)
        part = None if stall is None else getattr(stall, share)
        if part is not None:
            yield labels, part.total_us / 1_000_000


def _cadvisor_labels(place: Place) -> Labels:
    return place.container, place.path, place.image, place.id, place.namespace, place.pod
