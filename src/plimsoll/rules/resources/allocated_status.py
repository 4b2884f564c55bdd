"""The allocated and actuated resources of a running pod, read from its status (01 E-14, 03 §1).

The spec is the desired state. Cgroups, OOM scores and eviction follow what the node has allocated: requests from
`allocatedResources`, limits from the actual `resources`, which stay the same until the node accepts a resize. A resize
counts for the whole pod or not at all.

A node has its own checkpoint of both. Other components, and a node without its checkpoint, use these functions.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from plimsoll.rules.model.objects import (
    CPU,
    MEMORY,
    NO_RESOURCES,
    Container,
    ContainerStatus,
    Pod,
    ResourceList,
    Resources,
)
from plimsoll.rules.quantity import ZERO, Quantity
from plimsoll.rules.resources.cpu import LEAST_LIMIT_MILLI, SYSTEMD_STEP_MILLI
from plimsoll.rules.resources.effective import pod_level_set
from plimsoll.rules.resources.qos import GUARANTEED

_REFUSED_OR_WAITING = ("Proposed", "Deferred", "Infeasible")  # status.resize (03 §3.2)
_RESIZED = (CPU, MEMORY)
_ROUNDING_MILLI = max(SYSTEMD_STEP_MILLI, LEAST_LIMIT_MILLI)  # the largest rounding error of a limit (03 §9)

AnyPod = TypeVar("AnyPod", bound=Pod)


def is_resize_pending(pod: Pod) -> bool:
    """Whether the spec requests something that the node has not allocated."""
    status = pod.status
    if status.resize in _REFUSED_OR_WAITING:
        return True
    if any(condition.type == "PodResizePending" for condition in status.conditions):
        return True
    known = {each.name: each.allocated_resources for each in status.container_statuses + status.init_container_statuses}
    return any(
        _differs(container.resources, known.get(container.name))
        for container in pod.spec.containers + pod.spec.init_containers
    ) or (pod.spec.resources is not None and _differs(pod.spec.resources, _of_level(pod)))


def is_resize_under_way(pod: Pod) -> bool:
    """Whether it is pending, or allocated and not yet actuated."""
    status = pod.status
    in_progress = any(condition.type == "PodResizeInProgress" for condition in status.conditions)
    return in_progress or bool(status.resize) or is_resize_pending(pod)


def is_resize_waiting(pod: Pod) -> bool:
    """Whether the node has refused it, or defers it."""
    waits = any(condition.type == "PodResizePending" for condition in pod.status.conditions)
    return waits or pod.status.resize in _REFUSED_OR_WAITING


def _differs(desired: Resources, allocated: ResourceList | None) -> bool:
    requests = desired.requests or {}
    return allocated is not None and any(requests.get(name, ZERO) != allocated.get(name, ZERO) for name in _RESIZED)


def _of_level(pod: Pod) -> ResourceList | None:
    """`allocatedResources` of the pod is a sum; only the names that the pod level sets belong to it."""
    total, block = pod.status.allocated_resources, pod.spec.resources
    if total is None or block is None:
        return None
    return {name: total[name] for name in block.requests or () if name in total}


def allocated_from_status(pod: AnyPod) -> AnyPod:
    """The pod with its allocated resources; the same object if no resize is pending."""
    status = pod.status
    if not (status.container_statuses or status.init_container_statuses) or not is_resize_pending(pod):
        return pod
    is_guaranteed, has_level = status.qos_class == GUARANTEED, pod_level_set(pod.spec.resources)
    resources = _allocated_level(pod, alike=is_guaranteed) if has_level else pod.spec.resources
    alike = is_guaranteed and not has_level
    spec = msgspec.structs.replace(
        pod.spec,
        containers=_with_allocated(pod.spec.containers, status.container_statuses, alike),
        init_containers=_with_allocated(pod.spec.init_containers, status.init_container_statuses, alike),
        resources=resources,
    )
    return msgspec.structs.replace(pod, spec=spec)


def _with_allocated(
    containers: tuple[Container, ...], statuses: tuple[ContainerStatus, ...], alike: bool
) -> tuple[Container, ...]:
    known = {status.name: status for status in statuses}
    return tuple(
        msgspec.structs.replace(container, resources=_allocated(container.resources, known[container.name], alike))
        if container.name in known
        else container
        for container in containers
    )


def _allocated(desired: Resources, status: ContainerStatus, alike: bool) -> Resources:
    """`alike`: limits equal the requests, so an actual limit from before the resize does not count."""
    actual, requests, limits = status.resources, status.allocated_resources, desired.limits
    if requests is None and actual is not None:
        requests = actual.requests or {}
    requests = desired.requests if requests is None else _settled(desired.requests, requests)
    if actual is not None:
        limits = _settled(desired.limits, actual.limits or {})
    return Resources(requests, _as_requested(limits, requests) if alike else limits, desired.claims)


def _settled(desired: ResourceList | None, allocated: ResourceList) -> ResourceList | None:
    """Resizable resources as allocated, others as desired; a new name belongs to the pending request."""
    others = {name: quantity for name, quantity in (desired or {}).items() if name not in _RESIZED}
    return {**others, **allocated} or None


def _as_requested(limits: ResourceList | None, requests: ResourceList | None) -> ResourceList | None:
    return limits and {**limits, **{name: each for name, each in (requests or {}).items() if name in _RESIZED}}


def _allocated_level(pod: Pod, alike: bool) -> Resources | None:
    desired, actual, allocated = pod.spec.resources or NO_RESOURCES, pod.status.resources, _of_level(pod) or {}
    if actual is None:
        # A node that resizes pod level also reports it, so the block is a new request of a pod that ran without one.
        return None if any(status.resources is not None for status in pod.status.container_statuses) else desired
    has_requests, has_limits = actual.requests or {}, actual.limits or {}
    requests = {n: allocated.get(n, has_requests[n]) for n in desired.requests or () if n in has_requests}
    limits = {n: has_limits[n] for n in desired.limits or () if n in has_limits}
    return Resources(requests or None, (_as_requested(limits, requests) if alike else limits) or None, desired.claims)


# --- actuated resources ---


def actuated_resources(allocated: Pod) -> dict[str, Resources]:
    """Container → its actuated resources, for running containers; `allocated` is the allocated pod."""
    status, spec = allocated.status, allocated.spec
    actual = {
        each.name: each.resources
        for each in (*status.init_container_statuses, *status.container_statuses)
        if each.state is not None and each.state.running is not None and each.resources is not None
    }
    return {
        each.name: _actuated(each.resources, actual[each.name])
        for each in (*spec.init_containers, *spec.containers)
        if each.name in actual
    }


def actuated_pod(allocated: AnyPod) -> AnyPod:
    """The pod with its actuated resources, as if it had been created with them."""
    actual = actuated_resources(allocated)

    def with_actual(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(
            msgspec.structs.replace(each, resources=actual.get(each.name, each.resources)) for each in containers
        )

    spec = msgspec.structs.replace(
        allocated.spec,
        containers=with_actual(allocated.spec.containers),
        init_containers=with_actual(allocated.spec.init_containers),
        resources=actuated_level(allocated),
    )
    return as_created(msgspec.structs.replace(allocated, spec=spec))


def as_created(pod: AnyPod) -> AnyPod:
    """The pod without what its status says of resources: the spec alone counts."""
    status = msgspec.structs.replace(
        pod.status,
        container_statuses=(),
        init_container_statuses=(),
        conditions=(),
        resize="",
        resources=None,
        allocated_resources=None,
    )
    return msgspec.structs.replace(pod, status=status)


def actuated_level(allocated: Pod) -> Resources | None:
    """The same for pod level."""
    block, actual = allocated.spec.resources, allocated.status.resources
    return block if block is None or actual is None else _actuated(block, actual)


def _actuated(allocated: Resources, actual: Resources) -> Resources:
    return Resources(
        _actuated_list(allocated.requests, actual.requests),
        _actuated_list(allocated.limits, actual.limits),
        allocated.claims,
    )


def _actuated_list(allocated: ResourceList | None, actual: ResourceList | None) -> ResourceList | None:
    """The actual amount, or the allocated amount if the actual one may be its rounded form."""
    if allocated is None:
        return None
    shown = actual or {}
    return {name: _actuated_amount(name, each, shown[name]) for name, each in allocated.items() if name in shown}


def _actuated_amount(name: str, allocated: Quantity, actual: Quantity) -> Quantity:
    is_rounded = name == CPU and abs(allocated.milli - actual.milli) < _ROUNDING_MILLI
    return allocated if is_rounded else actual
