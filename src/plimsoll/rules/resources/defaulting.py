"""Defaults that the API server sets when a pod is created (01 §3).

A missing request is set to the limit (D-1), missing pod-level values to those of the containers (D-2), and at the end
every amount is rounded up to a thousandth (R-2). Pod-level sums use the unrounded amounts, so the order matters. An
object that needs no change is returned as it is, so a pod that is already defaulted costs no copies.

Limit cpu 500m without a request: request 500m. Request 0.0001: 1m.

`admitted` sets the priority of the two built-in classes, which need no cluster (05 A5).

Kubernetes: pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import (
    CPU,
    HUGEPAGES_PREFIX,
    MEMORY,
    NO_RESOURCES,
    NO_STATUS,
    SYSTEM_CRITICAL_PRIORITY,
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResizePolicy,
    ResourceList,
    Resources,
    is_pod_level_resource,
    is_sidecar,
)
from plimsoll.rules.resources.effective import Amount, container_limits, container_requests

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_replaced = msgspec.structs.replace


def _with(struct: _Struct, name: str, value: object) -> _Struct:
    """msgspec.structs.replace for one field at a fraction of its cost: a copy, changed before it is shared."""
    changed: _Struct = struct.__copy__()  # type: ignore[attr-defined]
    msgspec.structs.force_setattr(changed, name, value)
    return changed


def defaulted(pod: Pod, *, gates: Gates = DEFAULT_GATES, resize_policy: bool = False, stored: Pod | None = None) -> Pod:
    """The pod as stored after create, or after an update of `stored`.

    `resize_policy` is profile `documents`'s D-3.
    """
    spec = pod.spec
    if not gates.sidecars and any(map(is_sidecar, spec.init_containers)):  # E-4: an API server drops the field
        spec = _with(spec, "init_containers", tuple(_plain(each) for each in spec.init_containers))
    resources = spec.resources
    if gates.pod_level and resources is not None and (resources.requests or resources.limits):
        # The sums use amounts as they are sent; since the fix they are computed from the stored ones.
        spec = _with_container_resources(spec, _with_rounded_requests if gates.fixed_defaulting else _with_requests)
        resources = _rounded(resources) if gates.fixed_defaulting else resources
        spec = _with(spec, "resources", _rounded(_with_aggregates(resources, Pod(spec=spec), gates)))
    elif resources is not None:
        spec = _with(spec, "resources", _rounded(resources))
    spec = _with_container_resources(spec, _with_rounded_requests)
    if spec.overhead:
        overhead = rounded_list(spec.overhead)
        if overhead is not spec.overhead:
            spec = _with(spec, "overhead", overhead)
    if resize_policy:
        before = {} if stored is None else {each.name: each for each in stored.spec.containers}
        spec = _replaced(
            spec, containers=tuple(_with_resize_policy(each, before.get(each.name)) for each in spec.containers)
        )
    status = pod.status
    if status is not NO_STATUS:
        status = _rounded_status(status)
    if spec is pod.spec and status is pod.status:
        return pod
    return Pod(pod.metadata, spec, status)


def _plain(container: Container) -> Container:
    return _with(container, "restart_policy", None) if is_sidecar(container) else container


def _with_container_resources(spec: PodSpec, change: Callable[[Resources], Resources]) -> PodSpec:
    containers = _changed(spec.containers, change)
    init_containers = _changed(spec.init_containers, change) if spec.init_containers else spec.init_containers
    if containers is spec.containers and init_containers is spec.init_containers:
        return spec
    spec = _with(spec, "containers", containers)
    return spec if init_containers is spec.init_containers else _with(spec, "init_containers", init_containers)


def _changed(containers: tuple[Container, ...], change: Callable[[Resources], Resources]) -> tuple[Container, ...]:
    result: list[Container] | None = None
    for index, container in enumerate(containers):
        before = container.resources
        if before is NO_RESOURCES:
            continue
        after = change(before)
        if after is not before:
            if result is None:
                result = list(containers)
            result[index] = _with(container, "resources", after)
    return containers if result is None else tuple(result)


def _with_requests(resources: Resources) -> Resources:
    """D-1: a limit without a request is also the request."""
    limits = resources.limits
    if limits is None:
        return resources
    requests = resources.requests
    if requests is None:
        return Resources(limits, limits, resources.claims)
    if limits.keys() <= requests.keys():
        return resources
    return Resources({**limits, **requests}, limits, resources.claims)


def _with_rounded_requests(resources: Resources) -> Resources:
    """D-1 and R-2 in one step, for pods without pod-level sums."""
    limits, requests = resources.limits, resources.requests
    if limits is None:
        if requests is None:
            return resources
        filled: ResourceList | None = requests
    elif requests is None:
        filled = limits
    else:
        filled = requests if limits.keys() <= requests.keys() else {**limits, **requests}
    filled, limits = rounded_list(filled), rounded_list(limits)
    if filled is requests and limits is resources.limits:
        return resources
    return Resources(filled, limits, resources.claims)


def _with_aggregates(resources: Resources, pod: Pod, gates: Gates) -> Resources:
    own = resources.requests or {}
    limited = container_limits(pod) if gates.fixed_defaulting or _has_hugepage_limits(pod.spec) else {}
    requests, limits = pod_level_defaults(
        own,
        resources.limits or {},
        container_requests(pod) if CPU not in own or MEMORY not in own else {},
        limited if gates.pod_level_hugepages else {},
        complete=gates.fixed_defaulting,
        hugepages=gates.pod_level_hugepages,
    )
    if gates.fixed_defaulting:
        limits |= _missing_limits(pod.spec, requests, limits, limited)
    return Resources(requests or resources.requests, limits or resources.limits, resources.claims)


def pod_level_defaults(
    requests: dict[str, Amount],
    limits: dict[str, Amount],
    container_requests: dict[str, Amount],
    container_limits: dict[str, Amount],
    *,
    complete: bool = False,
    hugepages: bool = True,
) -> tuple[dict[str, Amount], dict[str, Amount]]:
    """D-2: a missing pod request is taken from the container requests first, then from the pod limit.

    `complete`: also if pod level has no limits (PodLevelResourcesFixDefaulting).
    """
    requests, limits = dict(requests), dict(limits)
    for name, amount in container_limits.items():
        if name.startswith(HUGEPAGES_PREFIX) and name not in requests and name not in limits:
            limits[name] = amount
    if limits or complete:
        for name, amount in container_requests.items():
            if name in (CPU, MEMORY) and name not in requests:
                requests[name] = amount
        for name, amount in limits.items():
            if name not in requests and is_pod_level_resource(name, hugepages):
                requests[name] = amount
    return requests, limits


def _missing_limits(spec: PodSpec, requests: ResourceList, limits: ResourceList, limited: ResourceList) -> ResourceList:
    """D-2 since 1.37: the larger of pod request and container limits, where every container has a limit."""
    containers = spec.containers + spec.init_containers + spec.ephemeral_containers
    return {
        name: max(request, limited[name])
        for name, request in requests.items()
        if name not in limits
        and name in limited
        and is_pod_level_resource(name)
        and all(name in (each.resources.limits or {}) for each in containers)
    }


def _has_hugepage_limits(spec: PodSpec) -> bool:
    """Checked first: few pods have them, and aggregating costs time."""
    return any(
        name.startswith(HUGEPAGES_PREFIX)
        for container in spec.containers + spec.init_containers
        for name in container.resources.limits or ()
    )


def rounded_list(resources: ResourceList | None) -> ResourceList | None:
    """R-2: every amount up to a whole thousandth."""
    if resources:
        for quantity in resources.values():
            if quantity.is_fine:
                return {name: each.rounded_to_milli() for name, each in resources.items()}
    return resources


def _rounded(resources: Resources) -> Resources:
    requests, limits = rounded_list(resources.requests), rounded_list(resources.limits)
    if requests is resources.requests and limits is resources.limits:
        return resources
    return Resources(requests, limits, resources.claims)


def _rounded_status(status: PodStatus) -> PodStatus:
    return _replaced(
        status,
        container_statuses=tuple(map(_rounded_container_status, status.container_statuses)),
        init_container_statuses=tuple(map(_rounded_container_status, status.init_container_statuses)),
        resources=None if status.resources is None else _rounded(status.resources),
        allocated_resources=rounded_list(status.allocated_resources),
    )


def _rounded_container_status(status: ContainerStatus) -> ContainerStatus:
    return _replaced(
        status,
        resources=None if status.resources is None else _rounded(status.resources),
        allocated_resources=rounded_list(status.allocated_resources),
    )


def _with_resize_policy(container: Container, stored: Container | None) -> Container:
    """D-3: NotRequired for cpu and memory with a request and without a policy, after the user's own policies.

    An update keeps the policies of `stored`: a new request must not change them, because they are immutable.
    """
    present = {policy.resource_name for policy in container.resize_policy}
    requests = container.resources.requests or {}
    due = [name for name in (CPU, MEMORY) if name in requests]
    if stored is not None:
        due = [policy.resource_name for policy in stored.resize_policy if policy.restart_policy == "NotRequired"]
    missing = tuple(ResizePolicy(name, "NotRequired") for name in due if name not in present)
    return _replaced(container, resize_policy=container.resize_policy + missing) if missing else container


BUILT_IN = {
    "system-cluster-critical": SYSTEM_CRITICAL_PRIORITY,
    "system-node-critical": SYSTEM_CRITICAL_PRIORITY + 1000,
}


def admitted(pod: Pod) -> Pod:
    """The pod with the priority of its built-in class; the same object if there is nothing to set."""
    spec = pod.spec
    if spec.priority is not None or spec.priority_class_name not in BUILT_IN:
        return pod
    number = BUILT_IN[spec.priority_class_name]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(spec, priority=number))
