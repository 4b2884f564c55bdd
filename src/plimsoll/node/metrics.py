"""The agent's own metrics, with the kubelet's names, and its pages /metrics and /metrics/probes."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from plimsoll.metrics.exposition import Computed, Counter, Gauge, Histogram, Registry
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.runtime.interface import ObservedContainer, ObservedSandbox

RESIZE_BUCKETS_MS = (10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000)
START_BUCKETS_S = (
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600),
)
DEFERRED_BUCKETS_S = (5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600)
DECISION_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)
DRIFT_LEVELS = ("node", "class", "pod", "container")
AGE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class PodsApiMeters:
    """Requests to the Pods API, and events that a slow watcher lost."""

    def __init__(self) -> None:
        def requests(name: str, what: str) -> Counter:
            text = f"{what}. Broken down by server api version and status code."
            return Counter(f"kubelet_pod_requests_{name}", text, ("server_api_version", "status_code"))

        self.dropped = Counter(
            "kubelet_pod_watch_events_dropped_total", "Cumulative number of pod watch events dropped."
        )
        self.total = requests("total", "Cumulative number of requests to the PodsAPI endpoint")
        self.lists = requests("list_total", "Number of requests to the PodsAPI List endpoint")
        self.gets = requests("get_total", "Number of requests to the PodsAPI Get endpoint")
        self.watches = requests("watch_total", "Number of requests to the PodsAPI Watch endpoint")

    def count(self, method: Counter, version: str, code: str) -> None:
        self.total.add(version, code)
        method.add(version, code)

    def all(self) -> tuple[Counter, ...]:
        return self.dropped, self.total, self.lists, self.gets, self.watches


class IoMeters:
    """Block I/O of pods; `node.stats.io_metrics` sets them."""

    def __init__(self) -> None:
        pod = ("namespace", "pod")
        self.limit = Gauge(
            "plimsoll_pod_io_limit",
            "The pod's limits of block I/O per second and its latency target in microseconds, as the kernel has them",
            (*pod, "device", "limit"),
        )
        self.weight = Gauge("plimsoll_pod_io_weight", "The weight of the pod's block I/O among its siblings", pod)
        operation = (*pod, "device", "operation")
        self.bytes = Counter("plimsoll_pod_io_bytes_total", "Bytes that the pod has read and written", operation)
        self.operations = Counter("plimsoll_pod_io_operations_total", "Reads and writes of the pod", operation)

    def all(self) -> tuple[Gauge | Counter, ...]:
        return self.limit, self.weight, self.bytes, self.operations


class NodeMeters:
    """Counters are incremented by the code that acts. Resizes as in 03 §8, evictions as in 04 §4."""

    def __init__(
        self, node_name: str, profile: Profile = DEFAULT_PROFILE, *, memory_qos: bool = False, io: bool = False
    ) -> None:
        """`memory_qos`, `io`: whether the node has these metrics."""
        self.registry, self.probe_registry = Registry(), Registry()
        self.oom_totals: Callable[[], Mapping[str, int]] = dict
        self.running_pods = Gauge("kubelet_running_pods", "Number of pods that have a running pod sandbox")
        self.running_containers = Gauge(
            "kubelet_running_containers", "Number of currently running containers", ("container_state",)
        )
        self.pod_start_s = Histogram(
            "kubelet_pod_start_duration_seconds",
            "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
            buckets=START_BUCKETS_S,
        )
        self.started_pods = Counter("kubelet_started_pods_total", "Cumulative number of pods started")
        self.started_user_namespaces = Counter(
            "kubelet_started_user_namespaced_pods_total", "Cumulative number of pods with user namespaces started."
        )
        self.started_user_namespaces_errors = Counter(
            "kubelet_started_user_namespaced_pods_errors_total",
            "Cumulative number of errors when starting pods with user namespaces.",
        )
        self.started_pods_errors = Counter(
            "kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods"
        )
        self.started_containers = Counter(
            "kubelet_started_containers_total", "Cumulative number of containers started", ("container_type",)
        )
        self.start_errors = Counter(
            "kubelet_started_containers_errors_total",
            "Cumulative number of errors when starting containers",
            ("container_type", "code"),
        )
        self.ended_containers = Counter(
            "kubelet_terminated_containers_total",
            "Cumulative number of container terminations.",
            ("container_type", "exit_code", "reason"),
        )
        self.refusals = Counter(
            "kubelet_admission_rejections_total", "Cumulative number pod admission rejections", ("reason",)
        )
        self.evictions = Counter(
            "kubelet_evictions", "Cumulative number of pod evictions by eviction signal", ("eviction_signal",)
        )
        self.eviction_stats_age_s = Histogram(
            "kubelet_eviction_stats_age_seconds",
            "Time between when stats are collected, and when pod is evicted based on those stats",
            ("eviction_signal",),
            AGE_BUCKETS_S,
        )
        self.preemptions = Counter(
            "kubelet_preemptions", "Cumulative number of pod preemptions by preemption resource", ("preemption_signal",)
        )
        self.requested_resizes = Counter(
            "kubelet_container_requested_resizes_total",
            "Number of requested resizes, counted at the container level",
            ("resource", "requirement", "operation"),
        )
        self.resize_ms = Histogram(
            "kubelet_pod_resize_duration_milliseconds",
            "Duration in milliseconds to actuate a pod resize",
            ("success",),
            RESIZE_BUCKETS_MS,
        )
        self.by_priority = profile.resize_metrics_by_priority
        self.pending_resizes = Gauge(
            "kubelet_pod_pending_resizes",
            "Number of pending resizes for pods",
            ("reason", "priority_bucket") if self.by_priority else ("reason",),
        )
        self.deferred_resize_s = Histogram(
            "kubelet_pod_deferred_resize_duration_seconds",
            "Duration in seconds that a pod resize remains deferred before completion",
            ("resolution", "priority_bucket"),
            DEFERRED_BUCKETS_S,
        )
        self.admissions = Counter(
            "kubelet_pod_level_resources_admission_total",
            "Total number of pods admitted during Kubelet admission, categorized by resource configuration mode and "
            "QoS class",
            ("config_mode", "qos_class"),
        )
        self.infeasible_resizes = Counter(
            "kubelet_pod_infeasible_resizes_total", "Number of infeasible resizes for pods", ("reason_detail",)
        )
        self.resizes_in_progress = Gauge("kubelet_pod_in_progress_resizes", "Number of in-progress resizes for pods")
        self.deferred_resizes_accepted = Counter(
            "kubelet_pod_deferred_accepted_resizes_total",
            "Cumulative number of resizes that were accepted after being deferred",
            ("retry_trigger",),
        )
        self.cgroup_repairs = Counter(
            "plimsoll_cgroup_repairs_total",
            "Values that another process had changed in cgroups of the node and its pods, repaired or refused",
            ("level", "file", "result"),
        )
        self.drift = Gauge(
            "plimsoll_drift",
            "Values of cgroups that differ from what the rules desire and that the kernel does not let the node repair",
            ("level",),
        )
        self.decision_s = Histogram(
            "plimsoll_decision_duration_seconds",
            "Duration of decisions in seconds: admission of a pod, verdict on a resize, assessment of eviction",
            ("decision",),
            DECISION_BUCKETS_S,
        )
        self.memory_qos = (
            Gauge("kubelet_memory_qos_node_memory_min_bytes", "Total cgroup v2 memory.min in bytes of Guaranteed pods"),
            Gauge("kubelet_memory_qos_node_memory_low_bytes", "Total cgroup v2 memory.low in bytes of Burstable pods"),
        )
        self.io = IoMeters()
        self._refused: dict[tuple[str, str], tuple[str, float]] = {}  # path and file → level, when it was refused
        self.probes = Counter(
            "prober_probe_total",
            "Cumulative number of a liveness, readiness or startup probe for a container by result",
            ("probe_type", "result", "container", "pod", "namespace", "pod_uid"),
        )
        name = Gauge("kubelet_node_name", "The node's name. The count is always 1", ("node",))
        name.set(1, node_name)
        self.registry.add(
            name, self.running_pods, self.running_containers, self.pod_start_s,
            self.started_pods, self.started_pods_errors, self.started_user_namespaces,
            self.started_user_namespaces_errors, self.started_containers, self.start_errors,
            *((self.ended_containers,) if profile.terminated_containers_metric else ()), self.refusals,
            self.evictions, self.eviction_stats_age_s,
            self.preemptions, self.requested_resizes, self.resize_ms,
            self.pending_resizes, self.infeasible_resizes, self.resizes_in_progress, self.deferred_resizes_accepted,
            self.cgroup_repairs, self.drift, self.decision_s,
            *(self.memory_qos if memory_qos and profile.memory_qos_metrics else ()),
            *(self.io.all() if io else ()),
            *((self.deferred_resize_s, self.admissions) if self.by_priority else ()),
            Computed(
                "counter",
                "plimsoll_oom_kills_total",
                "Processes of pods that the OOM killer killed, by the scope of the limit that was exceeded: container, "
                "pod, class, node, system",
                ("scope",),
                self._oom_rows,
            ),
            *_process_metrics(),
        )  # fmt: skip
        self.probe_registry.add(self.probes)

    def see(self, sandboxes: Iterable[ObservedSandbox], containers: Iterable[ObservedContainer]) -> None:
        """Set the gauges from what the runtime has, when the page is requested."""
        self.running_pods.set(len({each.pod_uid for each in sandboxes if each.ready}))
        counts = Counts(each.phase for each in containers)
        for phase in ("created", "running", "exited", "unknown"):
            self.running_containers.set(counts[phase], phase)

    def evicted(self, signal: str, stats_age_s: float) -> None:
        """A pod was evicted for this signal, on statistics of that age."""
        self.evictions.add(signal)
        self.eviction_stats_age_s.observe(stats_age_s, signal)

    def see_repair(self, level: str, path: str, file: str, *, refused: bool, at_s: float) -> None:
        """A value that another process has changed: repaired, or refused by the kernel and tried again later."""
        self.cgroup_repairs.add(level, file, "refused" if refused else "repaired")
        if refused:
            self._refused[path, file] = (level, at_s)
        else:
            self._refused.pop((path, file), None)

    def see_drift(self, since_s: float) -> None:
        """Set the gauge from what was refused since then: a value that is right again is not reported any more."""
        self._refused = {key: value for key, value in self._refused.items() if value[1] >= since_s}
        counts = Counts(level for level, _ in self._refused.values())
        for level in DRIFT_LEVELS:
            self.drift.set(counts[level], level)

    def see_memory_qos(self, guaranteed_bytes: int, burstable_bytes: int) -> None:
        for gauge, amount in zip(self.memory_qos, (guaranteed_bytes, burstable_bytes), strict=True):
            gauge.set(amount)

    @contextmanager
    def deciding(self, decision: str) -> Iterator[None]:
        """Measure a decision, also one that fails."""
        start_s = time.perf_counter()
        try:
            yield
        finally:
            self.decision_s.observe(time.perf_counter() - start_s, decision)

    def _oom_rows(self) -> list[tuple[tuple[str, ...], float]]:
        return [((level,), float(count)) for level, count in sorted(self.oom_totals().items())]

    def see_resizes(self, pending: Mapping[tuple[str, ...], int], in_progress: int) -> None:
        """Set the gauges of resizes, when the page is requested."""
        self.pending_resizes.values.clear()
        for labels, count in pending.items():
            self.pending_resizes.set(count, *labels)
        self.resizes_in_progress.set(in_progress)

    def resize_took(self, seconds: float, *, success: bool) -> None:
        self.resize_ms.observe(seconds * 1000, "true" if success else "false")

    def probed(self, kind: str, result: str, container: str, pod: str, namespace: str, uid: str) -> None:
        """`kind`: Liveness, Readiness, Startup; `result`: successful, failed, unknown."""
        self.probes.add(kind, result, container, pod, namespace, uid)

    def forget_pod(self, uid: str) -> None:
        for labels in [labels for labels in self.probes.values if labels[-1] == uid]:
            del self.probes.values[labels]

    def page(self) -> str:
        return self.registry.text()

    def probes_page(self) -> str:
        return self.probe_registry.text()


def _process_metrics() -> Iterable[Computed]:
    def single(kind: str, name: str, text: str, read: Callable[[], float]) -> Computed:
        return Computed(kind, name, text, (), lambda: [((), read())])

    yield single("counter", "process_cpu_seconds_total", "Total user and system CPU time spent in seconds", _cpu_s)
    yield single("gauge", "process_resident_memory_bytes", "Resident memory size in bytes", _resident_bytes)
    yield single(
        "gauge", "process_open_fds", "Number of open file descriptors", lambda: len(os.listdir("/proc/self/fd"))
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
