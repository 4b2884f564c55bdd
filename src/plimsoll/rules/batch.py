"""Many pods at once: the same rules as `plan.pod_plan`, one stage after the other over a whole block.

A processor is good at doing one small thing many times over. So the block is walked once, pod by pod, for figures; then
each rule (`container_cgroup`, `files`, `pod_cgroup` …) runs over all containers, then over all pods. No rule lives
here, only the walk. Its figures are whole: milli-cores, bytes, pieces. Pods with pod-level resources, with fractions of
a byte, or with a resize pending take `pod_plan` one by one. A property test holds both ways equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from plimsoll.rules.effective import added, peak, with_overhead
from plimsoll.rules.files import Files, files_v1, files_v2, hugetlb_files
from plimsoll.rules.held import held_pod
from plimsoll.rules.hierarchy import UNKNOWN_UID
from plimsoll.rules.objects import CPU, MEMORY, NO_STATUS, Container, Pod, PodSpec, QoSClass, ResourceList, is_sidecar
from plimsoll.rules.oom import burstable_score, burstable_scores, clamped, pod_score
from plimsoll.rules.plan import ContainerPlan, Placement, PodPlan, pod_plan
from plimsoll.rules.policy import NodePolicy, Weight
from plimsoll.rules.qos import BEST_EFFORT, GUARANTEED, class_of
from plimsoll.rules.quantity import MAX_INT64
from plimsoll.rules.sizes import fits, has_page_size
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
    init_containers, before = spec.init_containers, len(asks)
    walk = _walked(init_containers + spec.containers if init_containers else spec.containers, asks)
    if walk is None or (walk[-1] and (init_containers or spec.overhead)):
        del asks[before:]
        return None
    computed, requests, limits, every_cpu, every_memory, _ = walk
    qos = pod.status.qos_class or computed
    if init_containers:
        _take_peaks(spec, asks[before:], requests, limits)
        every_cpu, every_memory = declared_limits(pod)
    if spec.overhead:
        overhead = _whole(spec.overhead)
        if overhead is None:
            del asks[before:]
            return None
        requests, limits = added(requests, overhead), with_overhead(limits, overhead)
    if qos == BEST_EFFORT:
        return qos, requests, limits, None, None
    return (
        qos,
        requests,
        limits,
        limits.get(CPU, 0) if every_cpu or qos == GUARANTEED else None,
        limits.get(MEMORY, 0) if every_memory or qos == GUARANTEED else None,
    )


def _take_peaks(spec: PodSpec, asks: Sequence[_Ask], requests: _Figures, limits: _Figures) -> None:
    """Replace sums by what is asked for at the worst moment, name by name."""
    sidecars = [each.restart_policy == "Always" for each in spec.init_containers]
    count = len(sidecars)
    _, cpu_asks, memory_asks, cpu_caps, memory_caps = zip(*asks, strict=True)
    for total, name, column in (
        (requests, CPU, [ask or 0 for ask in cpu_asks]),
        (requests, MEMORY, memory_asks),
        (limits, CPU, cpu_caps),
        (limits, MEMORY, memory_caps),
    ):
        if name in total:
            total[name] = peak(sum(column[count:]), zip(sidecars, column[:count], strict=True)) or 0
    for total, wanted in ((requests, _requested), (limits, _limited)):
        others = total.keys() - _USUAL
        if others:
            lists = [wanted(each) for each in spec.init_containers + spec.containers]
            for name in others:
                figures = [each.get(name, 0) for each in lists]
                total[name] = peak(sum(figures[count:]), zip(sidecars, figures[:count], strict=True)) or 0


def _walked(
    containers: tuple[Container, ...], asks: list[_Ask]
) -> tuple[QoSClass, _Figures, _Figures, bool, bool, bool] | None:
    """Class, sums of requests and of limits, whether all have a cpu, a memory limit, and whether bytes are broken.

    Memory is summed in thousandths, so that fractions of a byte add up before they are rounded up. None where an amount
    is negative or beyond every node: `pod_plan` knows what to say then.
    """
    requested: _Figures = {}
    limited: _Figures = {}
    cpu_request = memory_request = cpu_limit = memory_limit = fraction = 0
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
        unusual = (limits and not limits.keys() <= _USUAL) or (requests and not requests.keys() <= _USUAL)
        if unusual and not _others_added(limits or {}, requests or {}, requested, limited):
            return None
        asks.append((container.name, cpu_ask, memory_ask, cpu_cap, memory_cap))
    if memory_request > MAX_INT64 or memory_limit > MAX_INT64 or cpu_request > MAX_INT64 or cpu_limit > MAX_INT64:
        return None
    if MEMORY in requested:
        requested[MEMORY], fraction = -(-memory_request // 1000), memory_request % 1000
    if MEMORY in limited:
        limited[MEMORY], fraction = -(-memory_limit // 1000), fraction or memory_limit % 1000
    qos = class_of(every_cpu and every_memory, (cpu_request, memory_request), (cpu_limit, memory_limit))
    return qos, requested, limited, every_cpu, every_memory, fraction != 0


def _requested(container: Container) -> _Figures:
    """Requests in whole units, limits standing in for those that are missing (D-1)."""
    resources = container.resources
    return {name: each.value for name, each in {**(resources.limits or {}), **(resources.requests or {})}.items()}


def _limited(container: Container) -> _Figures:
    return {name: each.value for name, each in (container.resources.limits or {}).items()}


def _whole(resources: ResourceList) -> _Figures | None:
    """Milli-cores and whole units; None where something is negative, a fraction, or of no readable page size."""
    figures = {}
    for name, quantity in resources.items():
        figures[name] = quantity.milli if name == CPU else quantity.value
        if quantity.nanos < 0 or (name not in _USUAL and quantity.milli % 1000) or not has_page_size(name):
            return None
    return figures if fits(figures) else None


def _others_added(limits: ResourceList, requests: ResourceList, requested: _Figures, limited: _Figures) -> bool:
    """Add what is neither cpu nor memory, limits standing in for requests (D-1); False: not for this walk."""
    for name, quantity in limits.items():
        if name not in _USUAL:
            amount = quantity.value
            limited[name] = total = limited.get(name, 0) + amount
            if amount < 0 or total > MAX_INT64 or quantity.milli != 1000 * amount or not has_page_size(name):
                return False
    for name, quantity in requests.items() if limits.keys() <= requests.keys() else {**limits, **requests}.items():
        if name not in _USUAL:
            amount = quantity.value
            requested[name] = total = requested.get(name, 0) + amount
            if amount < 0 or total > MAX_INT64 or quantity.milli != 1000 * amount or not has_page_size(name):
                return False
    return True


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
