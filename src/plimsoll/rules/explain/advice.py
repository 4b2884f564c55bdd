"""Advice about a pod: why it has its class, how to make it Guaranteed, what is dangerous."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.rules.cgroups.desired import Workload
from plimsoll.rules.model.objects import CPU, EPHEMERAL_STORAGE, MEMORY, Container, Resources, container_fields
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.quantity import Quantity
from plimsoll.rules.resources.cpu import MIN_QUOTA_US
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, computed_qos_class, decided_by_pod_level
from plimsoll.rules.resources.values import UNLIMITED, Values


class AdvisedChange(msgspec.Struct, frozen=True):
    """One field to set; an empty `value` means any amount, the same for request and limit."""

    field: str
    value: str


def qos_sentence(work: Workload, setting: NodeConfig) -> str:
    """Why the pod has its class; for Burstable, the first container that prevents Guaranteed."""
    pod = work.desired
    computed = computed_qos_class(pod, gates=setting.policy.gates)
    if computed != work.qos:
        return f"that class is stored in the pod's status and never changes; by its spec it would be {computed}"
    if pod.spec.resources is not None and decided_by_pod_level(pod.spec.resources, setting.policy.gates):
        return _pod_level_sentence(work, pod.spec.resources)
    if work.qos == GUARANTEED:
        return "every container has cpu and memory limits, and its requests equal them"
    if work.qos == BEST_EFFORT:
        return "no container has a cpu or memory request or limit"
    return _first_obstacle(work)


def _pod_level_sentence(work: Workload, resources: Resources) -> str:
    if work.qos == GUARANTEED:
        return "pod-level cpu and memory requests equal pod-level limits; containers are not considered"
    if work.qos == BEST_EFFORT:
        return f"{work.base}.resources is set but names no cpu or memory; containers are not considered"
    missing = [name for name in (CPU, MEMORY) if not (resources.limits or {}).get(name)]
    if missing:
        return f"{work.base}.resources has no {' and no '.join(missing)} limit, so the pod is not Guaranteed"
    return f"{work.base}.resources: requests differ from limits, so the pod is not Guaranteed"


def _first_obstacle(work: Workload) -> str:
    for field, container in container_fields(work.pod.spec, work.base):
        limits, requests = container.resources.limits or {}, container.resources.requests or {}
        missing = [name for name in (CPU, MEMORY) if not _positive(limits.get(name))]
        if missing:
            return f"{field} ({container.name}) has no {' and no '.join(missing)} limit, so the pod is not Guaranteed"
        for name in (CPU, MEMORY):
            if requests.get(name) != limits[name]:
                have = requests.get(name, "none")
                return (
                    f"{field} ({container.name}) requests {name} {have} but its limit is {limits[name]}, "
                    "so the pod is not Guaranteed"
                )
    return "requests and limits differ in sum, so the pod is not Guaranteed"


def guaranteed_changes(work: Workload, setting: NodeConfig) -> list[AdvisedChange]:
    """The fewest fields to set for Guaranteed: limits stay, a request without a limit becomes the limit too."""
    if work.qos == GUARANTEED:
        return []
    pod = work.pod
    if pod.spec.resources is not None and decided_by_pod_level(pod.spec.resources, setting.policy.gates):
        return _pod_level_changes(work, pod.spec.resources)
    changes = []
    for field, container in container_fields(work.pod.spec, work.base):
        requests, limits = container.resources.requests or {}, container.resources.limits or {}
        for name in (CPU, MEMORY):
            request, limit = requests.get(name), limits.get(name)
            if _positive(limit):
                if request != limit:
                    changes.append(AdvisedChange(f"{field}.resources.requests.{name}", str(limit)))
            elif _positive(request):
                changes.append(AdvisedChange(f"{field}.resources.limits.{name}", str(request)))
            else:
                changes.append(AdvisedChange(f"{field}.resources.limits.{name}", ""))
                if request is not None:  # a zero counts as set (D-1), so the limit would not become the request
                    changes.append(AdvisedChange(f"{field}.resources.requests.{name}", ""))
    return changes


def _pod_level_changes(work: Workload, resources: Resources) -> list[AdvisedChange]:
    """A pod-level amount must cover every container's limit (V-26); requests are listed, or D-2 would set them."""
    field, found = f"{work.base}.resources", []
    requests, limits = resources.requests or {}, resources.limits or {}
    for name in (CPU, MEMORY):
        request, limit = requests.get(name), limits.get(name)
        if not _positive(limit) and not _positive(request):
            found += [AdvisedChange(f"{field}.limits.{name}", ""), AdvisedChange(f"{field}.requests.{name}", "")]
            continue
        own = [(container.resources.limits or {}).get(name) for container in work.pod.spec.containers]
        amount = limit if _positive(limit) else max(filter(None, [request, *own]))
        if limit != amount:
            found.append(AdvisedChange(f"{field}.limits.{name}", str(amount)))
        if request != amount:
            found.append(AdvisedChange(f"{field}.requests.{name}", str(amount)))
    return found


def pod_warnings(work: Workload, setting: NodeConfig) -> list[str]:
    """Settings that cause outages in production, one sentence each."""
    fields = container_fields(work.pod.spec, work.base)
    containers = [
        f"{field} ({container.name}): {warning}"
        for (field, container), values in zip(fields, work.container_values, strict=True)
        for check in _CONTAINER_WARNINGS
        for warning in check(container, values, setting.policy)
    ]
    return [
        *_pending_resize(work),
        *_overhead(work),
        *containers,
        *_unschedulable(work, setting),
        *_no_pod_limit(work, setting),
    ]


def _overhead(work: Workload) -> Iterator[str]:
    if work.pod.spec.overhead and not work.pod.spec.runtime_class_name:
        yield (
            f"{work.base}.overhead without {work.base}.runtimeClassName: an API server rejects the pod, because "
            "overhead is set from a RuntimeClass only"
        )


def _unreclaimable(_container: Container, values: Values, _policy: NodePolicy) -> Iterator[str]:
    minimum, limit = values.memory_min_bytes, values.memory_bytes
    if minimum and limit and minimum >= limit:
        yield (
            "memory.min equals memory.max, so its page cache can never be reclaimed and file-heavy workloads may stall"
        )


def _long_throttling(_container: Container, values: Values, _policy: NodePolicy) -> Iterator[str]:
    limit, high = values.memory_bytes, values.memory_high_bytes
    if high and high != UNLIMITED and limit and limit - high > 1 << 30:
        yield (
            f"{(limit - high) >> 20} MiB lie between memory.high and memory.max; a process that grows past "
            "memory.high is throttled and can stall for minutes before it reaches the limit"
        )


def _quota_floor(container: Container, values: Values, policy: NodePolicy) -> Iterator[str]:
    limits = container.resources.limits or {}
    floor_milli = MIN_QUOTA_US * 1000 // policy.quota_period_us
    limit_milli = limits[CPU].milli if CPU in limits else 0
    if policy.cfs_quota and 0 < limit_milli < floor_milli and values.cpu_quota_us != UNLIMITED:
        yield f"a cpu limit below {floor_milli}m is enforced as {floor_milli}m (quota floor 1000 µs)"


def _missing_suffix(container: Container, _values: Values, _policy: NodePolicy) -> Iterator[str]:
    request = (container.resources.requests or {}).get(MEMORY)
    if request is not None and 0 < request.value < 1 << 20:
        yield (
            f"memory request {request} is {request.value} bytes; "
            "a suffix may be missing (`m` is a thousandth of a byte)"
        )


_CONTAINER_WARNINGS = (_unreclaimable, _long_throttling, _quota_floor, _missing_suffix)


def _pending_resize(work: Workload) -> Iterator[str]:
    if work.pod is not work.desired:
        yield "a resize is pending: cgroups, scores and eviction use the allocated resources, which are shown here"


def _unschedulable(work: Workload, setting: NodeConfig) -> Iterator[str]:
    for resource, quantity in work.counted.items():
        available = setting.allocatable.get(resource)
        if available is None and resource == EPHEMERAL_STORAGE:
            continue  # the description of a node may omit its disk
        if quantity.nanos > 0 and (available is None or quantity > available):
            have = "none" if available is None else str(available)
            yield f"requests {resource} {quantity} but the node offers {have}: it can never be scheduled here"


def _no_pod_limit(work: Workload, setting: NodeConfig) -> Iterator[str]:
    unlimited = work.qos == BURSTABLE and setting.policy.cgroup_version == 2 and not work.values.memory_bytes
    if unlimited and any(values.memory_bytes for values in work.container_values):
        yield "one container without a memory limit removes the pod's own memory limit"


def setting_warnings(setting: NodeConfig) -> list[str]:
    """Gates and settings without effect, or with a harmful one, on this node."""
    found = []
    config, policy = setting.config, setting.policy
    if config.gate("MemoryQoS") and policy.cgroup_version == 1:
        found.append("feature gate MemoryQoS has no effect on cgroup v1: there is no memory.min, low or high")
    if policy.memory_qos and policy.reservation in ("requests", "every request"):
        found.append(
            "memory.min for every request can starve page cache; for production, Kubernetes 1.36 offers "
            "memoryReservationPolicy: TieredReservation"
        )
    if policy.memory_qos and policy.reservation == "tiered" and not policy.low_of_kubepods:
        found.append(
            "memory.low of Burstable pods is effective only if cgroup2 is mounted with memory_recursiveprot "
            "(systemd's default): kubepods itself has none"
        )
    if setting.profile.memory_min_from_requests != "no" and config.memory_reservation_policy:
        found.append(f"memoryReservationPolicy is new in 1.36; a kubelet {setting.profile.release} does not know it")
    if "swap_rule" in setting.profile.notes and policy.limited_swap:
        found.append(setting.profile.notes["swap_rule"])
    if not config.cgroups_per_qos:
        found.append("cgroupsPerQOS is false: no kubepods, class or pod cgroups; only the containers' own limits apply")
    if "memory.available" not in config.eviction_hard:
        found.append("evictionHard has no memory.available: the kernel's OOM killer acts before any eviction")
    if setting.driver == "systemd":
        found.append("the systemd driver stores cpu quotas in whole percents of a CPU, rounded up")
    return found


def _positive(quantity: Quantity | None) -> bool:
    return quantity is not None and quantity.nanos > 0
