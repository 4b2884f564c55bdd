"""What a running pod holds, as far as its status tells (spec 01 E-14, 03 §1): what it was promised, what it was given.

The spec says what is wanted. Cgroups, OOM scores and eviction follow what the node has allocated: requests from
`allocatedResources`, limits from the actual `resources`, which stay as they were until the node accepts. A resize
counts for the whole pod or not at all.

A node knows both from its own records; others, and a node that has lost them, read them here.
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
_ROUNDING_MILLI = max(SYSTEMD_STEP_MILLI, LEAST_LIMIT_MILLI)  # as far as limits may be off (03 §9)

AnyPod = TypeVar("AnyPod", bound=Pod)


def is_resize_pending(pod: Pod) -> bool:
    """Does the spec ask for something the node has not given?"""
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


def _differs(wanted: Resources, allocated: ResourceList | None) -> bool:
    requests = wanted.requests or {}
    return allocated is not None and any(requests.get(name, ZERO) != allocated.get(name, ZERO) for name in _RESIZED)


def _of_level(pod: Pod) -> ResourceList | None:
    """Allocated is the sum of the whole pod; of the pod level are the names that it sets."""
    total, block = pod.status.allocated_resources, pod.spec.resources
    if total is None or block is None:
        return None
    return {name: total[name] for name in block.requests or () if name in total}


def allocated_from_status(pod: AnyPod) -> AnyPod:
    """The pod as its cgroups are sized; the same object when nothing is pending."""
    status = pod.status
    if not (status.container_statuses or status.init_container_statuses) or not is_resize_pending(pod):
        return pod
    is_guaranteed, has_level = status.qos_class == GUARANTEED, pod_level_set(pod.spec.resources)
    resources = _held_level(pod, alike=is_guaranteed) if has_level else pod.spec.resources
    alike = is_guaranteed and not has_level
    spec = msgspec.structs.replace(
        pod.spec,
        containers=_held(pod.spec.containers, status.container_statuses, alike),
        init_containers=_held(pod.spec.init_containers, status.init_container_statuses, alike),
        resources=resources,
    )
    return msgspec.structs.replace(pod, spec=spec)


def _held(
    containers: tuple[Container, ...], statuses: tuple[ContainerStatus, ...], alike: bool
) -> tuple[Container, ...]:
    known = {status.name: status for status in statuses}
    return tuple(
        msgspec.structs.replace(each, resources=_allocated(each.resources, known[each.name], alike))
        if each.name in known
        else each
        for each in containers
    )


def _allocated(wanted: Resources, status: ContainerStatus, alike: bool) -> Resources:
    """`alike`: limits are the requests, so an older limit that still stands is no part of what is allocated."""
    actual, requests, limits = status.resources, status.allocated_resources, wanted.limits
    if requests is None and actual is not None:
        requests = actual.requests or {}
    requests = wanted.requests if requests is None else _settled(wanted.requests, requests)
    if actual is not None:
        limits = _settled(wanted.limits, actual.limits or {})
    return Resources(requests, _as_requested(limits, requests) if alike else limits, wanted.claims)


def _settled(wanted: ResourceList | None, held: ResourceList) -> ResourceList | None:
    """Of what can be resized only what is held; a name that is new belongs to the wish."""
    return {**{name: each for name, each in (wanted or {}).items() if name not in _RESIZED}, **held} or None


def _as_requested(limits: ResourceList | None, requests: ResourceList | None) -> ResourceList | None:
    return limits and {**limits, **{name: each for name, each in (requests or {}).items() if name in _RESIZED}}


def _held_level(pod: Pod, alike: bool) -> Resources | None:
    wanted, actual, allocated = pod.spec.resources or NO_RESOURCES, pod.status.resources, _of_level(pod) or {}
    if actual is None:
        # Whoever resizes a pod level also reports it, so the block itself is the wish of a pod that ran without one.
        return None if any(each.resources is not None for each in pod.status.container_statuses) else wanted
    has_requests, has_limits = actual.requests or {}, actual.limits or {}
    requests = {n: allocated.get(n, has_requests[n]) for n in wanted.requests or () if n in has_requests}
    limits = {n: has_limits[n] for n in wanted.limits or () if n in has_limits}
    return Resources(requests or None, (_as_requested(limits, requests) if alike else limits) or None, wanted.claims)


# --- what was given ---


def given_resources(allocated: Pod) -> dict[str, Resources]:
    """Of each container that runs: what it was given last. `allocated` is the pod with what was promised to it."""
    status, spec = allocated.status, allocated.spec
    actual = {
        each.name: each.resources
        for each in (*status.init_container_statuses, *status.container_statuses)
        if each.state is not None and each.state.running is not None and each.resources is not None
    }
    return {
        each.name: _given(each.resources, actual[each.name])
        for each in (*spec.init_containers, *spec.containers)
        if each.name in actual
    }


def given_level(allocated: Pod) -> Resources | None:
    """The same of the pod level."""
    block, actual = allocated.spec.resources, allocated.status.resources
    return block if block is None or actual is None else _given(block, actual)


def _given(allocated: Resources, actual: Resources) -> Resources:
    return Resources(
        _given_list(allocated.requests, actual.requests), _given_list(allocated.limits, actual.limits), allocated.claims
    )


def _given_list(allocated: ResourceList | None, actual: ResourceList | None) -> ResourceList | None:
    """What is shown, but where a kernel may have made just that of the allocated amount, the latter."""
    if allocated is None:
        return None
    shown = actual or {}
    return {name: _given_amount(name, each, shown[name]) for name, each in allocated.items() if name in shown}


def _given_amount(name: str, allocated: Quantity, actual: Quantity) -> Quantity:
    is_rounded = name == CPU and abs(allocated.milli - actual.milli) < _ROUNDING_MILLI
    return allocated if is_rounded else actual
