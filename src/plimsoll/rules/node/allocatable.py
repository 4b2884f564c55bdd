"""From capacity to allocatable resources, and the values of the node and class cgroups (01 §10, 02 §8).

Two figures have similar names. *Allocatable* in the Node's status is what the scheduler counts: capacity less both
reservations less the hard eviction threshold (N-8): 8Gi − 1Gi − 512Mi − 100Mi = 6556Mi. *Absolute allocatable* is the
limit of kubepods, without the eviction threshold, so that eviction acts before the kernel does (N-9):
8Gi − 1Gi − 512Mi = 6656Mi.

Kubernetes: pkg/kubelet/cm/node_container_manager_linux.go, qos_container_manager_linux.go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import CPU, HUGEPAGES_PREFIX, MEMORY, PODS, Pod, ResourceList
from plimsoll.rules.quantity import ZERO, Quantity, from_milli, from_units
from plimsoll.rules.resources.cpu import MIN_SHARES, shares
from plimsoll.rules.resources.effective import pod_requests
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import BURSTABLE, GUARANTEED, qos_class
from plimsoll.rules.resources.values import Values, hugepage_limits

PID = "pid"  # internal to the kubelet (N-2)
HUGETLB_UNBOUNDED = 1 << 62


class Reserved(msgspec.Struct, frozen=True):
    """Reserved resources: `system` and `kube` as configured, `eviction` from the hard thresholds."""

    system: ResourceList | None = None
    kube: ResourceList | None = None
    eviction: ResourceList | None = None


def machine_capacity(
    cores: int, memory_bytes: int, max_pods: int, pods_per_core: int = 0, others: ResourceList | None = None
) -> ResourceList:
    """Capacity as a Node reports it (N-1); `others` are huge pages, ephemeral storage and devices."""
    pods = min(cores * pods_per_core, max_pods) if pods_per_core > 0 else max_pods
    return {
        **(others or {}),
        CPU: from_milli(cores * 1000),
        MEMORY: from_units(memory_bytes, "BinarySI"),
        PODS: from_units(pods),
    }


def absolute_allocatable(capacity: ResourceList, reserved: Reserved) -> ResourceList:
    """The limit of kubepods (N-9)."""
    return _less(capacity, (reserved.system, reserved.kube))


def node_allocatable(capacity: ResourceList, reserved: Reserved) -> ResourceList:
    """What the Node's status offers to the scheduler (N-8); huge pages are subtracted from memory."""
    allocatable = _less(capacity, (total_reservation(capacity, reserved),))
    for name, quantity in capacity.items():
        if name.startswith(HUGEPAGES_PREFIX) and MEMORY in allocatable:
            allocatable[MEMORY] = _floored(allocatable[MEMORY] - quantity)
    return allocatable


def total_reservation(capacity: ResourceList, reserved: Reserved) -> ResourceList:
    """system + kube + eviction for every resource of the node; zero sums are dropped (N-7)."""
    total: ResourceList = {}
    for name in capacity:
        value = Quantity(0, "")
        for source in (reserved.system, reserved.kube, reserved.eviction):
            if source and name in source:
                value = value + source[name]
        if value:
            total[name] = value
    return total


def reservation_errors(capacity: ResourceList, reserved: Reserved, *, says_reservation: bool = True) -> list[str]:
    """The kubelet's start-up check, in its words (N-7). Up to 1.29 the capacity in them is what would be left of it."""
    beyond = {name: value for name, value in total_reservation(capacity, reserved).items() if value > capacity[name]}
    if not says_reservation:
        return [
            f'Resource "{name}" has an allocatable of {value}, capacity of {capacity[name] - value}'
            for name, value in beyond.items()
        ]
    return [
        f'Resource "{name}" has a reservation of {value} but capacity of {capacity[name]}. '
        "Expected capacity >= reservation."
        for name, value in beyond.items()
    ]


def _less(capacity: ResourceList, parts: Iterable[ResourceList | None]) -> ResourceList:
    result = dict(capacity)
    for part in parts:
        for name in result if part is not None else ():
            result[name] = result[name] - (part or {}).get(name, ZERO)
    return {name: _floored(value) for name, value in result.items()}


def _floored(quantity: Quantity) -> Quantity:
    return quantity if quantity.nanos >= 0 else Quantity(0, quantity.format)


def node_values(resources: ResourceList) -> Values:
    """kubepods or a reserved cgroup: only the listed resources are written, and never a cpu quota (N-12)."""
    return Values(
        cpu_shares=shares(resources[CPU].milli) if CPU in resources else None,
        memory_bytes=resources[MEMORY].value if MEMORY in resources else None,
        pids=resources[PID].value if PID in resources else None,
        hugetlb=hugepage_limits({name: quantity.value for name, quantity in resources.items()}),
    )


def kubepods_values(
    capacity: ResourceList,
    reserved: Reserved,
    *,
    enforce_pods: bool,
    pid_capacity: int | None = None,
    protection_reset: bool = False,
) -> Values:
    """kubepods as created at start; from capacity if pods are not enforced (N-11).

    `protection_reset`: memory.min and memory.low are written as 0 (`memory_high_reset`, 02 §6.2).
    """
    known = dict(capacity)
    if pid_capacity is not None:
        known[PID] = from_units(pid_capacity)
    values = node_values(absolute_allocatable(known, reserved) if enforce_pods else known)
    if not protection_reset:
        return values
    return msgspec.structs.replace(values, memory_min_bytes=0, memory_low_bytes=0)


def reserved_values(resources: ResourceList, *, compressible: bool, memory_qos: bool) -> Values:
    """system- or kube-reserved if enforced; the compressible variant writes cpu only (01 §10.4)."""
    if compressible:
        return Values(cpu_shares=shares(resources[CPU].milli)) if CPU in resources else Values()
    values = node_values(resources)
    if memory_qos and values.memory_bytes:
        values = msgspec.structs.replace(values, memory_min_bytes=values.memory_bytes)
    return values


class ClassSums(msgspec.Struct, frozen=True):
    """Sums of effective requests over the active pods of a node, by class; desired spec, overhead included (02 §8)."""

    burstable_cpu_milli: int = 0
    guaranteed_memory_bytes: int = 0
    burstable_memory_bytes: int = 0


def class_sums(pods: Iterable[Pod], *, gates: Gates = DEFAULT_GATES) -> ClassSums:
    cpu = guaranteed = burstable = 0
    for pod in pods:
        qos = qos_class(pod, gates=gates)
        if qos not in (GUARANTEED, BURSTABLE):
            continue
        # As in Kubernetes, memory ignores the gate and cpu respects it (02 §6.2).
        requests = pod_requests(pod, gates=msgspec.structs.replace(gates, pod_level=True))
        memory = requests[MEMORY].value if MEMORY in requests else 0
        if qos == GUARANTEED:
            guaranteed += memory
        else:
            burstable += memory
            gated = requests if gates.pod_level else pod_requests(pod, gates=gates)
            cpu += gated[CPU].milli if CPU in gated else 0
    return ClassSums(cpu, guaranteed, burstable)


def added_sums(parts: Iterable[ClassSums]) -> ClassSums:
    cpu = guaranteed = burstable = 0
    for part in parts:
        cpu += part.burstable_cpu_milli
        guaranteed += part.guaranteed_memory_bytes
        burstable += part.burstable_memory_bytes
    return ClassSums(cpu, guaranteed, burstable)


class ClassValues(msgspec.Struct, frozen=True):
    """The periodic update of the three upper cgroups."""

    kubepods: Values
    burstable: Values
    besteffort: Values


def class_values(
    sums: ClassSums,
    policy: NodePolicy,
    memory_reserve_percent: int | None = None,
    shielded: ClassSums | None = None,
) -> ClassValues:
    """`memory_reserve_percent` is qosReserved, set only with the gate QOSReserved (02 §8).

    `shielded`: the sums over the pods that do not decline Memory QoS, if some do.
    """
    shielded = shielded or sums
    hugetlb = dict.fromkeys(policy.hugepage_sizes, HUGETLB_UNBOUNDED) or None
    node_min = node_low = burstable_min = burstable_low = None
    if policy.memory_qos:
        total = shielded.guaranteed_memory_bytes + shielded.burstable_memory_bytes
        if policy.reservation in ("requests", "every request"):
            node_min, burstable_min = total or None, shielded.burstable_memory_bytes or None
        elif policy.reservation == "tiered":
            node_min, burstable_low = total, shielded.burstable_memory_bytes
            node_low = burstable_low if policy.low_of_kubepods else None
        elif not policy.low_of_kubepods:
            node_min, burstable_low = 0, 0
    burstable_limit, besteffort_limit = qos_reserved_limits(sums, policy, memory_reserve_percent)
    return ClassValues(
        Values(memory_min_bytes=node_min, memory_low_bytes=node_low, hugetlb=hugetlb),
        Values(
            cpu_shares=shares(sums.burstable_cpu_milli),
            memory_bytes=burstable_limit,
            memory_min_bytes=burstable_min,
            memory_low_bytes=burstable_low,
            hugetlb=hugetlb,
        ),
        Values(cpu_shares=MIN_SHARES, memory_bytes=besteffort_limit, hugetlb=hugetlb),
    )


def started_class_values(policy: NodePolicy) -> ClassValues:
    """What is written once at start (02 §6.2): since 1.37 the zeros of policy None, and of the gate off."""
    hugetlb = dict.fromkeys(policy.hugepage_sizes, HUGETLB_UNBOUNDED) or None
    zero = 0 if resets_at_start(policy) else None
    return ClassValues(
        Values(memory_min_bytes=zero, memory_low_bytes=zero),
        Values(memory_low_bytes=zero, hugetlb=hugetlb),
        Values(cpu_shares=MIN_SHARES, hugetlb=hugetlb),
    )


def resets_at_start(policy: NodePolicy) -> bool:
    tiered = policy.memory_qos and policy.reservation == "tiered"
    return policy.low_of_kubepods and policy.cgroup_version == 2 and not tiered


def qos_reserved_limits(
    sums: ClassSums, policy: NodePolicy, memory_reserve_percent: int | None
) -> tuple[int | None, int | None]:
    """Limits of burstable and besteffort that reserve a percentage of the requests of higher classes (02 §8, step 5).

    100Gi allocatable, Guaranteed 20Gi, Burstable 10Gi, 50 %: 100 − 10 = 90Gi, 90 − 5 = 85Gi.
    """
    if memory_reserve_percent is None or not policy.allocatable_memory_bytes:
        return None, None
    burstable = policy.allocatable_memory_bytes - sums.guaranteed_memory_bytes * memory_reserve_percent // 100
    return burstable, burstable - sums.burstable_memory_bytes * memory_reserve_percent // 100
