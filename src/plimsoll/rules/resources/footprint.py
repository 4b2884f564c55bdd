"""What the scheduler, quota and kubectl count for a pod while a resize is pending (01 §6.1, 05 A1).

The pod may still use what it had, so status and spec are compared. Releases differ in what they compare: the rule is
the profile's `resize_footprint`.

Two containers with cpu 1 are resized, the first to 2 and then back, the second to 3. Spec 1 + 3, allocated 2 + 1,
actual 2 + 1: `containers` counts 2 + 3 = 5, `pod` max(4, 3, 3) = 4.

Kubernetes: staging/src/k8s.io/component-helpers/resource/helpers.go.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import Container, ContainerStatus, Pod, ResourceList, Resources, is_sidecar, listed
from plimsoll.rules.profile import Footprint
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.resources.claims import has_claims, with_claimed_limits, with_claims
from plimsoll.rules.resources.effective import (
    added,
    aggregate,
    larger,
    overridden,
    pod_level_requests_set,
    pod_level_set,
    pod_limits,
    with_overhead,
)

_NOTHING: ResourceList = {}
# What a container counts: its list in the spec, and its status.
Pick = Callable[[ResourceList, ContainerStatus | None], ResourceList]


def resize_infeasible(pod: Pod) -> bool:
    """The first PodResizePending condition decides, whatever its status (E-10)."""
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def counted_requests(
    pod: Pod,
    rule: Footprint = "containers",
    *,
    gates: Gates = DEFAULT_GATES,
    overhead: bool = True,
    absent: ResourceList = _NOTHING,
) -> ResourceList:
    total = _REQUESTS[rule](pod, gates, absent)
    return added(total, pod.spec.overhead) if pod.spec.overhead and overhead else total


def counted_limits(
    pod: Pod, rule: Footprint = "containers", *, gates: Gates = DEFAULT_GATES, overhead: bool = True
) -> ResourceList:
    if rule in ("documents", "allocated"):
        return pod_limits(pod, overhead=overhead)
    total = _pod_limits(pod, gates) if rule == "pod" else _container_limits(pod, rule, gates)
    return with_overhead(total, pod.spec.overhead) if pod.spec.overhead and overhead else total


# --- requests ---


def _by_documents(pod: Pod, gates: Gates, absent: ResourceList) -> ResourceList:
    """Allocated while InProgress or Infeasible, else max(spec, allocated).

    The documents have neither sidecars nor a pod level; both are counted in the same way.
    """
    settled = pod.status.resize in ("InProgress", "Infeasible")

    def counted(own: ResourceList, allocated: ResourceList | None) -> ResourceList:
        if allocated is None:
            return own
        return allocated if settled else larger(own, allocated)

    def pick(own: ResourceList, status: ContainerStatus | None) -> ResourceList:
        return own if status is None else counted(own, status.allocated_resources)

    total = _aggregate(pod, "requests", pick, absent, sidecars=True)
    resources = pod.spec.resources
    if pod_level_requests_set(resources):
        own = listed(resources, "requests")
        total = overridden(total, _kept_keys(counted(own, pod.status.allocated_resources), own))
    return total


def _by_allocated(pod: Pod, gates: Gates, absent: ResourceList) -> ResourceList:
    """1.27 to 1.31: max(spec, allocated) of regular containers, allocated alone when Infeasible."""
    infeasible = pod.status.resize == "Infeasible"

    def pick(own: ResourceList, status: ContainerStatus | None) -> ResourceList:
        if status is None:
            return own
        allocated = status.allocated_resources or _NOTHING
        return allocated if infeasible else larger(own, allocated)

    return _aggregate(pod, "requests", pick, absent)


def _by_actual(pod: Pod, gates: Gates, absent: ResourceList) -> ResourceList:
    """1.32: max(spec, actual) of regular containers, the actual alone when Infeasible."""
    infeasible = pod.status.resize == "Infeasible"

    def pick(own: ResourceList, status: ContainerStatus | None) -> ResourceList:
        if status is None or status.resources is None:
            return own
        actual = listed(status.resources, "requests")
        return actual if infeasible else larger(own, actual)

    total = _aggregate(pod, "requests", pick, absent)
    return _with_pod_level(total, pod.spec.resources, "requests", gates)


def _by_containers(pod: Pod, gates: Gates, absent: ResourceList) -> ResourceList:
    """1.33 to 1.36: max(spec, actual, allocated) per container; without spec when Infeasible (E-10, E-11)."""
    infeasible = resize_infeasible(pod)

    def pick(own: ResourceList, status: ContainerStatus | None) -> ResourceList:
        if status is None or status.resources is None:
            return own
        in_use = larger(listed(status.resources, "requests"), status.allocated_resources or _NOTHING)
        return in_use if infeasible else larger(own, in_use)

    total = _aggregate(pod, "requests", pick, absent, sidecars=True)
    resources = pod.spec.resources
    if pod_level_requests_set(resources, gates):
        counted = listed(resources, "requests")
        actual = pod.status.resources
        if gates.pod_level_status_counted and actual is not None:
            in_use = larger(actual.requests or _NOTHING, pod.status.allocated_resources or _NOTHING)
            counted = _kept_keys(in_use if infeasible else larger(counted, in_use), counted)
        total = overridden(total, counted)
    return total


def _by_pod(pod: Pod, gates: Gates, absent: ResourceList) -> ResourceList:
    """Since 1.37: the largest of the pod's sums of spec, allocated and actual; without spec when Infeasible.

    The pod's status has the sums of allocated and actual resources; the containers' are added up if it has none.
    """
    infeasible = resize_infeasible(pod)
    status = pod.status

    def allocated(own: ResourceList, found: ContainerStatus | None) -> ResourceList:
        if found is not None and found.allocated_resources is not None:
            return found.allocated_resources
        return _NOTHING if infeasible else own

    def actual(own: ResourceList, found: ContainerStatus | None) -> ResourceList:
        if found is not None and found.resources is not None and found.resources.requests is not None:
            return found.resources.requests
        return allocated(own, found)

    def claimed(total: ResourceList) -> ResourceList:
        return with_claims(total, pod) if has_claims(pod, gates) else total

    reported = status.resources.requests if status.resources is not None else None
    if gates.pod_level_status_counted and status.allocated_resources is not None and reported is not None:
        in_use = larger(reported, status.allocated_resources)
    else:
        in_use = larger(
            _aggregate(pod, "requests", actual, absent, everywhere=True),
            claimed(_aggregate(pod, "requests", allocated, absent, everywhere=True)),
        )
    total = in_use if infeasible else larger(claimed(_aggregate(pod, "requests", _spec, absent)), in_use)
    resources = pod.spec.resources
    if pod_level_requests_set(resources):
        counted = listed(resources, "requests")
        if gates.pod_level_status_counted and status.resources is not None:
            in_use = larger(reported or _NOTHING, status.allocated_resources or _NOTHING)
            counted = in_use if infeasible else larger(counted, in_use)
        total = overridden(total, counted)
    return total


_REQUESTS: dict[Footprint, Callable[[Pod, Gates, ResourceList], ResourceList]] = {
    "documents": _by_documents,
    "allocated": _by_allocated,
    "actual": _by_actual,
    "containers": _by_containers,
    "pod": _by_pod,
}


# --- limits ---


def _container_limits(pod: Pod, rule: Footprint, gates: Gates) -> ResourceList:
    """max(spec, actual); the actual alone when the resize is infeasible (E-10, E-11)."""
    infeasible = pod.status.resize == "Infeasible" if rule == "actual" else resize_infeasible(pod)

    def pick(own: ResourceList, status: ContainerStatus | None) -> ResourceList:
        if status is None or status.resources is None:
            return own
        in_use = listed(status.resources, "limits")
        return in_use if infeasible else larger(own, in_use)

    total = _aggregate(pod, "limits", pick, sidecars=rule == "containers")
    resources = pod.spec.resources
    if not pod_level_set(resources, gates):
        return total
    counted = listed(resources, "limits")
    actual = pod.status.resources
    if rule == "containers" and gates.pod_level_status_counted and actual is not None:
        in_use = actual.limits or _NOTHING
        if infeasible:
            counted = counted if actual.limits is None else _kept_keys(in_use, counted)
        else:
            counted = _kept_keys(larger(counted, in_use), counted)
    return overridden(total, counted, gates.pod_level_hugepages)


def _pod_limits(pod: Pod, gates: Gates) -> ResourceList:
    infeasible = resize_infeasible(pod)

    def actual(own: ResourceList, found: ContainerStatus | None) -> ResourceList:
        if found is not None and found.resources is not None and found.resources.limits is not None:
            return found.resources.limits
        return _NOTHING if infeasible else own

    status = pod.status.resources
    reported = status.limits if status is not None else None
    if gates.pod_level_status_counted and reported is not None:
        in_use = reported
    else:
        in_use = _aggregate(pod, "limits", actual, everywhere=True)
    spec = _aggregate(pod, "limits", _spec)
    if has_claims(pod, gates):
        spec = with_claimed_limits(spec, pod)
    total = in_use if infeasible else larger(spec, in_use)
    resources = pod.spec.resources
    if pod_level_set(resources):
        counted = listed(resources, "limits")
        if gates.pod_level_status_counted and status is not None:
            counted = reported or _NOTHING if infeasible else larger(counted, reported or _NOTHING)
        total = overridden(total, counted)
    return total


# --- shared ---


def _spec(own: ResourceList, _: ContainerStatus | None) -> ResourceList:
    return own


def _aggregate(
    pod: Pod,
    kind: str,
    pick: Pick,
    absent: ResourceList = _NOTHING,
    *,
    sidecars: bool = False,
    everywhere: bool = False,
) -> ResourceList:
    """The sum and maximum rule over what each container counts. Regular containers always have their status regarded,
    `sidecars` too, or init containers `everywhere`."""
    regular = {status.name: status for status in pod.status.container_statuses}
    initial = {status.name: status for status in pod.status.init_container_statuses}
    if everywhere:
        regular = initial = {**initial, **regular}

    def counted(container: Container) -> ResourceList:
        own = listed(container.resources, kind)
        regarded = everywhere or (sidecars and is_sidecar(container))
        return pick(own, initial.get(container.name)) if regarded else own

    return aggregate(
        [pick(listed(each.resources, kind), regular.get(each.name)) for each in pod.spec.containers],
        [(is_sidecar(each), counted(each)) for each in pod.spec.init_containers],
        absent,
    )


def _with_pod_level(total: ResourceList, resources: Resources | None, kind: str, gates: Gates) -> ResourceList:
    if not pod_level_requests_set(resources, gates):
        return total
    return overridden(total, listed(resources, kind), gates.pod_level_hugepages)


def _kept_keys(values: ResourceList, keys: ResourceList) -> ResourceList:
    """The spec decides which names pod level sets; a name that `values` lack counts as zero (E-11)."""
    return {name: values.get(name, ZERO) for name in keys}
