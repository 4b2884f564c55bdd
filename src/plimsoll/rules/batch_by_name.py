"""The figures of a pod with pod-level resources: the rules of `effective`, `defaulting` and `qos`, over thousandths."""

from __future__ import annotations

from plimsoll.rules.defaulting import defaulted, pod_level_defaults
from plimsoll.rules.effective import added, aggregate, overridden, with_overhead
from plimsoll.rules.figures import COMPUTE, Amounts, Ask, Figures, in_bounds, thousandths, whole
from plimsoll.rules.objects import CPU, MEMORY, Container, Pod, QoSClass
from plimsoll.rules.oom import surplus_share
from plimsoll.rules.policy import NodePolicy
from plimsoll.rules.qos import BURSTABLE, GUARANTEED, class_of, pod_level_class
from plimsoll.rules.sizes import has_page_size
from plimsoll.rules.values import declared_limits


def figures_by_name(pod: Pod, asks: list[Ask], policy: NodePolicy) -> Figures | None:
    """As `batch_walk.figures`, for any pod."""
    block = pod.spec.resources if policy.pod_level else None
    if block is not None and any(map(_is_fine, pod.spec.init_containers + pod.spec.containers)):
        pod = defaulted(pod)  # D-2 adds up what R-2 has not rounded yet: thousandths would not be exact
        block = pod.spec.resources
    spec = pod.spec
    everybody = spec.init_containers + spec.containers
    sidecars = [each.restart_policy == "Always" for each in spec.init_containers]
    limits = [thousandths(each.resources.limits) for each in everybody]
    requests = [_requested(each, own) for each, own in zip(everybody, limits, strict=True)]
    requested, limited = _aggregated(requests, sidecars), _aggregated(limits, sidecars)
    if not (in_bounds(requested) and in_bounds(limited)):
        return None
    pod_limits: Amounts = {}
    share = 0
    if block is None:
        qos = _class_of_containers(requests, limits)
    else:
        pod_requests, pod_limits = thousandths(block.requests), thousandths(block.limits)
        if pod_requests or pod_limits:
            pod_requests, pod_limits = pod_level_defaults(pod_requests, pod_limits, requested, limited)
            if policy.pod_level_oom_share and pod_requests.get(MEMORY):
                share = surplus_share(_bytes(pod_requests), _bytes(requested), len(everybody))
            requested, limited = overridden(requested, pod_requests), overridden(limited, pod_limits)
        qos = pod_level_class(_compute(pod_requests), _compute(pod_limits), bool(pod_limits))
    qos = pod.status.qos_class or qos
    if spec.overhead:
        overhead = thousandths(spec.overhead)
        requested, limited = added(requested, overhead), with_overhead(limited, overhead)
    if not (in_bounds(requested) and in_bounds(limited)):
        return None
    only_compute = requested.keys() <= COMPUTE
    if not only_compute and not all(map(has_page_size, requested)):
        return None
    requested, limited = whole(requested), whole(limited)
    cpu_declared = memory_declared = qos == GUARANTEED
    if qos == BURSTABLE:
        cpu_declared, memory_declared = declared_limits(pod, pod_level=policy.pod_level)
    pod_cpu, pod_memory = pod_limits.get(CPU, 0), _bytes(pod_limits)
    for container, wanted, capped in zip(everybody, requests, limits, strict=True):
        cpu, own = capped.get(CPU, 0) or pod_cpu, -(-capped.get(MEMORY, 0) // 1000)
        # The limit stands in for a cpu request that is missing, also one that pod level hands down (02 §4.5).
        memory = -(-wanted.get(MEMORY, 0) // 1000)
        asks.append((container.name, wanted.get(CPU, cpu), memory, cpu, own, own or pod_memory))
    return (
        qos,
        requested,
        limited,
        limited.get(CPU, 0) if cpu_declared else None,
        limited.get(MEMORY, 0) if memory_declared else None,
        (share, sidecars) if share or any(sidecars) else None,
        only_compute,
    )


def _is_fine(container: Container) -> bool:
    for amounts in (container.resources.requests, container.resources.limits):
        if amounts:
            for each in amounts.values():
                if each.is_fine:
                    return True
    return False


def _requested(container: Container, limits: Amounts) -> Amounts:
    """D-1: limits stand in for the requests that are missing."""
    requests = thousandths(container.resources.requests)
    return requests if limits.keys() <= requests.keys() else {**limits, **requests}


def _aggregated(lists: list[Amounts], sidecars: list[bool]) -> Amounts:
    return aggregate(lists[len(sidecars) :], list(zip(sidecars, lists, strict=False)))


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
