"""What a running pod holds while a resize is pending, as far as its status tells (spec 01 E-14, 03 §1).

The spec says what is wanted. Cgroups, OOM scores and eviction follow what the node has allocated: requests from
`allocatedResources`, limits from the actual `resources`, which stay as they were until the node accepts. A resize
counts for the whole pod or not at all.
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.objects import CPU, MEMORY, Container, ContainerStatus, Pod, Resources

_REFUSED_OR_WAITING = ("Proposed", "Deferred", "Infeasible")  # status.resize (03 §3.2)


def is_resize_pending(pod: Pod) -> bool:
    """Does the spec ask for something the node has not given?"""
    status = pod.status
    if status.resize in _REFUSED_OR_WAITING:
        return True
    if any(condition.type == "PodResizePending" for condition in status.conditions):
        return True
    known = {each.name: each for each in status.container_statuses + status.init_container_statuses}
    return any(
        _differs(container, known[container.name])
        for container in pod.spec.containers + pod.spec.init_containers
        if container.name in known
    )


def _differs(container: Container, status: ContainerStatus) -> bool:
    allocated, wanted = status.allocated_resources, container.resources.requests or {}
    return allocated is not None and any(
        name in wanted and name in allocated and wanted[name] != allocated[name] for name in (CPU, MEMORY)
    )


def held_pod(pod: Pod) -> Pod:
    """The pod as its cgroups are sized; the same object when nothing is pending."""
    status = pod.status
    if not (status.container_statuses or status.init_container_statuses) or not is_resize_pending(pod):
        return pod
    spec = msgspec.structs.replace(
        pod.spec,
        containers=_held(pod.spec.containers, status.container_statuses),
        init_containers=_held(pod.spec.init_containers, status.init_container_statuses),
    )
    return Pod(pod.metadata, spec, status)


def _held(containers: tuple[Container, ...], statuses: tuple[ContainerStatus, ...]) -> tuple[Container, ...]:
    known = {status.name: status for status in statuses}
    return tuple(
        msgspec.structs.replace(each, resources=_allocated(each.resources, known[each.name]))
        if each.name in known
        else each
        for each in containers
    )


def _allocated(wanted: Resources, status: ContainerStatus) -> Resources:
    requests, limits = wanted.requests, wanted.limits
    if status.allocated_resources is not None:
        requests = {**(requests or {}), **status.allocated_resources}
    if status.resources is not None and status.resources.limits is not None:
        limits = {**(limits or {}), **status.resources.limits}
    return Resources(requests, limits, wanted.claims)
