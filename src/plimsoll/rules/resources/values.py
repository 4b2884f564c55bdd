"""The cgroup values of a pod and of its containers (02 §4, §5, §6, §7).

`Values` is the common form between Kubernetes' arithmetic and the kernel's files; None means "keep the kernel's
default". `rules/resources/files.py` converts it to v1 or v2 files. Pod values follow the *effective* requests and
limits; the pod cgroup has a limit only if every container declares one. Container values are what a kubelet passes to
the runtime.

Requests cpu 250m, limit 500m on v2: pod cpu.weight 10, container cpu.weight 35, cpu.max `50000 100000` (02 §4.4).

Kubernetes: pkg/kubelet/cm/helpers_linux.go, pkg/kubelet/kuberuntime/kuberuntime_container_linux.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.model.cgroup_names import Driver
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import (
    CPU,
    HUGEPAGES_PREFIX,
    MEMORY,
    Container,
    Pod,
    QoSClass,
    ResourceList,
    is_critical,
)
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.resources.claims import container_claims, has_claims
from plimsoll.rules.resources.cpu import MIN_SHARES, quota_us, shares, systemd_quota_us
from plimsoll.rules.resources.effective import pod_level_set
from plimsoll.rules.resources.memory import memory_high, page_cache_safe_min, swap_limit_bytes
from plimsoll.rules.resources.node_policy import NodePolicy, Reservation
from plimsoll.rules.resources.qos import BEST_EFFORT, BURSTABLE, GUARANTEED

UNLIMITED = -1  # of a quota, memory.high or swap: written as max


class Values(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    cpu_shares: int | None = None
    cpu_quota_us: int | None = None  # −1: explicitly no quota; 0: set to none
    cpu_period_us: int | None = None
    memory_bytes: int | None = None
    memory_and_swap_bytes: int | None = None  # v1
    swap_bytes: int | None = None  # v2; −1: max
    memory_min_bytes: int | None = None
    memory_low_bytes: int | None = None
    memory_high_bytes: int | None = None  # −1: max
    oom_group: int | None = None
    pids: int | None = None
    hugetlb: dict[int, int] | None = None  # page size in bytes → limit in bytes


def declared_limits(pod: Pod, *, gates: Gates = DEFAULT_GATES) -> tuple[bool, bool]:
    """Whether every container has a limit, for cpu and for memory; init containers count cumulatively (02 §4.4)."""
    cpu = memory = True
    spec = pod.spec
    for container in spec.containers:
        limits = container.resources.limits
        if not limits:
            cpu = memory = False
            break
        cpu = cpu and bool(limits.get(CPU))
        memory = memory and bool(limits.get(MEMORY))
    if spec.init_containers:
        cumulative = gates.declared_limits_cumulative
        cpu = cpu and _init_declared(spec.init_containers, CPU, cumulative)
        memory = memory and _init_declared(spec.init_containers, MEMORY, cumulative)
    if gates.pod_level and spec.resources is not None and spec.resources.limits:
        cpu = cpu or bool(spec.resources.limits.get(CPU))
        memory = memory or bool(spec.resources.limits.get(MEMORY))
    return cpu, memory


def _init_declared(init_containers: tuple[Container, ...], name: str, cumulative: bool) -> bool:
    sidecars = 0
    for container in init_containers:
        limit = (container.resources.limits or {}).get(name)
        total = sidecars + (limit.nanos if limit is not None else 0)
        if cumulative and container.restart_policy == "Always":
            sidecars = total
        if total == 0:
            return False
    return True


def pod_values(
    pod: Pod,
    qos: QoSClass,
    requests: ResourceList,
    limits: ResourceList,
    policy: NodePolicy,
    *,
    exclusive_cpus: bool = False,
) -> Values:
    """The pod cgroup's values; `requests` and `limits` are the effective ones."""
    cpu_declared = memory_declared = qos == GUARANTEED
    if qos == BURSTABLE:
        cpu_declared, memory_declared = declared_limits(pod, gates=policy.gates)
    values = pod_cgroup(
        qos,
        _milli(requests, CPU),
        _value(requests, MEMORY),
        _milli(limits, CPU) if cpu_declared else None,
        _value(limits, MEMORY) if memory_declared else None,
        hugepage_limits({name: quantity.value for name, quantity in requests.items()}),
        policy,
        exclusive_cpus,
    )
    if policy.high_of_pod and policy.memory_qos and (high := _pod_high(pod, requests, limits, policy)):
        return msgspec.structs.replace(values, memory_high_bytes=high)
    return values


def _pod_high(pod: Pod, requests: ResourceList, limits: ResourceList, policy: NodePolicy) -> int | None:
    """memory.high of a pod with pod-level resources and a memory limit (02 §6.1)."""
    gates = policy.gates
    if not (gates.pod_level and pod_level_set(pod.spec.resources) and declared_limits(pod, gates=gates)[1]):
        return None
    limit = _value(limits, MEMORY)
    return memory_high(_value(requests, MEMORY), limit, None, policy.throttling_factor, policy.page_size)


def pod_cgroup(
    qos: QoSClass,
    cpu_request_milli: int,
    memory_request_bytes: int,
    cpu_limit_milli: int | None,
    memory_limit_bytes: int | None,
    hugetlb: dict[int, int] | None,
    policy: NodePolicy,
    exclusive_cpus: bool = False,
) -> Values:
    """A pod's figures → its values (02 §4.4). A limit is None unless every container declares one."""
    minimum = low = None
    cpu_quota, cpu_period = pod_quota(cpu_limit_milli, policy, exclusive_cpus)
    if policy.memory_qos:
        minimum, low = pod_protection(memory_request_bytes, qos, policy.reservation)
        if policy.page_cache_safe:
            minimum = page_cache_safe_min(minimum, memory_limit_bytes, policy.page_size)
    return Values(
        MIN_SHARES if qos == BEST_EFFORT else shares(cpu_request_milli),
        cpu_quota,
        cpu_period,
        memory_limit_bytes,
        None,
        None,
        minimum,
        low,
        None,
        None,
        policy.pod_pids_limit if policy.pod_pids_limit > 0 else None,
        hugetlb,
    )


def pod_quota(
    cpu_limit_milli: int | None, policy: NodePolicy, exclusive_cpus: bool = False
) -> tuple[int | None, int | None]:
    """Quota and period of a pod (02 §4.3); the period is the configured one even without the gate."""
    if cpu_limit_milli is None:
        return None, None
    if not policy.cfs_quota or (exclusive_cpus and not policy.quota_with_exclusive_cpus):
        return UNLIMITED, policy.period_us
    return quota_us(cpu_limit_milli, policy.quota_period_us), policy.period_us


def pod_protection(request_bytes: int, qos: QoSClass, reservation: Reservation) -> tuple[int | None, int | None]:
    """memory.min and memory.low of a pod (02 §6.2); neither without a request."""
    if request_bytes <= 0 or reservation == "none":
        return None, None
    if reservation in ("requests", "every request"):
        return (None if qos == BEST_EFFORT and reservation == "requests" else request_bytes), None
    return (request_bytes, None) if qos == GUARANTEED else (None, request_bytes)


def hugepage_limits(amounts: Mapping[str, int]) -> dict[int, int] | None:
    """Page size in bytes → limit in bytes, for the huge page names; None if there are none."""
    found: dict[int, int] | None = None
    for name, amount in amounts.items():
        if name != CPU and name != MEMORY and name.startswith(HUGEPAGES_PREFIX):
            if found is None:
                found = {}
            found[page_size_bytes(name)] = amount
    return found


@lru_cache(maxsize=256)
def page_size_of(resource_name: str) -> int | None:
    """The page size in a huge page resource's name: `hugepages-2Mi` → 2097152; None if it is unreadable."""
    try:
        size = QUANTITIES[resource_name.removeprefix(HUGEPAGES_PREFIX)].value
    except InvalidQuantityError:
        return None
    return size if size > 0 else None


@lru_cache(maxsize=256)
def page_size_bytes(resource_name: str) -> int:
    """The same for valid names."""
    return QUANTITIES[resource_name.removeprefix(HUGEPAGES_PREFIX)].value


def container_values(
    pod: Pod, container: Container, qos: QoSClass, policy: NodePolicy, *, exclusive_cpus: bool = False
) -> Values:
    """One container's values; missing limits are inherited from pod level (02 §4.4, §4.5)."""
    requests, limits = container.resources.requests or {}, container.resources.limits or {}
    cpu_limit, own_memory_limit = _milli(limits, CPU), _value(limits, MEMORY)
    memory_limit = own_memory_limit
    pod_level = pod.spec.resources
    if pod_level is not None and pod_level.limits and policy.gates.pod_level:
        cpu_limit = cpu_limit or _milli(pod_level.limits, CPU)
        memory_limit = memory_limit or _value(pod_level.limits, MEMORY)
    cpu_request = _milli(requests, CPU) if CPU in requests else None
    claimed = container_claims(pod, container.name) if has_claims(pod, policy.gates) else None
    if claimed is not None:
        cpu_request = cpu_limit if cpu_request is None else cpu_request
        cpu_limit += _milli(claimed, CPU) if _milli(limits, CPU) else 0
        memory_limit += _value(claimed, MEMORY) if own_memory_limit else 0
    values = container_cgroup(
        qos,
        cpu_request,
        _value(requests, MEMORY),
        cpu_limit,
        own_memory_limit,
        memory_limit,
        container_swap_bytes(pod, container, qos, policy) if policy.limited_swap else 0,
        _container_hugetlb(pod, limits, policy) if policy.hugepage_sizes else None,
        policy,
        exclusive_cpus,
    )
    return values if claimed is None else _with_claims(values, pod, limits, claimed, policy)


def _with_claims(values: Values, pod: Pod, limits: ResourceList, claimed: ResourceList, policy: NodePolicy) -> Values:
    """Huge pages of the container's claims: beside its own limit, or in place of none."""
    hugetlb = dict(values.hugetlb or {})
    pod_level = pod.spec.resources.limits if policy.gates.pod_level and pod.spec.resources is not None else None
    for name, amount in claimed.items():
        if name.startswith(HUGEPAGES_PREFIX) and (size := page_size_bytes(name)) in hugetlb:
            if name in limits:
                hugetlb[size] += amount.value
            elif name not in (pod_level or {}):
                hugetlb[size] = amount.value
    return msgspec.structs.replace(values, hugetlb=hugetlb or None)


def container_cgroup(
    qos: QoSClass,
    cpu_request_milli: int | None,
    memory_request_bytes: int,
    cpu_limit_milli: int,
    own_memory_limit_bytes: int,
    memory_limit_bytes: int,
    swap_bytes: int,
    hugetlb: dict[int, int] | None,
    policy: NodePolicy,
    exclusive_cpus: bool = False,
) -> Values:
    """A container's figures → its values (02 §4.5). Without a cpu request (None, not 0) the limit is used."""
    minimum = low = None
    high = UNLIMITED if policy.high_reset and policy.cgroup_version == 2 else None
    cpu_quota, cpu_period = container_quota(cpu_limit_milli, policy, exclusive_cpus)
    memory_and_swap, swap = container_swap(swap_bytes, memory_limit_bytes, policy)
    if policy.memory_qos:
        minimum, low = container_protection(memory_request_bytes, qos, policy.reservation)
        if policy.page_cache_safe:
            minimum = page_cache_safe_min(minimum, memory_limit_bytes, policy.page_size)
        high = container_high(memory_request_bytes, own_memory_limit_bytes, memory_limit_bytes, policy)
    return Values(
        shares(cpu_limit_milli if cpu_request_milli is None else cpu_request_milli),
        cpu_quota,
        cpu_period,
        memory_limit_bytes or None,
        memory_and_swap,
        swap,
        minimum,
        low,
        high,
        1 if policy.oom_group else None,
        None,
        hugetlb,
    )


def container_high(request_bytes: int, own_limit_bytes: int, limit_bytes: int, policy: NodePolicy) -> int | None:
    """memory.high of a container; where the pod has one, a container that inherits the pod's limit has none."""
    if policy.high_of_pod and limit_bytes and not own_limit_bytes:
        return None
    if request_bytes == own_limit_bytes and not (policy.high_without_request and not own_limit_bytes):
        return None
    return memory_high(
        request_bytes,
        limit_bytes if own_limit_bytes else 0,  # with what claims add to it
        policy.allocatable_memory_bytes,
        policy.throttling_factor,
        policy.page_size,
        policy.high_without_request,
    )


def container_swap(limited_bytes: int, memory_limit_bytes: int, policy: NodePolicy) -> tuple[int | None, int | None]:
    """Memory and swap together, and swap alone (02 §5)."""
    if policy.swap_with_memory:
        together = UNLIMITED if policy.unlimited_swap else memory_limit_bytes or None
        return together if policy.limited_swap or policy.unlimited_swap else None, None
    if not policy.swap_controller:
        return None, None
    if policy.cgroup_version == 2:
        return None, UNLIMITED if policy.unlimited_swap else limited_bytes
    return memory_limit_bytes or None, None


def container_quota(
    cpu_limit_milli: int, policy: NodePolicy, exclusive_cpus: bool = False
) -> tuple[int | None, int | None]:
    """Quota and period of a container (02 §4.3); a limit of 0 is no limit."""
    if not policy.cfs_quota:
        return None, None
    period = policy.quota_period_us
    if exclusive_cpus and not policy.quota_with_exclusive_cpus:
        return UNLIMITED, period
    return (quota_us(cpu_limit_milli, period) if cpu_limit_milli else None), period


def container_protection(request_bytes: int, qos: QoSClass, reservation: Reservation) -> tuple[int | None, int | None]:
    """memory.min and memory.low (02 §6.2): one of them under tiered with a request, otherwise both 0."""
    if reservation == "tiered" and request_bytes > 0:
        return (request_bytes, None) if qos == GUARANTEED else (None, request_bytes)
    return ((request_bytes or None), None) if reservation in ("requests", "every request") else (0, 0)


def _container_hugetlb(pod: Pod, limits: ResourceList, policy: NodePolicy) -> dict[int, int]:
    """For each page size of the host: the container's limit, or pod level's, or 0 (02 §7)."""
    found = dict.fromkeys(policy.hugepage_sizes, 0)
    inherited = policy.gates.pod_level and policy.pod_level_hugepages_inherited
    pod_level = pod.spec.resources.limits if inherited and pod.spec.resources is not None else None
    for source in (pod_level, limits):
        for name in source or ():
            if name.startswith(HUGEPAGES_PREFIX) and (size := page_size_bytes(name)) in found:
                found[size] = (source or {})[name].value
    return found


def uses_limited_swap(pod: Pod, container: Container, qos: QoSClass, policy: NodePolicy) -> bool:
    """Whether the container may swap (02 §5): Burstable, not critical, and its request differs from its limit."""
    if not policy.limited_swap or not policy.swap_controller or policy.cgroup_version == 1 or qos != BURSTABLE:
        return False
    if policy.swap_with_memory:
        return False
    request = (container.resources.requests or {}).get(MEMORY)
    limit = (container.resources.limits or {}).get(MEMORY)
    request_nanos = request.nanos if request is not None else 0
    limit_nanos = limit.nanos if limit is not None else 0
    return request_nanos != limit_nanos and (policy.critical_pods_swap or not is_critical(pod))


def container_swap_bytes(pod: Pod, container: Container, qos: QoSClass, policy: NodePolicy) -> int:
    if not uses_limited_swap(pod, container, qos, policy):
        return 0
    request = _value(container.resources.requests or {}, MEMORY)
    return swap_limit_bytes(request, policy.memory_capacity_bytes, policy.swap_capacity_bytes)


def with_host_pages(values: Values, policy: NodePolicy) -> Values:
    """Page sizes of the host that are not listed are written as 0 (02 §7)."""
    if not policy.hugepage_sizes:
        return values
    hugetlb = {**dict.fromkeys(policy.hugepage_sizes, 0), **(values.hugetlb or {})}
    return msgspec.structs.replace(values, hugetlb=hugetlb)


def as_kept(values: Values, driver: Driver) -> Values:
    """The values as the driver stores them: systemd stores a quota in whole percents (02 §2.3)."""
    quota, period = values.cpu_quota_us, values.cpu_period_us
    if driver != "systemd" or not quota or not period:
        return values
    rounded = systemd_quota_us(quota, period)
    return values if rounded == quota else msgspec.structs.replace(values, cpu_quota_us=rounded)


def _milli(resources: ResourceList, name: str) -> int:
    quantity = resources.get(name)
    return 0 if quantity is None else quantity.milli


def _value(resources: ResourceList, name: str) -> int:
    quantity = resources.get(name)
    return 0 if quantity is None else quantity.value
