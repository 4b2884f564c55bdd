"""The walk of `batch`: one pod → its figures, in one pass over its containers.

Everything is added up in thousandths, which amounts are whole numbers of once R-2 has rounded them, and rounded up to
bytes and pieces at the end. Pods with pod-level resources and init containers go by name (`batch_by_name`), and so do
those with init containers and fractions of a byte.
"""

from __future__ import annotations

from plimsoll.rules.batch_by_name import figures_by_name, finished, has_fine_amounts, pod_level
from plimsoll.rules.defaulting import defaulted
from plimsoll.rules.effective import added, larger, with_overhead
from plimsoll.rules.figures import COMPUTE, Amounts, Ask, Figures, in_bounds, thousandths, whole
from plimsoll.rules.held import held_pod
from plimsoll.rules.objects import CPU, MEMORY, NO_STATUS, Pod, PodSpec, ResourceList, Resources
from plimsoll.rules.pod_policy import is_plain
from plimsoll.rules.policy import NodePolicy
from plimsoll.rules.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, class_of
from plimsoll.rules.quantity import MAX_INT64
from plimsoll.rules.sizes import has_page_size
from plimsoll.rules.values import declared_limits

_NOTHING: ResourceList = {}


def figures(pod: Pod, asks: list[Ask], policy: NodePolicy) -> Figures | None:
    """The pod's figures, and what each container asks for appended to `asks`, init containers first.

    None where only `pod_plan` knows what to do: an amount is negative or beyond every node, a resize is pending, the
    pod has a policy of its own.
    """
    if pod.metadata.annotations and not is_plain(pod):
        return None
    status = pod.status
    if status is not NO_STATUS and (status.container_statuses or status.init_container_statuses):
        pod = defaulted(pod, pod_level=policy.pod_level)
        if held_pod(pod) is not pod:
            return None
    spec = pod.spec
    block = spec.resources if policy.pod_level else None
    if block is None or not (spec.init_containers or has_fine_amounts(pod)):
        before = len(asks)
        found = _plain(pod, spec, asks, block, policy)
        if found is not None:
            return found
        del asks[before:]
    return figures_by_name(pod, asks, policy)


def _plain(pod: Pod, spec: PodSpec, asks: list[Ask], block: Resources | None, policy: NodePolicy) -> Figures | None:
    requested: Amounts = {}
    limited: Amounts = {}
    moments: list[tuple[Amounts, Amounts]] = []  # what plain init containers ask for of other names, each in its time
    cpu_request = memory_request = cpu_limit = memory_limit = 0
    asks_cpu = asks_memory = caps_cpu = caps_memory = False
    every_cpu = every_memory = only_compute = True
    init_containers, first = spec.init_containers, len(asks)
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
        if requests:  # where one is missing, the limit stands in (D-1)
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
                _add_others(limits, requests, *then)
                moments.append(then)
            else:
                _add_others(limits, requests, requested, limited)
        asks.append((container.name, cpu_ask, memory_ask, cpu_cap, memory_cap, memory_cap))
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
        if not all(sidecars):  # else the worst moment is when everybody runs
            mine = asks[first:]
            if not _all_whole(mine, memory_request, memory_limit):
                return None
            cpu_request, memory_request, cpu_limit, memory_limit = _worst_moment(
                sidecars, mine, cpu_request, memory_request, cpu_limit, memory_limit
            )
            for more_requested, more_limited in moments:
                requested, limited = larger(requested, more_requested), larger(limited, more_limited)
        if qos == BURSTABLE and not (every_cpu and every_memory):
            every_cpu, every_memory = declared_limits(pod, pod_level=policy.pod_level)
    overhead = spec.overhead
    if block is None and not overhead:
        memory_request, memory_limit = -(-memory_request // 1000), -(-memory_limit // 1000)
        if not only_compute and not _others_whole(requested, limited):
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
        more = thousandths(overhead)
        requested, limited = added(requested, more), with_overhead(limited, more)
        if not (in_bounds(requested) and in_bounds(limited)):
            return None
        requested, limited = whole(requested), whole(limited)
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


def _worst_moment(
    sidecars: list[bool], asks: list[Ask], cpu: int, memory: int, cpu_limit: int, memory_limit: int
) -> tuple[int, int, int, int]:
    """From sums over everybody to the most at any moment: `effective.peak`, of all four at once."""
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
            cpu -= cpu_ask  # gone when the regular containers come
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
    pod: Pod, block: Resources, asks: list[Ask], first: int, requested: Amounts, limited: Amounts, policy: NodePolicy
) -> Figures | None:
    """Containers without limits of their own get pod level's, and its cpu limit stands in for a request (02 §4.5)."""
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
    return name in (resources.requests or _NOTHING) or name in (resources.limits or _NOTHING)


def _all_whole(asks: list[Ask], memory_request: int, memory_limit: int) -> bool:
    """Whether no container asks for a fraction of a byte: then what each asks for, rounded up, adds up to the sums."""
    return (
        sum([ask[2] for ask in asks]) * 1000 == memory_request and sum([ask[4] for ask in asks]) * 1000 == memory_limit
    )


def _add_others(
    limits: ResourceList | None, requests: ResourceList | None, requested: Amounts, limited: Amounts
) -> None:
    """Add what is neither cpu nor memory, limits standing in for requests (D-1)."""
    requests = requests or _NOTHING
    for name, quantity in requests.items():
        if name != CPU and name != MEMORY:
            requested[name] = requested.get(name, 0) + quantity.tally
    if limits:
        for name, quantity in limits.items():
            if name != CPU and name != MEMORY:
                limited[name] = limited.get(name, 0) + quantity.tally
                if name not in requests:
                    requested[name] = requested.get(name, 0) + quantity.tally


def _others_whole(requested: Amounts, limited: Amounts) -> bool:
    """Bring what is neither cpu nor memory from thousandths to whole units; False where that cannot be done.

    Every name that is limited is requested too (D-1).
    """
    for name, amount in requested.items():
        limit = limited.get(name, 0)
        if amount + limit > MAX_INT64 or not has_page_size(name):
            return False
        requested[name] = -(-amount // 1000)
        if name in limited:
            limited[name] = -(-limit // 1000)
    return True
