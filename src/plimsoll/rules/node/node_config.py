"""One node: a machine, a kubelet configuration and a profile, resolved into figures.

`resolved` does what a kubelet does at start: subtract reservations, parse and check thresholds, and apply the version
differences. `NodeConfig` is complete; nothing is read again later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.config.kubelet import KubeletConfig, host_errors, on_host
from plimsoll.rules.config.thresholds import Threshold, eviction_reservation, parsed_thresholds
from plimsoll.rules.model.cgroup_names import CgroupName, Driver, Runtime, root_name
from plimsoll.rules.model.gates import resolved_gates
from plimsoll.rules.model.kernel import CgroupVersion, Weight
from plimsoll.rules.model.objects import CPU, EPHEMERAL_STORAGE, HUGEPAGES_PREFIX, MEMORY, PODS, ResourceList
from plimsoll.rules.node.allocatable import (
    Reserved,
    absolute_allocatable,
    machine_capacity,
    node_allocatable,
    reservation_errors,
)
from plimsoll.rules.profile import MemoryMin, Profile
from plimsoll.rules.quantity import MAX_INT64, ZERO
from plimsoll.rules.resources.node_policy import NodePolicy, Reservation
from plimsoll.rules.resources.values import page_size_bytes, page_size_of

if TYPE_CHECKING:
    from plimsoll.rules.blockio.policy import IoPolicy

SWAP = "swap"  # not a Kubernetes resource: the machine's swap in `--capacity`


class Machine(msgspec.Struct, frozen=True):
    """The machine before reservations. `others`: huge pages, ephemeral storage, devices."""

    cores: int
    memory_bytes: int
    others: ResourceList
    swap_bytes: int = 0
    swap_controller: bool = True
    pid_capacity: int | None = None
    page_size: int = 4096
    name: str = ""
    pods: int | None = None  # a declared number of pods; None: maxPods and podsPerCore decide


class NodeConfig(msgspec.Struct, frozen=True):
    machine: Machine
    config: KubeletConfig
    profile: Profile
    driver: Driver
    runtime: Runtime
    policy: NodePolicy
    capacity: ResourceList
    reserved: Reserved
    allocatable: ResourceList  # what the scheduler may allocate (N-8)
    absolute: ResourceList  # the limit of kubepods (N-9)
    thresholds: tuple[Threshold, ...]
    pods_root: CgroupName
    profile_reason: str = ""  # why it is this profile


def configured_thresholds(config: KubeletConfig) -> tuple[Threshold, ...]:
    """Raises InvalidConfigError."""
    return parsed_thresholds(
        config.eviction_hard,
        config.eviction_soft,
        config.eviction_soft_grace_period,
        config.eviction_minimum_reclaim,
        config.enforce_node_allocatable,
    )


def resolved(
    machine: Machine,
    config: KubeletConfig,
    profile: Profile,
    *,
    cgroup_version: CgroupVersion = 2,
    driver: Driver | None = None,
    runtime: Runtime = "containerd",
    weight: Weight | None = None,
    page_cache_safe: bool = False,
    io: IoPolicy | None = None,
    profile_reason: str = "",
) -> NodeConfig:
    """Raises InvalidConfigError if a kubelet would not start."""
    for error in [*host_errors(config, profile, cgroup_version), *_path_errors(config)]:
        raise error
    config = on_host(config, cgroup_version)
    max_pods, pods_per_core = (config.max_pods, config.pods_per_core) if machine.pods is None else (machine.pods, 0)
    others = machine.others
    if not config.local_storage_capacity_isolation:
        others = {name: quantity for name, quantity in others.items() if name != EPHEMERAL_STORAGE}
    capacity = machine_capacity(machine.cores, machine.memory_bytes, max_pods, pods_per_core, others)
    thresholds = configured_thresholds(config)
    hard = () if config.ignore_eviction_in_allocatable else parsed_thresholds(config.eviction_hard)
    reserved = Reserved(config.system_reserved, config.kube_reserved, eviction_reservation(hard, capacity))
    errors = reservation_errors(capacity, reserved, says_reservation=profile.reservation_error_says_reservation)
    if errors:
        raise InvalidConfigError("", f"invalid Node Allocatable configuration. {' '.join(errors)}")
    absolute = absolute_allocatable(capacity, reserved)
    return NodeConfig(
        machine=machine,
        config=config,
        profile=profile,
        driver=driver or config.cgroup_driver,
        runtime=runtime,
        policy=_policy(machine, config, profile, cgroup_version, weight, absolute, page_cache_safe, io),
        capacity=capacity,
        reserved=reserved,
        allocatable=node_allocatable(capacity, reserved),
        absolute=absolute,
        thresholds=thresholds,
        pods_root=root_name(config.cgroup_root, cgroups_per_qos=config.cgroups_per_qos),
        profile_reason=profile_reason,
    )


def _path_errors(config: KubeletConfig) -> list[InvalidConfigError]:
    """Cgroup names become directories: no control characters, no `..`."""
    paths = {
        "cgroupRoot": config.cgroup_root,
        "systemReservedCgroup": config.system_reserved_cgroup,
        "kubeReservedCgroup": config.kube_reserved_cgroup,
    }
    return [
        InvalidConfigError(field, "must be a plain path of cgroups")
        for field, path in paths.items()
        if not path.isprintable() or ".." in path.split("/")
    ]


def _policy(
    machine: Machine,
    config: KubeletConfig,
    profile: Profile,
    cgroup_version: CgroupVersion,
    weight: Weight | None,
    absolute: ResourceList,
    page_cache_safe: bool,
    io: IoPolicy | None,
) -> NodePolicy:
    swap = swap_in_use(config.swap_behavior, profile, gate=config.gate("NodeSwap"))
    return NodePolicy(
        memory_capacity_bytes=machine.memory_bytes,
        allocatable_memory_bytes=absolute[MEMORY].value,
        swap_capacity_bytes=machine.swap_bytes,
        cgroup_version=cgroup_version,
        cfs_quota=config.cpu_cfs_quota,
        period_us=config.cpu_cfs_quota_period_us,
        custom_period=config.gate("CustomCPUCFSQuotaPeriod"),
        memory_qos=config.gate("MemoryQoS") and cgroup_version == 2,
        reservation=_reservation(config, profile),
        high_without_request=profile.memory_high_without_request,
        high_of_pod=profile.memory_high_of_pod,
        high_reset=profile.memory_high_reset and cgroup_version == 2 and not config.gate("MemoryQoS"),
        low_of_kubepods=profile.memory_low_of_kubepods,
        throttling_factor=config.memory_throttling_factor,
        page_size=machine.page_size,
        page_cache_safe=page_cache_safe,
        oom_group=profile.memory_oom_group and cgroup_version == 2 and config.single_process_oom_kill is False,
        limited_swap=swap == "LimitedSwap",
        unlimited_swap=swap == "UnlimitedSwap",
        swap_with_memory=profile.swap_rule == "memory and swap",
        critical_pods_swap=profile.critical_pods_swap,
        swap_controller=machine.swap_controller,
        hugepage_sizes=tuple(
            sorted(page_size_bytes(name) for name in machine.others if name.startswith(HUGEPAGES_PREFIX))
        ),
        pod_pids_limit=config.pod_pids_limit,
        gates=resolved_gates(config.feature_gates, profile),
        pod_level_oom_share=profile.pod_level_oom_share,
        pod_level_oom_share_floored=profile.pod_level_oom_share_floored,
        pod_level_hugepages_inherited=profile.pod_level_hugepages_inherited,
        sidecar_oom_rule=profile.sidecar_oom_rule,
        quota_with_exclusive_cpus=not config.gate("DisableCPUQuotaWithExclusiveCPUs"),
        static_cpus=config.cpu_manager_policy == "static",
        pod_level_unmanaged=profile.pod_level_unmanaged,
        weight=weight or profile.container_weight,
        io=io if io is None or cgroup_version == 2 else _on_v1(io),
    )


def _on_v1(policy: IoPolicy) -> IoPolicy:
    from plimsoll.rules.blockio.policy import on_v1  # most nodes do not control I/O

    return on_v1(policy)


def _reservation(config: KubeletConfig, profile: Profile) -> Reservation:
    """02 §6.2: by the configured policy, or by the profile if none is set."""
    if config.memory_reservation_policy == "TieredReservation":
        return "tiered"
    return "none" if config.memory_reservation_policy == "None" else UNSET_RESERVATION[profile.memory_min_from_requests]


UNSET_RESERVATION: dict[MemoryMin, Reservation] = {"no": "none", "by class": "requests", "always": "every request"}


def swap_in_use(behavior: str, profile: Profile, *, gate: bool) -> str:
    """What an empty memorySwap.swapBehavior means (02 §5)."""
    if not gate:
        return ""
    return (
        behavior or {"memory and swap": "LimitedSwap", "unlimited": "UnlimitedSwap", "limited": ""}[profile.swap_rule]
    )


def machine_from_capacity(capacity: ResourceList, *, name: str = "", swap_bytes: int = 0) -> Machine:
    """A machine from a Node's `status.capacity` or `--capacity`; cpu and memory are required."""
    for needed in (CPU, MEMORY):
        amount = capacity.get(needed)
        if amount is None or amount.nanos <= 0:
            raise InvalidConfigError(f"capacity[{needed}]", "required, and must be greater than zero")
    for resource, amount in capacity.items():
        if amount.nanos < 0 or amount.milli > MAX_INT64:
            raise InvalidConfigError(f"capacity[{resource}]", f"out of range: {amount}")
        if resource.startswith(HUGEPAGES_PREFIX) and page_size_of(resource) is None:
            raise InvalidConfigError(f"capacity[{resource}]", "the page size cannot be read")
    if capacity[CPU].milli % 1000:
        raise InvalidConfigError(f"capacity[{CPU}]", f"must be a whole number of CPUs, not {capacity[CPU]}")
    swap = capacity.get(SWAP)
    return Machine(
        cores=capacity[CPU].value,
        memory_bytes=capacity[MEMORY].value,
        others={key: value for key, value in capacity.items() if key not in (CPU, MEMORY, PODS, SWAP)},
        name=name,
        swap_bytes=swap_bytes if swap is None else swap.value,
        pods=capacity[PODS].value if PODS in capacity else None,
    )


def withheld_hugepages(setting: NodeConfig) -> int:
    """What memory.available does not contain: the node's huge pages, with HugepageAwareEviction."""
    if not setting.config.gate("HugepageAwareEviction"):
        return 0
    return sum(amount.value for name, amount in setting.capacity.items() if name.startswith(HUGEPAGES_PREFIX))


def reserved_cpus(config: KubeletConfig) -> int:
    """How many CPUs the static policy never assigns: 500m + 600m reserved: 2 (02 §10)."""
    if config.reserved_system_cpus:
        return len(config.reserved_system_cpus)
    reserved = config.system_reserved.get(CPU, ZERO) + config.kube_reserved.get(CPU, ZERO)
    return reserved.value
