"""The figures of a pod with pod-level resources, by the rules of `effective`, `defaulting` and `qos`, over thousandths."""

from __future__ import annotations

from plimsoll.rules.defaulting import defaulted, pod_level_defaults
from plimsoll.rules.effective import added, aggregate, overridden, with_overhead
from plimsoll.rules.figures import Amounts, Columns, Figures, in_bounds, thousandths, whole
from plimsoll.rules.objects import CPU, MEMORY, Container, Pod, QoSClass, ResourceList
from plimsoll.rules.oom import surplus_share
from plimsoll.rules.policy import NodePolicy
from plimsoll.rules.qos import BURSTABLE, GUARANTEED, class_of, pod_level_class
from plimsoll.rules.sizes import has_page_size
from plimsoll.rules.values import declared_limits


def figures_by_name(pod: Pod, columns: Columns, start: int, end: int, policy: NodePolicy) -> Figures | None:
    """As `batch_walk.figures`, for any pod."""
    block = pod.spec.resources if policy.pod_level else None
    if block is not None and any(map(_is_fine, columns.requests[start:end])):
        pod = defaulted(pod)  # D-2 adds up what R-2 has not rounded yet: thousandths would not be exact
        block = pod.spec.resources
    spec = pod.spec
    limits = [thousandths(each) for each in columns.limits[start:end]]
    requests = [_requested(*each) for each in zip(spec.init_containers + spec.containers, limits, strict=True)]
    sidecars = [each.restart_policy == "Always" for each in spec.init_containers]
    requested, limited = _aggregated(requests, sidecars), _aggregated(limits, sidecars)
    if not (in_bounds(requested) and in_bounds(limited)):
        return None
    share = 0
    if block is None:
        qos = _class_of_containers(requests, limits)
    else:
        pod_requests, pod_limits = thousandths(block.requests), thousandths(block.limits)
        if pod_requests or pod_limits:
            pod_requests, pod_limits = pod_level_defaults(pod_requests, pod_limits, requested, limited)
            if policy.pod_level_oom_share and pod_requests.get(MEMORY):
                share = surplus_share(_bytes(pod_requests), _bytes(requested), end - start)
            requested, limited = overridden(requested, pod_requests), overridden(limited, pod_limits)
            _hand_down(pod_limits, columns, start, end)
        qos = pod_level_class(_compute(pod_requests), _compute(pod_limits), bool(pod_limits))
    qos = pod.status.qos_class or qos
    if spec.overhead:
        overhead = thousandths(spec.overhead)
        requested, limited = added(requested, overhead), with_overhead(limited, overhead)
    if not (in_bounds(requested) and in_bounds(limited) and all(map(has_page_size, requested.keys() | limited.keys()))):
        return None
    requested, limited = whole(requested), whole(limited)
    cpu_declared = memory_declared = qos == GUARANTEED
    if qos == BURSTABLE:
        cpu_declared, memory_declared = declared_limits(pod, pod_level=policy.pod_level)
    return (
        qos,
        requested,
        limited,
        limited.get(CPU, 0) if cpu_declared else None,
        limited.get(MEMORY, 0) if memory_declared else None,
        share,
    )


def _is_fine(resources: ResourceList) -> bool:
    return any([each.is_fine for each in resources.values()])  # noqa: C419  a list is faster


def _requested(container: Container, limits: Amounts) -> Amounts:
    """D-1: limits stand in for the requests that are missing."""
    requests = thousandths(container.resources.requests)
    return requests if limits.keys() <= requests.keys() else {**limits, **requests}


def _aggregated(lists: list[Amounts], sidecars: list[bool]) -> Amounts:
    return aggregate(lists[len(sidecars) :], list(zip(sidecars, lists, strict=False)))


def _hand_down(pod_limits: Amounts, columns: Columns, start: int, end: int) -> None:
    """Containers without limits have the pod's (02 §4.4, §4.5); one without a cpu request, shares of its limit."""
    cpu, memory = pod_limits.get(CPU, 0), _bytes(pod_limits)
    for index in range(start, end):
        columns.cpu_limits[index] = columns.cpu_limits[index] or cpu
        columns.memory_limits[index] = columns.memory_limits[index] or memory
        if CPU not in columns.requests[index]:
            columns.cpu_requests[index] = columns.cpu_limits[index]


def _class_of_containers(requests: list[Amounts], limits: list[Amounts]) -> QoSClass:
    """QC-3: sums over everybody, init containers too."""
    wanted, capped = [_compute(each) for each in requests], [_compute(each) for each in limits]
    return class_of(all(map(all, capped)), _sum(wanted), _sum(capped))


def _compute(amounts: Amounts) -> tuple[int, int]:
    return amounts.get(CPU, 0), amounts.get(MEMORY, 0)


def _sum(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(each[0] for each in pairs), sum(each[1] for each in pairs)


def _bytes(amounts: Amounts) -> int:
    return -(-amounts.get(MEMORY, 0) // 1000)
