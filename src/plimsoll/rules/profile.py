"""The differences between Kubernetes releases: one row each, with its value in every profile.

There is one profile per release, `1.27` to `1.37`, which is how the code of that release behaves, and `documents`:
Kubernetes 1.27 as the five documents describe it. If the 1.27 code differs from the documents, `notes` has a sentence,
which is printed with the value.

A rule asks for a row by name (`profile.resize_by_plain_patch`), never for a release. Defaults of feature gates and
kubelet settings are not rows; they are in `rules.config`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec

from plimsoll.errors import InvalidConfigError

DOCUMENTED = "documented; real "  # the start of notes that are printed even in brief output
FIRST_MINOR, LAST_MINOR = 27, 37
RELEASES = tuple(f"1.{minor}" for minor in range(FIRST_MINOR, LAST_MINOR + 1))
DOCUMENTS = "documents"
PROFILE_NAMES = (DOCUMENTS, *RELEASES)

Footprint = Literal["documents", "allocated", "actual", "containers", "pod"]
MemoryMin = Literal["no", "by class", "always"]
InitResizePolicy = Literal["refused", "stored", "allowed", "not restart"]
ResizeChecks = Literal["together", "in parts", "with pod level", "with init containers", "with volumes"]
EvictionGrace = Literal["own", "maximum", "least"]
StaticCpuResize = Literal["follows", "quota only", "infeasible"]

_T = TypeVar("_T")
_MADE: list[tuple[object, dict[str, object], str, str]] = []  # in the order of the fields


def _row(documents: _T, releases: dict[str, _T], clause: str, about: str) -> _T:
    """`releases`: the value from that release on. `about`: what the row is, and what its values mean."""
    _MADE.append((documents, dict(releases), clause, about))
    return documents


# fmt: off
class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One field per row; the value in `documents` is its default."""

    name: str
    release: str  # what /version and kubeletVersion tell
    notes: dict[str, str] = {}  # field → what is printed with its value

    # QoS class, pod-level resources, sums
    class_from_status: bool = _row(True, {"1.27": False, "1.29": True}, "01 §5",
        "the class in the pod's status is used, not computed again")
    client_class_kept: bool = _row(False, {"1.27": False, "1.29": True, "1.37": False}, "D-4",
        "a status.qosClass that a client sends with create is kept (not copied by Plimsoll)")
    class_per_container: bool = _row(False, {"1.27": False, "1.37": True}, "QC-3",
        "request and limit are compared in each container, not as sums; the same class for every valid pod")
    pod_level_hugepages: bool = _row(True, {"1.27": False, "1.33": True}, "E-2",
        "pod-level resources may name huge pages")
    pod_level_requests_complete: bool = _row(False, {"1.27": True, "1.34": False}, "01 §4.2",
        "a resource that containers request and pod level leaves out is an error")
    resize_footprint: Footprint = _row("documents", {
            "1.27": "allocated", "1.32": "actual", "1.33": "containers", "1.37": "pod"}, "05 A1",
        "what scheduler and quota count for a pod under resize: documents, the document's rule; allocated, max(spec, "
        "allocated); actual, max(spec, actual); containers, the sum of max(spec, allocated, actual) of each container; "
        "pod, the largest of the three sums")
    pod_level_status_counted: bool = _row(True, {"1.27": False, "1.35": True}, "E-11",
        "the pod-level resources in the status count as well")

    # OOM scores
    sidecar_oom_rule: bool = _row(False, {"1.27": False, "1.32": True}, "O-3",
        "a sidecar's score is at most that of the regular container with the smallest memory request")
    pod_level_oom_share: bool = _row(False, {"1.27": False, "1.32": True}, "O-3",
        "containers share what pod level requests beyond them")
    pod_level_oom_share_floored: bool = _row(False, {"1.27": False, "1.37": True}, "O-3",
        "the share is never negative")

    # Cgroup values
    memory_min_from_requests: MemoryMin = _row("by class", {"1.27": "always", "1.36": "no"}, "02 §6.2",
        "Memory QoS: memory.min is the request at every level, for Guaranteed and Burstable pods (by class) or for "
        "whatever requests memory (always); no: memoryReservationPolicy decides")
    memory_high_without_request: bool = _row(True, {"1.27": False, "1.37": True}, "02 §6.1",
        "a container with neither memory request nor limit has a memory.high")
    memory_high_of_pod: bool = _row(False, {"1.27": False, "1.37": True}, "02 §6.1",
        "pod-level resources: the pod has a memory.high, and containers without a limit have none")
    throttling_factor_needs_gate: bool = _row(False, {"1.27": False, "1.37": True}, "02 §6.1",
        "a memoryThrottlingFactor other than 0.9 is refused while the feature gate MemoryQoS is off")
    memory_high_reset: bool = _row(False, {"1.27": False, "1.37": True}, "02 §6.1",
        "Memory QoS off: memory.high of containers is written as max, and memory.min and low of kubepods as 0")
    memory_low_of_kubepods: bool = _row(False, {"1.27": False, "1.37": True}, "02 §6.2",
        "TieredReservation: kubepods has a memory.low too, and policy None writes its zeros only at start")
    memory_oom_group: bool = _row(False, {"1.27": False, "1.28": True}, "02 §5",
        "the kernel kills a whole container on v2, unless singleProcessOOMKill is set")
    swap_rule: Literal["memory and swap", "unlimited", "limited"] = _row("limited", {
            "1.27": "memory and swap", "1.28": "unlimited", "1.30": "limited"}, "02 §5",
        "memory and swap: LimitedSwap limits both together, UnlimitedSwap neither; unlimited: UnlimitedSwap and an "
        "empty swapBehavior give all swap, LimitedSwap a share; limited: an empty one is NoSwap, UnlimitedSwap is gone")
    critical_pods_swap: bool = _row(False, {"1.27": True, "1.31": False}, "02 §5",
        "critical pods may use swap")
    declared_limits_cumulative: bool = _row(True, {"1.27": True, "1.37": False}, "02 §4.4",
        "an init container after a sidecar with a limit counts as limited")
    pod_level_hugepages_inherited: bool = _row(True, {"1.27": False, "1.34": True}, "02 §7",
        "a container without a huge page limit gets that of the pod")
    container_weight: Literal["linear", "quadratic"] = _row("linear", {
            "1.27": "linear", "1.33": "quadratic", "1.34": "linear", "1.35": "quadratic"}, "02 §4.2",
        "how the cgroups library of the release converts shares to the weight of a container")
    reservation_error_says_reservation: bool = _row(True, {"1.27": False, "1.30": True}, "N-7",
        "`has a reservation of` against `has an allocatable of`, in the error of reservations beyond the capacity")
    enforcement_without_hierarchy: bool = _row(True, {"1.27": False, "1.31": True}, "01 §10.4",
        "without cgroupsPerQOS enforceNodeAllocatable may be [none], not only empty")
    compressible_enforcement: bool = _row(True, {"1.27": False, "1.32": True}, "01 §10.4",
        "enforceNodeAllocatable may be system-reserved-compressible or kube-reserved-compressible")
    driver_from_cri: bool = _row(False, {"1.27": False, "1.31": True}, "02 §2.2",
        "the container runtime names the cgroup driver")

    # Eviction and node
    ranking_counts_pod_level: bool = _row(True, {"1.27": False, "1.34": True}, "04 §5",
        "eviction order: pod-level requests count and hide those of containers, and sidecars add up; the message names "
        "the pod's request")
    eviction_names_init_containers: bool = _row(True, {"1.27": False, "1.32": True}, "04 §7",
        "the message of an eviction names init containers and sidecars that exceed their request too")
    eviction_grace: EvictionGrace = _row("least", {"1.27": "own", "1.31": "maximum", "1.32": "least"}, "04 §7",
        "grace period; least: 1 s if hard, if soft the lesser of evictionMaxPodGracePeriod and the pod's own; maximum: "
        "if soft, evictionMaxPodGracePeriod; own: so too, but the pod's own if hard or if that is 0")
    containerfs_signals: bool = _row(True, {"1.27": False, "1.29": True}, "04 §1",
        "thresholds may name containerfs.available and containerfs.inodesFree")
    sidecar_storage_limits: bool = _row(False, {"1.27": False, "1.37": True}, "04 §7",
        "ephemeral-storage limits of sidecars are enforced by eviction")
    reclaim_before_eviction: bool = _row(True, {"1.27": False}, "04 §6",
        "memory is reclaimed before a pod is evicted, unless evictionReclaimFirst says otherwise")
    memory_pressure_tolerated: bool = _row(True, {"1.27": False}, "04 §8",
        "only BestEffort pods are kept from a node under memory pressure")
    cgroup_v1_support: str = _row("", {
            "1.27": "", "1.31": "in maintenance mode", "1.35": "unsupported and will be removed in a future release"},
        "02 §3", "what the error of failCgroupV1 says about cgroup v1")
    cgroup_v1_warning: str = _row("", {
            "1.27": "",
            "1.31": "Cgroup v1 support is in maintenance mode, please migrate to Cgroup v2.",
            "1.32": "cgroup v1 support is in maintenance mode, please migrate to cgroup v2",
            "1.35": "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. "
            "Please migrate to cgroup v2. More information at "
            "https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"},
        "02 §3", "the event CgroupV1 of a node that starts on cgroup v1")
    node_grace_s: int = _row(40, {"1.27": 40, "1.32": 50}, "05 B9",
        "seconds after the last heartbeat until a node is unknown")

    # Resize: the API
    resize_by_plain_patch: bool = _row(True, {"1.27": True, "1.32": False}, "03 §4.3",
        "a patch of the pod itself may change resources")
    resize_subresource: bool = _row(True, {"1.27": False, "1.32": True}, "03 §4.1",
        "the API has /resize")
    resize_status_field: bool = _row(True, {"1.27": True, "1.33": False}, "03 §2",
        "status.resize is written")
    resize_conditions: bool = _row(True, {"1.27": False, "1.33": True}, "03 §2",
        "PodResizePending and PodResizeInProgress are written")
    allocated_status_needs_gate: bool = _row(False, {"1.27": False, "1.32": True, "1.33": False}, "03 §2",
        "allocatedResources are in the status only with the feature gate InPlacePodVerticalScalingAllocatedStatus")
    allocated_at_create: bool = _row(True, {"1.27": False}, "03 §5",
        "the API server writes allocatedResources at create")
    resize_policy_defaulted: bool = _row(True, {"1.27": True, "1.33": False}, "D-3",
        "resizePolicy is filled in at create, while the feature gate is on")
    qos_change_at_metadata: bool = _row(True, {"1.27": True, "1.32": False}, "03 §4.2",
        "a change of the QoS class is refused at `metadata` with the new class, not at `spec` with the old one")
    resize_may_remove: bool = _row(True, {"1.27": True, "1.32": False}, "01 §12",
        "a resize may remove a request or limit")
    resize_checks: ResizeChecks = _row("with init containers", {
            "1.27": "together", "1.33": "in parts", "1.35": "with pod level", "1.36": "with init containers",
            "1.37": "with volumes"}, "03 §4.2",
        "the order and the texts of the API's checks of a resize")
    init_resize_policy: InitResizePolicy = _row("not restart", {
            "1.27": "refused", "1.32": "stored", "1.33": "allowed", "1.36": "not restart"}, "03 §3.1",
        "resizePolicy of init containers: refused; only if a stored sidecar has one; allowed; all but RestartContainer "
        "of ordinary ones")
    memory_limit_may_shrink: bool = _row(True, {"1.27": True, "1.33": False, "1.34": True}, "03 §4.2",
        "a memory limit may be lowered or added without RestartContainer")
    claims_prevent_resize: bool = _row(True, {"1.27": False, "1.36": True, "1.37": False}, "03 §4.2",
        "a pod with node-allocatable resource claims cannot be resized")
    limit_range_on_resize: bool = _row(False, {"1.27": False, "1.32": True}, "01 §12",
        "LimitRange and quota are checked on /resize, quota no longer on every update")
    too_large_refused_by_api: bool = _row(False, {"1.27": False, "1.36": True}, "03 §4.2",
        "a resize beyond the node's allocatable is answered with 403")

    # Resize: the node
    too_large_is_infeasible: bool = _row(True, {"1.27": True, "1.36": False}, "03 §6",
        "the node answers Infeasible to a resize beyond its allocatable")
    too_large_for_absolute: bool = _row(True, {"1.27": False, "1.34": True}, "03 §6",
        "… beyond absolute allocatable, the limit of kubepods; no: beyond what the Node's status offers")
    too_large_as_ranked: bool = _row(False, {"1.27": True}, "03 §6",
        "… and the request is that of the eviction order, not the effective one (since 1.36: no such answer)")
    swap_prevents_resize: bool = _row(True, {"1.27": False, "1.33": True}, "03 §6",
        "the node answers Infeasible to another memory request of a container with LimitedSwap")
    too_large_reconsidered: bool = _row(True, {"1.27": False}, "03 §6",
        "… and evaluates it again when the node changes")
    exclusive_resize_any: bool = _row(False, {"1.27": False, "1.32": True, "1.34": False}, "07 §6",
        "static policies: every resize of a Guaranteed pod is infeasible, not only one of cpu or memory requests")
    static_memory_resize_checked: bool = _row(True, {"1.27": False, "1.33": True}, "07 §6",
        "memory manager policy Static: a resize of a Guaranteed pod's memory is infeasible")
    managers_asked_on_resize: bool = _row(True, {"1.27": True, "1.37": False}, "AD-3",
        "a resize passes through the resource managers once more, and is deferred if one of them refuses")
    smt_error_by_cause: bool = _row(True, {"1.27": False, "1.32": True}, "CM-16",
        "full-pcpus-only: the error names the lack of free CPUs even if none is free")
    smt_checked_again: bool = _row(False, {"1.27": True, "1.37": False}, "CM-16",
        "full-pcpus-only: after a restart a running pod is checked again, as if it had no CPUs yet")
    cpus_by_average: bool = _row(False, {"1.27": True}, "CM-2",
        "CPU manager: a core or socket with as many available CPUs as an average one has is taken as a whole, also the "
        "CPUs that another container owns or that are reserved")
    topology_options_in_capitals: bool = _row(False, {"1.27": True, "1.33": False}, "TM-2",
        "topology manager: the error about an option whose feature gate is off begins with capitals")
    damaged_cpu_file_as_v1: bool = _row(False, {"1.27": False, "1.36": True, "1.37": False}, "CM-28",
        "a damaged CPU manager state file is read once more in the oldest format, and that error is reported")
    empty_pool_refused: bool = _row(False, {"1.27": True}, "CM-28",
        "strict-cpu-reservation: a node whose pods own every other CPU does not start again")
    cpu_shortage_counted: bool = _row(True, {"1.27": False, "1.29": True}, "CM-14",
        "CPU manager: the error of too few CPUs says how many are requested and available")
    uncore_odd_counts: bool = _row(True, {"1.27": False, "1.34": True}, "CM-12",
        "prefer-align-cpus-by-uncorecache: also for a number of CPUs that is not a multiple of a core")
    distribution_by_socket: bool = _row(True, {"1.27": False, "1.37": True}, "CM-13",
        "distribute-cpus-across-numa: with align-by-socket, NUMA nodes of one socket win; a node gives what it has")
    memory_groups_checked: bool = _row(True, {"1.27": False, "1.32": True}, "MM-11",
        "memory manager: a hint over several NUMA nodes that breaks a group is refused")
    memory_wraps_around: bool = _row(False, {"1.27": True}, "MM-4",
        "memory manager: where huge pages and reserved memory exceed a NUMA node, it offers almost 16Ei")
    refused_pods_assigned: bool = _row(False, {"1.27": True}, "AD-2",
        "what a refused pod got before the refusal is assigned and released again, which can change memory groups and "
        "CPUs with two owners")
    device_hints_of_used_nodes: bool = _row(True, {"1.27": False, "1.36": True}, "DM-7",
        "device manager: only NUMA nodes with devices of the resource are part of hints")
    pod_level_unmanaged: bool = _row(True, {"1.27": False, "1.34": True}, "CM-10",
        "a pod with pod-level resources gets neither exclusive CPUs nor memory of chosen NUMA nodes")
    static_cpu_resize: StaticCpuResize = _row("follows", {"1.27": "quota only", "1.32": "infeasible"}, "02 §10",
        "a CPU resize under the static policy: the cpuset follows whole CPUs; only the quota changes; Infeasible")
    shares_after_limit_on_shrink: bool = _row(True, {"1.27": True, "1.32": False}, "02 §9",
        "the pod's limit is lowered before its shares")
    memory_qos_metrics: bool = _row(False, {"1.27": False, "1.36": True}, "02 §6.1",
        "metrics: the sums of memory.min and memory.low of the node, while MemoryQoS is on")
    terminated_containers_metric: bool = _row(False, {"1.27": False, "1.36": True}, "04 §7",
        "metrics: the ends of containers by type, exit code and reason")
    resize_metrics_by_priority: bool = _row(False, {"1.27": False, "1.37": True}, "03 §8",
        "metrics: pending resizes by priority, how long they are deferred, admissions by how resources are specified")
    memory_request_restarts: bool = _row(True, {"1.27": False, "1.33": True}, "03 §3.1",
        "another memory request restarts a container with RestartContainer for memory; no: only another limit does")
    sandbox_updated_first: bool = _row(False, {"1.27": False, "1.36": True}, "03 §10",
        "the runtime may refuse a pod's new size; otherwise it is only notified")

    # Scheduler
    balanced_by_difference: bool = _row(False, {"1.27": False, "1.36": True}, "05 A3",
        "BalancedAllocation compares the node with and without the pod")
    preemption_text: str = _row("", {"1.27": "", "1.34": "no new claims to deallocate, ", "1.37": ""}, "05 A4",
        "the text before `preemption:` in FailedScheduling")
    volume_conflict_text: str = _row("node(s) had volume node affinity conflict", {
            "1.27": "node(s) had volume node affinity conflict",
            "1.33": "node(s) didn't match PersistentVolume's node affinity"}, "05 A2",
        "why a node that the volume of a claim does not allow is left out")
    taint_text_names_taint: bool = _row(True, {"1.27": True, "1.34": False}, "05 A2",
        "`untolerated taint {key: value}` against `untolerated taint(s)`")
    scheduler_observed_generation: bool = _row(False, {"1.27": False, "1.34": True}, "05 A4",
        "the PodScheduled condition has observedGeneration")
    nominated_node_cleared: bool = _row(False, {"1.27": False, "1.35": True}, "05 B6",
        "binding removes status.nominatedNodeName")

    # Texts and fields of events, tables and pod status
    predicate_text_has_reason: bool = _row(False, {"1.27": False, "1.31": True}, "03 §6",
        "the node's message about a failed predicate ends with the scheduler's reason")
    invalid_variables_skipped: bool = _row(True, {"1.27": True, "1.32": False}, "06 E2",
        "keys of envFrom that are not C identifiers are skipped with an event")
    start_event_names_container: bool = _row(True, {"1.27": True, "1.35": False}, "06 E2",
        "`Created container c` against `Container created`")
    image_event_says_accessible: bool = _row(False, {"1.27": False, "1.33": True}, "06 E2",
        "`already present on machine` `and can be accessed by the pod`")
    pull_event_says_size: bool = _row(False, {"1.27": False, "1.30": True}, "06 E2",
        "`Image size: 2 bytes.`")
    pull_backoff_says_why: bool = _row(False, {"1.27": False, "1.32": True}, "06 E2",
        "the waiting message repeats the error of the last pull")
    probe_error_says_state: bool = _row(False, {"1.27": False, "1.33": True}, "06 E2",
        "`Liveness probe errored and resulted in unknown state: …`")
    init_started_reported: bool = _row(False, {"1.27": False, "1.28": True}, "06 E2",
        "`started` of ordinary init containers")
    ready_to_start_condition: bool = _row(False, {"1.27": False, "1.29": True}, "06 E2",
        "PodReadyToStartContainers")
    ready_to_start_reason: bool = _row(False, {"1.27": False, "1.37": True}, "06 E2",
        "PodReadyToStartContainers says why it is false")
    eviction_says_budget: bool = _row(False, {"1.27": False, "1.37": True}, "05 B6",
        "an eviction that is forbidden by the state of a disruption budget names the budget in a cause")
    pod_observed_generation: bool = _row(False, {"1.27": False, "1.34": True}, "06 E2",
        "observedGeneration of the status and its conditions")
    host_ips_reported: bool = _row(False, {"1.27": False, "1.29": True}, "06 E2",
        "`hostIPs` beside `hostIP`")
    volume_mounts_reported: bool = _row(False, {"1.27": False, "1.31": True}, "06 E2",
        "`volumeMounts` of container statuses")
    runtime_features_reported: bool = _row(False, {"1.27": False, "1.33": True}, "06 E2",
        "the Node shows what its container runtime supports, and container statuses show the user of the first process")
    environment_names_relaxed: bool = _row(True, {"1.27": False, "1.32": True}, "05 B6",
        "names of environment variables: any printable ASCII but `=`, or letters, digits, `_`, `-` and `.`")
    environment_files: bool = _row(True, {"1.27": False, "1.35": True}, "05 B6",
        "`fileKeyRef` is among the sources of environment variables that a message names")
    discovery_beta: bool = _row(False, {"1.27": True, "1.33": False}, "05 B3",
        "aggregated discovery is offered as v2beta1")
    discovery_stable: bool = _row(True, {"1.27": False, "1.30": True}, "05 B3",
        "aggregated discovery is offered as v2")
    version_emulated: bool = _row(False, {"1.27": False, "1.33": True}, "05 B3",
        "/version tells which release is emulated, and the oldest that is compatible")
    quota_of_volume_attributes: bool = _row(True, {"1.27": False, "1.33": True}, "05 B6",
        "a quota may have the scope VolumeAttributesClass")
    restart_policy_dropped: bool = _row(True, {"1.27": False, "1.34": True}, "05 B6",
        "gate ContainerRestartRules off: a restart policy of a container that is no sidecar is dropped, not refused")
    dns_searches_relaxed: bool = _row(True, {"1.27": False, "1.33": True}, "05 B6",
        "a DNS search domain may be `.` and may contain underscores")
    zero_sleep_allowed: bool = _row(True, {"1.27": False, "1.33": True}, "05 B6",
        "a lifecycle hook may sleep for 0 s")
    selinux_mount_option: bool = _row(True, {"1.27": True, "1.36": False, "1.37": True}, "05 B6",
        "`seLinuxChangePolicy` may be MountOption")
    stop_signal_reported: bool = _row(False, {"1.27": False, "1.33": True}, "06 E2",
        "container statuses show `stopSignal`, with the feature gate ContainerStopSignals")
    node_swap_reported: bool = _row(False, {"1.27": False, "1.33": True}, "05 B7",
        "`nodeInfo.swap` has the swap of the machine")
    user_namespace_reported: bool = _row(False, {"1.27": False, "1.37": True}, "05 B7",
        "`nodeInfo.runningInUserNamespace` with the feature gate KubeletInUserNamespace")
    pod_security_minor: int = _row(27, {
            "1.27": 27, "1.29": 29, "1.31": 31, "1.32": 32, "1.34": 34, "1.35": 35, "1.37": 37}, "05 B6",
        "the newest version of the Pod Security Standards that the API server knows, v1.N, which `latest` means")
    job_table_shows_status: bool = _row(True, {"1.27": False, "1.30": True}, "05 B7",
        "`kubectl get` shows the status of Jobs and the time zone of CronJobs")
    volume_table_shows_attributes: bool = _row(True, {"1.27": False, "1.29": True}, "05 B7",
        "`kubectl get` shows the VolumeAttributesClass of volumes and claims")
    priority_table_shows_preemption: bool = _row(True, {"1.27": False, "1.32": True}, "05 B7",
        "`kubectl get priorityclasses` shows the preemption policy")
    quota_table_ends_with_age: bool = _row(True, {"1.27": False, "1.33": True}, "05 B7",
        "`kubectl get resourcequotas` shows the age last, not after the name")
    node_table_shows_architecture: bool = _row(False, {"1.27": False, "1.36": True}, "05 B7",
        "`kubectl get nodes -o wide` shows the architecture after the kernel")
    terminating_replicas: bool = _row(False, {"1.27": False, "1.35": True}, "05 B6",
        "`terminatingReplicas` in the status of Deployments and ReplicaSets")
# fmt: on


PROFILE_DOCUMENTS = Profile(
    name=DOCUMENTS,
    release="1.27",
    notes={
        "memory_high_without_request": "documented; real 1.27 did not: it leaves memory.high unset when the request "
        "equals the limit, and absent equals absent",
        "allocated_at_create": "documented; real 1.27 did not: the kubelet writes allocatedResources with "
        "its first report",
        "memory_pressure_tolerated": "documented; real 1.27 did so only with the admission plugin "
        "PodTolerationRestriction",
        "static_cpu_resize": "documented; real 1.27 did not: it changed the quota and left the cpuset",
        "swap_rule": "LimitedSwap is shown as since 1.30; real 1.27 limited memory and swap together",
    },
)
DEFAULT_PROFILE = PROFILE_DOCUMENTS
_FIELDS = Profile.__struct_fields__[3:]


def profile_named(name: str) -> Profile:
    if name not in PROFILE_NAMES:
        raise InvalidConfigError("profile", f"unknown profile {name!r}; known: {', '.join(PROFILE_NAMES)}")
    return _profile(name)


@cache
def _profile(name: str) -> Profile:
    if name == DOCUMENTS:
        return PROFILE_DOCUMENTS
    values: Any = {field: value_in(made[1], name)[0] for field, made in zip(_FIELDS, _MADE, strict=True)}
    return Profile(name=name, release=name, **values)


def value_in(releases: dict[str, object], release: str) -> tuple[object, str]:
    """The value in that release, and the release that it came with."""
    since = max((each for each in releases if minor(each) <= minor(release)), key=minor)
    return releases[since], since


class ChosenProfile(msgspec.Struct, frozen=True):
    """The profile of an answer, and why it is this one."""

    profile: Profile
    reason: str

    def __str__(self) -> str:
        return f"profile {self.profile.name}: {self.reason}"


UNKNOWN_VERSION = ChosenProfile(PROFILE_DOCUMENTS, "no Kubernetes version is known; --node or --profile tells one")
_VERSION = r"v?1\.(\d+)"
OWN_BUILD = "+plimsoll."  # in the version of Plimsoll's own servers and nodes
AS_RELEASED = ".release"  # at its end: profile `1.27`, not `documents`


def profile_of(version: str, source: str) -> ChosenProfile:
    """The profile of what `source` runs: `v1.34.2` of `kubeletVersion of node n1`.

    A release beyond the table has the nearest profile. Plimsoll's own 1.27 is `documents`, unless it says otherwise.
    """
    found = re.match(_VERSION, version)
    if found is None:
        return UNKNOWN_VERSION
    number = int(found[1])
    if number == FIRST_MINOR and OWN_BUILD in version and not version.endswith(AS_RELEASED):
        return ChosenProfile(PROFILE_DOCUMENTS, source)
    if FIRST_MINOR <= number <= LAST_MINOR:
        return ChosenProfile(_profile(f"1.{number}"), source)
    newer = number > LAST_MINOR
    nearest = RELEASES[-1 if newer else 0]
    beyond = f"newer than {nearest}, the newest" if newer else f"older than {nearest}, the oldest"
    return ChosenProfile(_profile(nearest), f"{source} is {version}, {beyond} release with a profile")


def minor(release: str) -> int:
    """`1.34` → 34."""
    return int(release.partition(".")[2])


class Row(msgspec.Struct, frozen=True):
    """A row of the table, for documentation: the value from each release on."""

    name: str
    clause: str
    about: str
    documents: object
    releases: dict[str, object]


def rows() -> list[Row]:
    return [
        Row(field, clause, about, documents, releases)
        for field, (documents, releases, clause, about) in zip(_FIELDS, _MADE, strict=True)
    ]
