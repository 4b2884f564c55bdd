"""Requests and limits of a whole pod (01 §6, 05 A1): init containers, sidecars, pod level, overhead, resize.

Regular containers and sidecars run together, so they add up. Init containers run one after the other, each beside the
sidecars started before it, so the largest moment counts. Pod-level values replace the aggregate name by name, and
overhead is added at the end. Resource lists are values: no function changes its arguments.

Containers 200m + 100m, sidecar 50m, init container 400m after the sidecar: max(200 + 100 + 50, 400 + 50) = 450m.

Kubernetes: staging/src/k8s.io/component-helpers/resource/helpers.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import (
    Container,
    ContainerStatus,
    Pod,
    ResourceList,
    Resources,
    is_pod_level_resource,
    listed,
)
from plimsoll.rules.quantity import ZERO, Quantity

_EMPTY: ResourceList = {}


Amount = TypeVar("Amount", Quantity, int)  # the same rules for exact quantities and for whole numbers


def added(total: dict[str, Amount], more: dict[str, Amount]) -> dict[str, Amount]:
    """Key-wise sum; a key that only one side has is kept as it is."""
    if not more:
        return total
    if not total:
        return more
    result = dict(total)
    for name, amount in more.items():
        present = result.get(name)
        result[name] = amount if present is None else present + amount
    return result


def larger(left: dict[str, Amount], right: dict[str, Amount]) -> dict[str, Amount]:
    """Key-wise maximum; a key that only one side has is kept."""
    if not right:
        return left
    if not left:
        return right
    result = dict(left)
    for name, amount in right.items():
        present = result.get(name)
        if present is None or amount > present:
            result[name] = amount
    return result


def aggregate(
    containers: Sequence[dict[str, Amount] | None],
    init_containers: Sequence[tuple[bool, dict[str, Amount] | None]] = (),
    absent: dict[str, Amount] | None = None,
) -> dict[str, Amount]:
    """The sum and maximum rule over lists; an init entry is (is it a sidecar, its list).

    `absent` is what a container counts for a name that it leaves out (E-15).
    """
    if absent:
        containers = [{**absent, **(each or {})} for each in containers]
        init_containers = [(sidecar, {**absent, **(each or {})}) for sidecar, each in init_containers]
    total: dict[str, Amount] = _total(containers)
    if not init_containers:
        return total
    names = dict.fromkeys([*total, *(name for _, each in init_containers for name in each or ())])
    result: dict[str, Amount] = {}
    for name in names:
        most = peak(total.get(name), [(sidecar, (each or {}).get(name)) for sidecar, each in init_containers])
        if most is not None:
            result[name] = most
    return result


def peak(regular: Amount | None, init_containers: Iterable[tuple[bool, Amount | None]]) -> Amount | None:
    """The largest request for one resource at any moment; None is "not named", which differs from zero.

    Regular containers and sidecars run together; each ordinary init container runs beside the sidecars before it.
    """
    total = regular
    sidecars: Amount | None = None
    largest: Amount | None = None
    for sidecar, own in init_containers:
        if sidecar:
            if own is not None:
                total = own if total is None else total + own
                sidecars = own if sidecars is None else sidecars + own
            moment = sidecars
        elif own is None:
            moment = sidecars
        else:
            moment = own if sidecars is None else own + sidecars
        if moment is not None and (largest is None or moment > largest):
            largest = moment
    if largest is None or (total is not None and total >= largest):
        return total
    return largest


def _total(lists: Iterable[dict[str, Amount] | None]) -> dict[str, Amount]:
    """`added` over many lists, with a single copy."""
    first: dict[str, Amount] = {}
    total: dict[str, Amount] | None = None
    for amounts in lists:
        if not amounts:
            continue
        if not first:
            first = amounts
            continue
        if total is None:
            total = dict(first)
        for name, amount in amounts.items():
            present = total.get(name)
            total[name] = amount if present is None else present + amount
    return first if total is None else total


def pod_level_requests_set(resources: Resources | None) -> bool:
    """At least one name that pod level supports, in `requests` (E-2)."""
    return resources is not None and _has_supported(resources.requests)


def pod_level_limits_set(resources: Resources | None) -> bool:
    return resources is not None and _has_supported(resources.limits)


def pod_level_set(resources: Resources | None) -> bool:
    """At least one supported name in `requests` or `limits` (E-2)."""
    return pod_level_requests_set(resources) or pod_level_limits_set(resources)


def _has_supported(names: Iterable[str] | None) -> bool:
    return names is not None and any(map(is_pod_level_resource, names))


def container_requests(pod: Pod, *, absent: ResourceList = _EMPTY) -> ResourceList:
    """The aggregate of the containers alone: no pod level, no overhead."""
    spec = pod.spec
    return aggregate(
        [c.resources.requests for c in spec.containers],
        [(c.restart_policy == "Always", c.resources.requests) for c in spec.init_containers],
        absent,
    )


def container_limits(pod: Pod) -> ResourceList:
    spec = pod.spec
    return aggregate(
        [c.resources.limits for c in spec.containers],
        [(c.restart_policy == "Always", c.resources.limits) for c in spec.init_containers],
    )


def pod_requests(
    pod: Pod, *, gates: Gates = DEFAULT_GATES, overhead: bool = True, absent: ResourceList = _EMPTY
) -> ResourceList:
    """Effective requests from the spec (01 §6), for cgroup values and node admission."""
    spec = pod.spec
    if len(spec.containers) == 1 and not spec.init_containers and not absent:
        requests = spec.containers[0].resources.requests or _EMPTY
    else:
        requests = container_requests(pod, absent=absent)
    if spec.resources is not None and gates.pod_level and pod_level_requests_set(spec.resources):
        requests = overridden(requests, spec.resources.requests or _EMPTY)
    if spec.overhead and overhead:
        requests = added(requests, spec.overhead)
    return requests


def pod_limits(pod: Pod, *, gates: Gates = DEFAULT_GATES, overhead: bool = True) -> ResourceList:
    """Effective limits from the spec; overhead is added only to limits that exist and are not zero (E-1)."""
    spec = pod.spec
    if len(spec.containers) == 1 and not spec.init_containers:
        limits = spec.containers[0].resources.limits or _EMPTY
    else:
        limits = container_limits(pod)
    if spec.resources is not None and gates.pod_level and pod_level_set(spec.resources):
        limits = overridden(limits, spec.resources.limits or _EMPTY)
    if spec.overhead and overhead:
        limits = with_overhead(limits, spec.overhead)
    return limits


def overridden(total: dict[str, Amount], pod_level: dict[str, Amount]) -> dict[str, Amount]:
    """Pod-level amounts replace the sums, for the names that pod level supports."""
    result = dict(total)
    for name, amount in pod_level.items():
        if is_pod_level_resource(name):
            result[name] = amount
    return result


def with_overhead(limits: dict[str, Amount], overhead: dict[str, Amount]) -> dict[str, Amount]:
    """Overhead on limits that exist and are not zero (E-1)."""
    result = dict(limits)
    for name, amount in overhead.items():
        present = result.get(name)
        if present:
            result[name] = present + amount
    return result


# --- while a resize is pending (01 §6.1): the scheduler, quota and kubectl count what may still be in use ---


def resize_infeasible(pod: Pod) -> bool:
    """The first PodResizePending condition decides, whatever its status (E-10)."""
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def counted_requests(
    pod: Pod, *, pod_level_status: bool = True, overhead: bool = True, absent: ResourceList = _EMPTY
) -> ResourceList:
    """max(spec, actual, allocated) per container; without spec when the resize is infeasible (E-10, E-11)."""
    infeasible = resize_infeasible(pod)

    def pick(spec: ResourceList, status: ContainerStatus) -> ResourceList:
        in_use = larger(listed(status.resources, "requests"), status.allocated_resources or _EMPTY)
        return in_use if infeasible else larger(spec, in_use)

    total = _counted(pod, "requests", pick, absent)
    resources = pod.spec.resources
    if pod_level_requests_set(resources):
        counted = listed(resources, "requests")
        actual = pod.status.resources
        if pod_level_status and actual is not None:
            in_use = larger(actual.requests or _EMPTY, pod.status.allocated_resources or _EMPTY)
            counted = _kept_keys(in_use if infeasible else larger(counted, in_use), counted)
        total = overridden(total, counted)
    return added(total, pod.spec.overhead) if pod.spec.overhead and overhead else total


def counted_limits(pod: Pod, *, pod_level_status: bool = True, overhead: bool = True) -> ResourceList:
    """max(spec, actual); the actual alone when the resize is infeasible (E-10, E-11)."""
    infeasible = resize_infeasible(pod)

    def pick(spec: ResourceList, status: ContainerStatus) -> ResourceList:
        in_use = listed(status.resources, "limits")
        return in_use if infeasible else larger(spec, in_use)

    total = _counted(pod, "limits", pick)
    resources = pod.spec.resources
    if pod_level_set(resources):
        counted = listed(resources, "limits")
        actual = pod.status.resources
        if pod_level_status and actual is not None:
            in_use = actual.limits or _EMPTY
            if infeasible:
                counted = counted if actual.limits is None else _kept_keys(in_use, counted)
            else:
                counted = _kept_keys(larger(counted, in_use), counted)
        total = overridden(total, counted)
    return with_overhead(total, pod.spec.overhead) if pod.spec.overhead and overhead else total


def counted_requests_documented(pod: Pod, *, absent: ResourceList = _EMPTY) -> ResourceList:
    """The documents' rule (05 A1): allocated while InProgress or Infeasible, else max(spec, allocated); spec limits.

    The documents have neither sidecars nor a pod level; both are counted in the same way.
    """
    settled = pod.status.resize in ("InProgress", "Infeasible")
    regular = {status.name: status.allocated_resources for status in pod.status.container_statuses}
    initial = {status.name: status.allocated_resources for status in pod.status.init_container_statuses}

    def counted(own: ResourceList, allocated: ResourceList | None) -> ResourceList:
        if allocated is None:
            return own
        return allocated if settled else larger(own, allocated)

    total = aggregate(
        [counted(listed(c.resources, "requests"), regular.get(c.name)) for c in pod.spec.containers],
        [
            (True, counted(listed(c.resources, "requests"), initial.get(c.name)))
            if c.restart_policy == "Always"
            else (False, c.resources.requests)
            for c in pod.spec.init_containers
        ],
        absent,
    )
    resources = pod.spec.resources
    if pod_level_requests_set(resources):
        own = listed(resources, "requests")
        total = overridden(total, _kept_keys(counted(own, pod.status.allocated_resources), own))
    return added(total, pod.spec.overhead) if pod.spec.overhead else total


def _counted(
    pod: Pod,
    kind: str,
    pick: Callable[[ResourceList, ContainerStatus], ResourceList],
    absent: ResourceList = _EMPTY,
) -> ResourceList:
    regular = {status.name: status for status in pod.status.container_statuses}
    initial = {status.name: status for status in pod.status.init_container_statuses}

    def counted(container: Container, statuses: dict[str, ContainerStatus]) -> ResourceList:
        own = listed(container.resources, kind)
        status = statuses.get(container.name)
        return own if status is None or status.resources is None else pick(own, status)

    return aggregate(
        [counted(c, regular) for c in pod.spec.containers],
        [
            (True, counted(c, initial)) if c.restart_policy == "Always" else (False, listed(c.resources, kind))
            for c in pod.spec.init_containers
        ],
        absent,
    )


def _kept_keys(values: ResourceList, keys: ResourceList) -> ResourceList:
    """The spec decides which names pod level sets; a name that `values` lack counts as zero (E-11)."""
    return {name: values.get(name, ZERO) for name in keys}
