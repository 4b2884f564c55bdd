"""What to do about each change of an upgrade, and what newer kubelets no longer have: metrics, flags.

Sources: the release notes of Kubernetes, by pull request.
"""

from __future__ import annotations

import msgspec

# By the row of the profile, the feature gate, the setting or the option; "" for the others.
ADVICE = {
    "": "compare the old and the new value, and change requests or limits where the new one is not wanted",
    "MemoryQoS": "nothing, if only zeros are written: the kernel's own defaults; set memoryReservationPolicy and "
    "memoryThrottlingFactor to use it, or turn the gate off; what others write to memory.min and memory.low is lost",
    "PodLevelResourcesFixDefaulting": "write spec.resources of these pods in full, with requests and limits of every "
    "resource: then no release fills in anything",
    "PodLevelResourcesFixKubeletQOSClass": "remove the empty spec.resources from the manifest: then both releases "
    "compute the same class",
    "HugepageAwareEviction": "check evictionHard[memory.available] of nodes with huge pages: it is met earlier",
    "InPlacePodVerticalScaling": "nothing; pods can be resized in place from now on",
    "InPlacePodLevelResourcesVerticalScaling": "nothing; pod-level resources can be resized from now on",
    "PodLevelResources": "check pods with spec.resources: it counts from now on",
    "NodeSwap": "check nodes with swap: memorySwap.swapBehavior decides who may use it; failSwapOn keeps it off",
    "SidecarContainers": "check init containers with restartPolicy Always: they run beside the others from now on",
    "CustomCPUCFSQuotaPeriod": "nothing; cpuCFSQuotaPeriod may differ from 100ms from now on",
    "memoryThrottlingFactor": "set it where throttling is wanted: without it no memory.high is written",
    "memoryReservationPolicy": "set TieredReservation if requests should protect memory",
    "evictionHard": "set evictionHard in full to keep the old thresholds",
    "memory_min_from_requests": "set memoryReservationPolicy: TieredReservation to protect requested memory",
    "memory_high_without_request": "give these containers a memory request and limit if they should not be throttled",
    "memory_high_of_pod": "check pods with spec.resources: the pod has one memory.high for all containers",
    "memory_high_reset": "nothing; max is the kernel's own default, and clears what an earlier kubelet left",
    "memory_low_of_kubepods": "nothing; only with it does TieredReservation protect Burstable pods",
    "memory_oom_group": "set singleProcessOOMKill (since 1.32) for workloads that survive the kill of one process",
    "declared_limits_cumulative": "give every init container and sidecar a limit: else the pod's cgroup has none",
    "container_weight": "look at processes beside the containers: the weights keep their order, not their distances",
    "DisableCPUQuotaWithExclusiveCPUs": "nothing; containers with exclusive CPUs are no longer throttled",
    "sidecar_oom_rule": "nothing; sidecars are killed after, not before, the containers they serve",
    "pod_level_oom_share": "nothing; the pod-level request counts for the score",
    "pod_level_oom_share_floored": "make the pod-level memory request at least the sum of the containers'",
    "sidecar_storage_limits": "check the ephemeral-storage limit of the sidecar: exceeding it evicts the pod",
    "ranking_counts_pod_level": "check pods with spec.resources or sidecars: another request counts for them",
    "resize_footprint": "nothing; only pods under resize are counted otherwise",
    "swap_rule": "set memorySwap.swapBehavior explicitly: LimitedSwap or NoSwap",
    "critical_pods_swap": "nothing; critical pods no longer use swap",
    "memory_limit_may_shrink": "check automation that lowers memory limits in place",
    "static_cpu_resize": "recreate Guaranteed pods with whole CPUs where they need another size",
    "cgroup_version": "update agents and language runtimes that read cgroup v1 files",
    "driver": "drain the node, change kubelet and runtime together, and reboot: old cgroups stay otherwise",
    "weight": "look at processes beside the containers: the weights keep their order, not their distances",
    "runtime": "look for tools that parse names of container cgroups",
}


class Removed(msgspec.Struct, frozen=True):
    release: str  # the first without it
    instead: str
    source: str


_CADVISOR = Removed("1.37", "remove it: the kubelet does not start with an unknown flag", "kubernetes#139870")
REMOVED_FLAGS = {
    "--keep-terminated-pod-volumes": Removed("1.31", "remove it; it had no effect", "kubernetes#122082"),
    "--pod-infra-container-image": Removed(
        "1.35",
        "remove it; the sandbox image is configured in the container runtime",
        "kubernetes#133779",
    ),
    **dict.fromkeys(
        (
            "--application-metrics-count-limit",
            "--boot-id-file",
            "--container-hints",
            "--containerd",
            "--containerd-namespace",
            "--enable-load-reader",
            "--event-storage-age-limit",
            "--event-storage-event-limit",
            "--global-housekeeping-interval",
            "--log-cadvisor-usage",
            "--machine-id-file",
            "--storage-driver-buffer-duration",
            "--storage-driver-db",
            "--storage-driver-host",
            "--storage-driver-password",
            "--storage-driver-secure",
            "--storage-driver-table",
            "--storage-driver-user",
        ),
        _CADVISOR,
    ),
}

_LOAD = Removed("1.37", "use container_pressure_cpu_waiting_seconds_total; it was always 0", "kubernetes#139870")
REMOVED_METRICS = {
    "container_cpu_load_average_10s": _LOAD,
    "container_cpu_load_d_average_10s": _LOAD,
    "container_tasks_state": _LOAD,
    "container_application_*": Removed("1.37", "let Prometheus scrape the application itself", "kubernetes#139870"),
    "kubelet_credential_provider_plugin_errors": Removed(
        "1.35", "use kubelet_credential_provider_plugin_errors_total", "test/instrumentation"
    ),
    "kubelet_volume_stats_health_status_abnormal": Removed(
        "1.37", "watch the events of the pod", "pkg/kubelet/metrics"
    ),
    "resource_manager_allocations_total": Removed(
        "1.37", "use kubelet_resource_manager_allocations_total", "pkg/kubelet/metrics"
    ),
    "resource_manager_allocation_errors_total": Removed(
        "1.37", "use kubelet_resource_manager_allocation_errors_total", "pkg/kubelet/metrics"
    ),
    "resource_manager_container_assignments": Removed(
        "1.37", "use kubelet_resource_manager_container_assignments_total", "pkg/kubelet/metrics"
    ),
}
