"""The first stage of `batch`: one pod → its figures, in one pass over its containers.

Amounts are added in thousandths, in which they are whole numbers after R-2, and rounded up to bytes or pieces at the
end. Pods with both pod-level resources and init containers, or with init containers and fractions of a byte, take the
general way (`figures_by_name`): the rules of `rules.resources.effective`, `defaulting` and `qos` over thousandths.

Rows and figures are tuples, not structs: one is created per container, and the stages unpack them into columns.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.rules.explain.batch_amounts import (
    NOTHING,
    Amounts,
    add_others,
    in_bounds,
    others_whole,
    thousandths,
    whole,
)
from plimsoll.rules.model.objects import (
    CPU,
    MEMORY,
    NO_STATUS,
    Container,
    Pod,
    PodSpec,
    QoSClass,
    ResourceList,
    Resources,
    is_sidecar,
)
from plimsoll.rules.quantity import MAX_INT64
from plimsoll.rules.resources.allocated_status import allocated_from_status
from plimsoll.rules.resources.bounds import has_page_size
from plimsoll.rules.resources.defaulting import defaulted, pod_level_defaults
from plimsoll.rules.resources.effective import added, aggregate, larger, overridden, with_overhead
from plimsoll.rules.resources.node_policy import NodePolicy, is_plain
from plimsoll.rules.resources.oom_score import surplus_share
from plimsoll.rules.resources.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, class_of, pod_level_class
from plimsoll.rules.resources.values import declared_limits

# A container: name, cpu for its shares, memory request, cpu limit, own memory limit, and memory limit (its own or pod
# level's). Milli-cores and bytes, 0 for none.
ContainerRow = tuple[str, int, int, int, int, int]

# What changes the OOM scores of a pod's containers beside their own requests: their share of what pod level requests
# beyond them (O-3 step 3), and which init containers are sidecars (step 5).
OomAdjustment = tuple[int, list[bool]]

# A pod: class, effective requests, effective limits, cpu and memory limit of its cgroup (None: none), its OOM
# adjustment (None: none), and whether it names only cpu and memory.
Figures = tuple[QoSClass, Amounts, Amounts, int | None, int | None, OomAdjustment | None, bool]

COMPUTE = frozenset({CPU, MEMORY})


def figures_by_name(pod: Pod, asks: list[ContainerRow], policy: NodePolicy) -> Figures | None:
    """As `figures`, for any pod."""
    block = pod.spec.resources if policy.gates.pod_level else None
    if block is not None and has_fine_amounts(pod):
        pod = defaulted(pod)  # D-2 adds amounts before R-2 rounds them: thousandths would not be exact
        block = pod.spec.resources
    spec = pod.spec
    containers = spec.init_containers + spec.containers
    sidecars = [each.restart_policy == "Always" for each in spec.init_containers]
    limits = [thousandths(each.resources.limits) for each in containers]
    requests = [_requested(each, own) for each, own in zip(containers, limits, strict=True)]
    requested, limited = _aggregated(requests, sidecars), _aggregated(limits, sidecars)
    if not (in_bounds(requested) and in_bounds(limited)):
        return None
    level = None if block is None else pod_level(block, requested, limited, len(containers), policy)
    pod_cpu, pod_memory = (0, 0) if level is None else (level.cpu_cap, level.memory_cap)
    for container, wanted, capped in zip(containers, requests, limits, strict=True):
        cpu, own = capped.get(CPU, 0) or pod_cpu, -(-capped.get(MEMORY, 0) // 1000)
        # Without a cpu request the limit is used, also an inherited one (02 §4.5).
        memory = -(-wanted.get(MEMORY, 0) // 1000)
        asks.append((container.name, wanted.get(CPU, cpu), memory, cpu, own, own or pod_memory))
    if level is None:
        return finished(pod, _class_of_containers(requests, limits), requested, limited, 0, sidecars, policy)
    return finished(pod, level.qos, level.requests, level.limits, level.share, sidecars, policy)


class PodLevel(NamedTuple):
    """The sums over containers with a pod-level block applied (D-2, E-2), in thousandths."""

    qos: QoSClass
    requests: Amounts
    limits: Amounts
    cpu_cap: int  # the limit that containers inherit, in milli-cores and bytes
    memory_cap: int
    share: int  # of each container in the pod-level surplus


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
    """Totals in thousandths → the figures."""
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
        cpu_declared, memory_declared = declared_limits(pod, gates=policy.gates)
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
    """D-1: a missing request is the limit."""
    requests = thousandths(container.resources.requests)
    return requests if limits.keys() <= requests.keys() else {**limits, **requests}


def _aggregated(lists: list[Amounts], sidecars: list[bool]) -> Amounts:
    return aggregate(lists[len(sidecars) :], list(zip(sidecars, lists, strict=False)))


def _class_of_containers(requests: list[Amounts], limits: list[Amounts]) -> QoSClass:
    """QC-3: sums over all containers, including init containers."""
    wanted, capped = [_compute(each) for each in requests], [_compute(each) for each in limits]
    return class_of(all(map(all, capped)), _sum(wanted), _sum(capped))


def _compute(amounts: Amounts) -> tuple[int, int]:
    return amounts.get(CPU, 0), amounts.get(MEMORY, 0)


def _sum(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(each[0] for each in pairs), sum(each[1] for each in pairs)


def _bytes(amounts: Amounts) -> int:
    return -(-amounts.get(MEMORY, 0) // 1000)


def figures(pod: Pod, asks: list[ContainerRow], policy: NodePolicy) -> Figures | None:
    """The pod's figures; one row per container is appended to `asks`, init containers first.

    None if the pod needs `pod_plan`: an amount is negative or beyond 63 bits, a resize is pending, an annotation
    changes the policy, the release drops its sidecars, or pod level has other rules than in 1.36.
    """
    if pod.metadata.annotations and not is_plain(pod):
        return None
    if not policy.gates.sidecars and any(map(is_sidecar, pod.spec.init_containers)):
        return None
    status = pod.status
    if status is not NO_STATUS:
        if status.qos_class and not policy.gates.class_from_status:
            return None
        if status.container_statuses or status.init_container_statuses:
            pod = defaulted(pod, gates=policy.gates)
            if allocated_from_status(pod) is not pod:
                return None
    block = pod.spec.resources
    if block is not None:
        if not policy.gates.pod_level:
            block = None
        elif policy.other_pod_level:
            return None
        elif pod.spec.init_containers or has_fine_amounts(pod):
            return figures_by_name(pod, asks, policy)
    first = len(asks)
    found = _plain(pod, asks, first, block, policy)
    if found is None:
        del asks[first:]
        return figures_by_name(pod, asks, policy)
    return found


# Sums over all containers: cpu and memory requested and limited in thousandths; which of the four any container names;
# whether every container has a cpu and a memory limit; other resources requested and limited, and the same at the
# moment of each ordinary init container; whether only cpu and memory are named.
Sums = tuple[
    int, int, int, int, bool, bool, bool, bool, bool, bool, Amounts, Amounts, list[tuple[Amounts, Amounts]], bool
]


def _sums(spec: PodSpec, asks: list[ContainerRow], first: int) -> Sums:
    """One row per container is appended to `asks`, which has `first` rows so far."""
    requested: Amounts = {}
    limited: Amounts = {}
    moments: list[tuple[Amounts, Amounts]] = []
    cpu_request = memory_request = cpu_limit = memory_limit = 0
    asks_cpu = asks_memory = caps_cpu = caps_memory = False
    every_cpu = every_memory = only_compute = True
    init_containers = spec.init_containers
    for container in init_containers + spec.containers if init_containers else spec.containers:
        resources = container.resources
        requests, limits = resources.requests, resources.limits
        cpu = memory = None
        cpu_ask = memory_ask = cpu_cap = memory_cap = others = 0
        if limits:
            others = len(limits)
            if (cpu := limits.get(CPU)) is not None:
                others -= 1
                caps_cpu = True
                cpu_cap = cpu.tally
                cpu_limit += cpu_cap
            if (memory := limits.get(MEMORY)) is not None:
                others -= 1
                caps_memory = True
                memory_cap = memory.value
                memory_limit += memory.tally
        if requests:  # a missing one is the limit (D-1)
            others += len(requests)
            if (own := requests.get(CPU)) is not None:
                others -= 1
                cpu = own
            if (own := requests.get(MEMORY)) is not None:
                others -= 1
                memory = own
        if cpu is not None:
            asks_cpu = True
            cpu_ask = cpu.tally
            cpu_request += cpu_ask
        if memory is not None:
            asks_memory = True
            memory_ask = memory.value
            memory_request += memory.tally
        if not cpu_cap:
            every_cpu = False
        if not memory_cap:
            every_memory = False
        if others:
            only_compute = False
            if len(asks) - first < len(init_containers) and container.restart_policy != "Always":
                then = dict(requested), dict(limited)  # beside the sidecars before it
                add_others(limits, requests, *then)
                moments.append(then)
            else:
                add_others(limits, requests, requested, limited)
        asks.append((container.name, cpu_ask, memory_ask, cpu_cap, memory_cap, memory_cap))
    return (
        cpu_request, memory_request, cpu_limit, memory_limit,
        asks_cpu, asks_memory, caps_cpu, caps_memory, every_cpu, every_memory,
        requested, limited, moments, only_compute,
    )  # fmt: skip


def _plain(
    pod: Pod, asks: list[ContainerRow], first: int, block: Resources | None, policy: NodePolicy
) -> Figures | None:
    """The figures from one pass; None if the pod needs `figures_by_name`. `asks` has `first` rows so far."""
    spec = pod.spec
    init_containers = spec.init_containers
    (
        cpu_request, memory_request, cpu_limit, memory_limit,
        asks_cpu, asks_memory, caps_cpu, caps_memory, every_cpu, every_memory,
        requested, limited, moments, only_compute,
    ) = _sums(spec, asks, first)  # fmt: skip
    if cpu_request + memory_request + cpu_limit + memory_limit > MAX_INT64:
        return None
    qos = pod.status.qos_class or class_of(
        every_cpu and every_memory, (cpu_request, memory_request), (cpu_limit, memory_limit)
    )
    apart = None
    if init_containers:
        sidecars = [each.restart_policy == "Always" for each in init_containers]
        if any(sidecars):
            apart = 0, sidecars
        if not all(sidecars):  # otherwise the peak is when all containers run
            mine = asks[first:]
            if not _all_whole(mine, memory_request, memory_limit):
                return None
            cpu_request, memory_request, cpu_limit, memory_limit = _worst_moment(
                sidecars, mine, cpu_request, memory_request, cpu_limit, memory_limit
            )
            for more_requested, more_limited in moments:
                requested, limited = larger(requested, more_requested), larger(limited, more_limited)
        if qos == BURSTABLE and not (every_cpu and every_memory):
            every_cpu, every_memory = declared_limits(pod, gates=policy.gates)
    overhead = spec.overhead
    if block is None and not overhead:
        memory_request, memory_limit = -(-memory_request // 1000), -(-memory_limit // 1000)
        if not only_compute and not others_whole(requested, limited):
            return None
    if asks_cpu:
        requested[CPU] = cpu_request
    if asks_memory:
        requested[MEMORY] = memory_request
    if caps_cpu:
        limited[CPU] = cpu_limit
    if caps_memory:
        limited[MEMORY] = memory_limit
    if block is not None:
        if not (only_compute or (in_bounds(requested) and in_bounds(limited))):
            return None
        return _under_pod_level(pod, block, asks, first, requested, limited, policy)
    if overhead:
        if not (only_compute and overhead.keys() <= COMPUTE):
            return finished(pod, qos, requested, limited, 0, [] if apart is None else apart[1], policy)
        totals = _with_overhead(requested, limited, overhead)
        if totals is None:
            return None
        requested, limited = totals
    if qos == BEST_EFFORT:
        return qos, requested, limited, None, None, apart, only_compute
    return (
        qos,
        requested,
        limited,
        limited.get(CPU, 0) if every_cpu or qos == GUARANTEED else None,
        limited.get(MEMORY, 0) if every_memory or qos == GUARANTEED else None,
        apart,
        only_compute,
    )


def _with_overhead(requested: Amounts, limited: Amounts, overhead: ResourceList) -> tuple[Amounts, Amounts] | None:
    """Totals of cpu and memory in thousandths → whole totals with the overhead; None if they are out of bounds."""
    more = thousandths(overhead)
    requested, limited = added(requested, more), with_overhead(limited, more)
    return (whole(requested), whole(limited)) if in_bounds(requested) and in_bounds(limited) else None


def _worst_moment(
    sidecars: list[bool], asks: list[ContainerRow], cpu: int, memory: int, cpu_limit: int, memory_limit: int
) -> tuple[int, int, int, int]:
    """From sums over all containers to the peak: `effective.peak`, for all four at once."""
    cpu_beside = memory_beside = cpu_cap_beside = memory_cap_beside = 0  # of the sidecars that run by then
    most_cpu = most_memory = most_cpu_cap = most_memory_cap = 0
    for sidecar, (_, cpu_ask, memory_ask, cpu_cap, memory_cap, _) in zip(sidecars, asks, strict=False):
        if sidecar:
            cpu_beside += cpu_ask
            memory_beside += memory_ask
            cpu_cap_beside += cpu_cap
            memory_cap_beside += memory_cap
            continue
        if cpu_ask:
            cpu -= cpu_ask  # finished before the regular containers start
            if cpu_beside + cpu_ask > most_cpu:
                most_cpu = cpu_beside + cpu_ask
        if memory_ask:
            memory -= memory_ask * 1000
            if memory_beside + memory_ask > most_memory:
                most_memory = memory_beside + memory_ask
        if cpu_cap:
            cpu_limit -= cpu_cap
            if cpu_cap_beside + cpu_cap > most_cpu_cap:
                most_cpu_cap = cpu_cap_beside + cpu_cap
        if memory_cap:
            memory_limit -= memory_cap * 1000
            if memory_cap_beside + memory_cap > most_memory_cap:
                most_memory_cap = memory_cap_beside + memory_cap
    return (
        max(cpu, most_cpu),
        max(memory, most_memory * 1000),
        max(cpu_limit, most_cpu_cap),
        max(memory_limit, most_memory_cap * 1000),
    )


def _under_pod_level(
    pod: Pod,
    block: Resources,
    asks: list[ContainerRow],
    first: int,
    requested: Amounts,
    limited: Amounts,
    policy: NodePolicy,
) -> Figures | None:
    """Containers without limits inherit pod level's; an inherited cpu limit replaces a missing request (02 §4.5)."""
    level = pod_level(block, requested, limited, len(asks) - first, policy)
    if level.cpu_cap or level.memory_cap:
        for at, container in enumerate(pod.spec.containers, first):
            name, cpu, memory, cpu_cap, own, _ = asks[at]
            if not cpu_cap:
                cpu_cap = level.cpu_cap
                if not cpu and not _names(container.resources, CPU):
                    cpu = cpu_cap
            asks[at] = (name, cpu, memory, cpu_cap, own, own or level.memory_cap)
    return finished(pod, level.qos, level.requests, level.limits, level.share, [], policy)


def _names(resources: Resources, name: str) -> bool:
    return name in (resources.requests or NOTHING) or name in (resources.limits or NOTHING)


def _all_whole(asks: list[ContainerRow], memory_request: int, memory_limit: int) -> bool:
    """Whether no container requests a fraction of a byte: then the rounded requests add up to the sums."""
    return (
        sum([ask[2] for ask in asks]) * 1000 == memory_request and sum([ask[4] for ask in asks]) * 1000 == memory_limit
    )
