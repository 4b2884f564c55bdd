"""Many pods at once: the same rules as `plan.pod_plan`, one stage after the other over a whole block.

A processor is good at doing one small thing many times over. So the block is walked once, pod by pod, for figures; then
each rule (`container_cgroup`, `files`, `pod_cgroup` …) runs over all containers, then over all pods. No rule lives
here, only the walk: it handles pods without pod-level resources; the others take `pod_plan` one by one. Figures are in
thousandths, which is exact for amounts that were defaulted (R-2). A property test holds both ways equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from plimsoll.rules.effective import added, aggregate, with_overhead
from plimsoll.rules.files import Files, files_v1, files_v2, hugetlb_files
from plimsoll.rules.held import held_pod
from plimsoll.rules.hierarchy import UNKNOWN_UID
from plimsoll.rules.objects import CPU, MEMORY, NO_STATUS, Container, Pod, QoSClass, is_sidecar
from plimsoll.rules.oom import burstable_score, burstable_scores, clamped, pod_score
from plimsoll.rules.plan import ContainerPlan, Placement, PodPlan, pod_plan
from plimsoll.rules.policy import NodePolicy, Weight
from plimsoll.rules.qos import BEST_EFFORT, GUARANTEED, class_of
from plimsoll.rules.quantity import MAX_INT64
from plimsoll.rules.sizes import fits
from plimsoll.rules.values import Values, container_cgroup, declared_limits, hugepage_limits, pod_cgroup

_USUAL = frozenset({CPU, MEMORY})
_Figures = dict[str, int]
# name, cpu request (None: none), memory request, cpu limit, memory limit
_Ask = tuple[str, int | None, int, int, int]


def block_plans(pods: Sequence[Pod], policy: NodePolicy, place: Placement) -> list[PodPlan]:
    """The plan of each pod, in order. Raises what `pod_plan` raises, for the first pod that is at fault."""
    if policy.hugepage_sizes or policy.limited_swap or policy.static_cpus or place.driver == "systemd":
        return [pod_plan(pod, policy, place) for pod in pods]
    walked: list[Pod] = []
    asks: list[_Ask] = []
    ends: list[int] = []
    columns: list[tuple[QoSClass, _Figures, _Figures, int | None, int | None]] = []
    plans: list[PodPlan | None] = []
    for pod in pods:
        figures = _figures(pod, asks)
        if figures is None:
            plans.append(pod_plan(pod, policy, place))
        else:
            plans.append(None)
            walked.append(pod)
            ends.append(len(asks))
            columns.append(figures)
    if walked:
        made = iter(_made(walked, asks, ends, columns, policy, place))
        return [next(made) if plan is None else plan for plan in plans]
    return [plan for plan in plans if plan is not None]


def _figures(pod: Pod, asks: list[_Ask]) -> tuple[QoSClass, _Figures, _Figures, int | None, int | None] | None:
    """Class, requests, limits, and the pod's cpu and memory limits where declared; None: not for this walk.

    What each container asks for is appended to `asks`, init containers first.
    """
    spec = pod.spec
    if spec.resources is not None or (pod.status is not NO_STATUS and held_pod(pod) is not pod):
        return None
    if spec.overhead and any(quantity.nanos < 0 for quantity in spec.overhead.values()):
        return None
    init_containers, before = spec.init_containers, len(asks)
    walk = _walked(init_containers + spec.containers if init_containers else spec.containers, asks)
    if walk is None:
        del asks[before:]
        return None
    requests, limits, every_cpu, every_memory = walk
    qos = pod.status.qos_class or class_of(
        every_cpu and every_memory,
        (requests.get(CPU, 0), requests.get(MEMORY, 0)),
        (limits.get(CPU, 0), limits.get(MEMORY, 0)),
    )
    if init_containers:
        requests = _peak(_requested, pod)
        limits = _peak(_limited, pod)
        every_cpu, every_memory = declared_limits(pod)
    if spec.overhead:
        overhead = {name: quantity.milli for name, quantity in spec.overhead.items()}
        requests, limits = added(requests, overhead), with_overhead(limits, overhead)
    requests = {name: milli if name == CPU else -(-milli // 1000) for name, milli in requests.items()}
    limits = {name: milli if name == CPU else -(-milli // 1000) for name, milli in limits.items()}
    if qos == BEST_EFFORT:
        return qos, requests, limits, None, None
    return (
        qos,
        requests,
        limits,
        limits.get(CPU, 0) if every_cpu or qos == GUARANTEED else None,
        limits.get(MEMORY, 0) if every_memory or qos == GUARANTEED else None,
    )


def _walked(containers: Iterable[Container], asks: list[_Ask]) -> tuple[_Figures, _Figures, bool, bool] | None:
    """Sums of requests and limits, and whether all containers have a cpu, a memory limit.

    None where an amount is negative or beyond every node: `pod_plan` knows what to say then.
    """
    requested: _Figures = {}
    limited: _Figures = {}
    cpu_request = memory_request = cpu_limit = memory_limit = 0
    every_cpu = every_memory = True
    for container in containers:
        resources = container.resources
        requests, limits = resources.requests, resources.limits
        cpu = memory = cpu_ask = None
        memory_ask = cpu_cap = memory_cap = 0
        if limits:
            if (cpu := limits.get(CPU)) is not None:
                cpu_cap = cpu.milli
                limited[CPU] = cpu_limit = cpu_limit + cpu_cap
            if (memory := limits.get(MEMORY)) is not None:
                memory_cap = memory.value
                limited[MEMORY] = memory_limit = memory_limit + memory.milli
        if requests:
            cpu, memory = requests.get(CPU, cpu), requests.get(MEMORY, memory)  # D-1
        if cpu is not None:
            cpu_ask = cpu.milli
            requested[CPU] = cpu_request = cpu_request + cpu_ask
        if memory is not None:
            memory_ask = memory.value
            requested[MEMORY] = memory_request = memory_request + memory.milli
        if not cpu_cap:
            every_cpu = False
        if not memory_cap:
            every_memory = False
        if memory_ask < 0 or cpu_cap < 0 or memory_cap < 0 or (cpu_ask is not None and cpu_ask < 0):
            return None
        if (limits and not limits.keys() <= _USUAL) or (requests and not requests.keys() <= _USUAL):
            _add_others(_requested(container), requested)
            _add_others(_limited(container), limited)
            if not (fits(requested) and fits(limited)) or min(*requested.values(), *limited.values(), 0) < 0:
                return None
        asks.append((container.name, cpu_ask, memory_ask, cpu_cap, memory_cap))
    if memory_request > MAX_INT64 or memory_limit > MAX_INT64 or cpu_request > MAX_INT64 or cpu_limit > MAX_INT64:
        return None
    return requested, limited, every_cpu, every_memory


def _add_others(figures: _Figures, total: _Figures) -> None:
    for name, milli in figures.items():
        if name not in _USUAL:
            total[name] = total.get(name, 0) + milli


def _requested(container: Container) -> _Figures:
    """Requests in thousandths, limits standing in for those that are missing (D-1)."""
    resources = container.resources
    return {name: each.milli for name, each in {**(resources.limits or {}), **(resources.requests or {})}.items()}


def _limited(container: Container) -> _Figures:
    return {name: each.milli for name, each in (container.resources.limits or {}).items()}


def _peak(figures: Callable[[Container], _Figures], pod: Pod) -> _Figures:
    """The sum and maximum rule over init containers and sidecars, on figures."""
    return aggregate(
        [figures(each) for each in pod.spec.containers],
        [(is_sidecar(each), figures(each)) for each in pod.spec.init_containers],
    )


def _made(
    pods: Sequence[Pod],
    asks: Sequence[_Ask],
    ends: Sequence[int],
    columns: Sequence[tuple[QoSClass, _Figures, _Figures, int | None, int | None]],
    policy: NodePolicy,
    place: Placement,
) -> Iterable[PodPlan]:
    """Stage by stage: all containers, then all pods."""
    classes, requests, limits, cpu_limits, memory_limits = zip(*columns, strict=True)
    containers = _container_plans(pods, asks, ends, classes, policy)
    values = list(
        map(
            pod_cgroup,
            classes,
            [each.get(CPU, 0) for each in requests],
            [each.get(MEMORY, 0) for each in requests],
            cpu_limits,
            memory_limits,
            map(hugepage_limits, requests),
            repeat(policy),
        )
    )
    metadata = [pod.metadata for pod in pods]
    parents = place.parents
    return map(
        PodPlan,
        [each.namespace for each in metadata],
        [each.name for each in metadata],
        [each.uid for each in metadata],
        classes,
        requests,
        limits,
        [parents[qos].child("pod" + (each.uid or UNKNOWN_UID)) for qos, each in zip(classes, metadata, strict=True)],
        _laid_out(values, policy, "linear"),
        [containers[start:end] for start, end in zip([0, *ends], ends, strict=False)],
        [len(pod.spec.init_containers) for pod in pods],
        [None if each.hugetlb is None else hugetlb_files(each, policy.cgroup_version) for each in values],
    )


def _container_plans(
    pods: Sequence[Pod], asks: Sequence[_Ask], ends: Sequence[int], classes: Sequence[QoSClass], policy: NodePolicy
) -> list[ContainerPlan]:
    if not asks:
        return []
    names, cpu_asks, memory_asks, cpu_caps, memory_caps = zip(*asks, strict=True)
    counts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    values = map(
        container_cgroup,
        [qos for qos, count in zip(classes, counts, strict=True) for _ in range(count)],
        cpu_asks,
        memory_asks,
        cpu_caps,
        memory_caps,
        memory_caps,
        repeat(0),
        repeat(None),
        repeat(policy),
    )
    files = _laid_out(values, policy, policy.weight)
    return list(map(ContainerPlan, names, _scores(pods, memory_asks, ends, classes, policy), files))


def _laid_out(values: Iterable[Values], policy: NodePolicy, weight: Weight) -> Iterable[Files]:
    return map(files_v2, values, repeat(weight)) if policy.cgroup_version == 2 else map(files_v1, values)


def _scores(
    pods: Sequence[Pod],
    memory_asks: Sequence[int],
    ends: Sequence[int],
    classes: Sequence[QoSClass],
    policy: NodePolicy,
) -> list[int]:
    """As if every pod were Burstable without sidecars, then put right where that is not so."""
    capacity, start = policy.memory_capacity_bytes, 0
    scores = list(map(clamped, map(burstable_score, memory_asks, repeat(capacity))))
    for pod, qos, end in zip(pods, classes, ends, strict=True):
        constant = pod_score(pod, qos)
        if constant is not None:
            scores[start:end] = [constant] * (end - start)
        elif pod.spec.init_containers and policy.sidecar_oom_rule:
            sidecars = [is_sidecar(each) for each in pod.spec.init_containers]
            middle = start + len(sidecars)
            scores[start:end] = burstable_scores(
                list(memory_asks[start:middle]), sidecars, list(memory_asks[middle:end]), capacity
            )
        start = end
    return scores
