"""The figures of a pod with pod-level resources: the rules of `effective`, `defaulting` and `qos`, over thousandths."""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.rules.defaulting import defaulted, pod_level_defaults
from plimsoll.rules.effective import added, aggregate, overridden, with_overhead
from plimsoll.rules.figures import COMPUTE, Amounts, Ask, Figures, in_bounds, thousandths, whole
from plimsoll.rules.objects import CPU, MEMORY, Container, Pod, QoSClass, Resources
from plimsoll.rules.oom import surplus_share
from plimsoll.rules.policy import NodePolicy
from plimsoll.rules.qos import BURSTABLE, GUARANTEED, class_of, pod_level_class
from plimsoll.rules.sizes import has_page_size
from plimsoll.rules.values import declared_limits


def figures_by_name(pod: Pod, asks: list[Ask], policy: NodePolicy) -> Figures | None:
    """As `batch_walk.figures`, for any pod."""
    block = pod.spec.resources if policy.pod_level else None
    if block is not None and has_fine_amounts(pod):
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
    level = None if block is None else pod_level(block, requested, limited, len(everybody), policy)
    pod_cpu, pod_memory = (0, 0) if level is None else (level.cpu_cap, level.memory_cap)
    for container, wanted, capped in zip(everybody, requests, limits, strict=True):
        cpu, own = capped.get(CPU, 0) or pod_cpu, -(-capped.get(MEMORY, 0) // 1000)
        # The limit stands in for a cpu request that is missing, also one that pod level hands down (02 §4.5).
        memory = -(-wanted.get(MEMORY, 0) // 1000)
        asks.append((container.name, wanted.get(CPU, cpu), memory, cpu, own, own or pod_memory))
    if level is None:
        return finished(pod, _class_of_containers(requests, limits), requested, limited, 0, sidecars, policy)
    return finished(pod, level.qos, level.requests, level.limits, level.share, sidecars, policy)


class PodLevel(NamedTuple):
    """What a pod-level block makes of the sums over containers (D-2, E-2), in thousandths."""

    qos: QoSClass
    requests: Amounts
    limits: Amounts
    cpu_cap: int  # what containers without a limit get, in milli-cores and bytes
    memory_cap: int
    share: int  # of each container in what pod level requests beyond them


def pod_level(block: Resources, requested: Amounts, limited: Amounts, count: int, policy: NodePolicy) -> PodLevel:
    requests, limits, share = thousandths(block.requests), thousandths(block.limits), 0
    if requests or limits:
        requests, limits = pod_level_defaults(requests, limits, requested, limited)
        if policy.pod_level_oom_share and requests.get(MEMORY):
            share = surplus_share(_bytes(requests), _bytes(requested), count)
        requested, limited = overridden(requested, requests), overridden(limited, limits)
    qos = pod_level_class(_compute(requests), _compute(limits), bool(limits))
    return PodLevel(qos, requested, limited, limits.get(CPU, 0), _bytes(limits), share)


def finished(
    pod: Pod,
    qos: QoSClass,
    requested: Amounts,
    limited: Amounts,
    share: int,
    sidecars: list[bool],
    policy: NodePolicy,
) -> Figures | None:
    """From what is asked for in all, in thousandths, to the figures."""
    qos = pod.status.qos_class or qos
    if pod.spec.overhead:
        overhead = thousandths(pod.spec.overhead)
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
    return (
        qos,
        requested,
        limited,
        limited.get(CPU, 0) if cpu_declared else None,
        limited.get(MEMORY, 0) if memory_declared else None,
        (share, sidecars) if share or any(sidecars) else None,
        only_compute,
    )


def has_fine_amounts(pod: Pod) -> bool:
    return any(map(_is_fine, pod.spec.init_containers + pod.spec.containers))


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
