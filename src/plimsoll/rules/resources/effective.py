"""Requests and limits of a whole pod (01 §6, 05 A1): init containers, sidecars, pod level, overhead.

Regular containers and sidecars run together, so they add up. Init containers run one after the other, each beside the
sidecars started before it, so the largest moment counts. Pod-level values replace the aggregate name by name, and
overhead is added at the end. Resource lists are values: no function changes its arguments.

Containers 200m + 100m, sidecar 50m, init container 400m after the sidecar: max(200 + 100 + 50, 400 + 50) = 450m.

Kubernetes: staging/src/k8s.io/component-helpers/resource/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import Pod, ResourceList, Resources, is_pod_level_resource
from plimsoll.rules.quantity import Quantity
from plimsoll.rules.resources.claims import has_claims, with_claimed_limits, with_claims

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


def pod_level_requests_set(resources: Resources | None, gates: Gates = DEFAULT_GATES) -> bool:
    """At least one name that pod level supports, in `requests` (E-2)."""
    return resources is not None and _has_supported(resources.requests, gates)


def pod_level_limits_set(resources: Resources | None, gates: Gates = DEFAULT_GATES) -> bool:
    return resources is not None and _has_supported(resources.limits, gates)


def pod_level_set(resources: Resources | None, gates: Gates = DEFAULT_GATES) -> bool:
    """At least one supported name in `requests` or `limits` (E-2)."""
    return pod_level_requests_set(resources, gates) or pod_level_limits_set(resources, gates)


def _has_supported(names: Iterable[str] | None, gates: Gates) -> bool:
    return names is not None and any(is_pod_level_resource(name, gates.pod_level_hugepages) for name in names)


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
    if gates.claims and has_claims(pod, gates):
        requests = with_claims(requests, pod)
    if spec.resources is not None and gates.pod_level and pod_level_requests_set(spec.resources, gates):
        requests = overridden(requests, spec.resources.requests or _EMPTY, gates.pod_level_hugepages)
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
    if gates.claims and has_claims(pod, gates):
        limits = with_claimed_limits(limits, pod)
    if spec.resources is not None and gates.pod_level and pod_level_set(spec.resources, gates):
        limits = overridden(limits, spec.resources.limits or _EMPTY, gates.pod_level_hugepages)
    if spec.overhead and overhead:
        limits = with_overhead(limits, spec.overhead)
    return limits


def overridden(total: dict[str, Amount], pod_level: dict[str, Amount], hugepages: bool = True) -> dict[str, Amount]:
    """Pod-level amounts replace the sums, for the names that pod level supports."""
    result = dict(total)
    for name, amount in pod_level.items():
        if is_pod_level_resource(name, hugepages):
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
