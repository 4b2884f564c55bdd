"""One pod → everything a node will do with it, as plain values: the batch form of `explain` (`plimsoll plan`).

This is the hot path for fleets: no formulas, no texts, nothing computed that is not printed.
"""

from __future__ import annotations

import msgspec

from plimsoll.errors import InvalidObject
from plimsoll.rules.defaulting import defaulted
from plimsoll.rules.effective import added, aggregate, pod_limits, pod_requests, with_overhead
from plimsoll.rules.files import Files, files, hugetlb_files
from plimsoll.rules.hierarchy import CgroupName, Driver, Parent, class_name, parent
from plimsoll.rules.objects import CPU, MEMORY, Container, Pod, QoSClass, is_sidecar
from plimsoll.rules.oom import burstable_score, burstable_scores, clamped, oom_scores, pod_score
from plimsoll.rules.policy import NodePolicy
from plimsoll.rules.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, class_of, qos_class
from plimsoll.rules.sizes import fits, oversized
from plimsoll.rules.values import (
    as_kept,
    container_cgroup,
    container_values,
    declared_limits,
    hugepage_limits,
    pod_cgroup,
    pod_values,
)

_USUAL = frozenset({CPU, MEMORY})


class Placement(msgspec.Struct, frozen=True):
    """Where pods' cgroups go: the parents of each class and the driver that spells the names."""

    driver: Driver
    parents: dict[QoSClass, Parent]


def placement(pods_root: CgroupName, driver: Driver) -> Placement:
    classes: tuple[QoSClass, ...] = (GUARANTEED, BURSTABLE, BEST_EFFORT)
    return Placement(driver, {qos: parent(class_name(pods_root, qos), driver) for qos in classes})


class ContainerPlan(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    name: str
    oom_score_adj: int
    files: Files
    hugetlb: dict[str, int] | None = None


class PodPlan(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Requests and limits are whole units: cpu in milli-cores, everything else in bytes or pieces."""

    namespace: str
    name: str
    uid: str
    qos_class: QoSClass
    requests: dict[str, int]
    limits: dict[str, int]
    cgroup: str
    files: Files
    containers: list[ContainerPlan]
    init_containers: int = 0  # how many of `containers` are init containers: they come first
    hugetlb: dict[str, int] | None = None


def pod_plan(raw: Pod, policy: NodePolicy, place: Placement) -> PodPlan:
    """The plan of one pod as it came from JSON; defaulting is part of it. Raises InvalidObject on absurd amounts."""
    plan = _plain_plan(raw, policy, place) or _general_plan(raw, policy, place)
    if not (fits(plan.requests) and fits(plan.limits)):
        raise InvalidObject(oversized(raw))
    return plan


def _general_plan(raw: Pod, policy: NodePolicy, place: Placement) -> PodPlan:
    pod_level, version, weight = policy.pod_level, policy.cgroup_version, policy.weight
    pod = defaulted(raw, pod_level=pod_level)
    metadata, spec = pod.metadata, pod.spec
    qos = qos_class(pod, pod_level=pod_level)
    requests = pod_requests(pod, pod_level=pod_level)
    limits = pod_limits(pod, pod_level=pod_level)
    everybody = spec.init_containers + spec.containers
    scores = oom_scores(
        pod,
        qos,
        policy.memory_capacity_bytes,
        pod_level=pod_level and policy.pod_level_oom_share,
        sidecar_rule=policy.sidecar_oom_rule,
    )
    containers = []
    for container, score in zip(everybody, scores, strict=True):
        own = as_kept(container_values(pod, container, qos, policy), place.driver)
        hugetlb = None if own.hugetlb is None else hugetlb_files(own, version)
        containers.append(ContainerPlan(container.name, score, files(own, version, weight), hugetlb))
    values = as_kept(pod_values(pod, qos, requests, limits, policy), place.driver)
    return PodPlan(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        qos,
        {name: each.milli if name == CPU else each.value for name, each in requests.items()},
        {name: each.milli if name == CPU else each.value for name, each in limits.items()},
        place.parents[qos].child("pod" + metadata.uid),
        files(values, version, "linear"),
        containers,
        len(spec.init_containers),
        None if values.hugetlb is None else hugetlb_files(values, version),
    )


def _plain_plan(pod: Pod, policy: NodePolicy, place: Placement) -> PodPlan | None:
    """The same from one walk over the containers, for pods without pod-level resources. None: not that shape.

    No rule lives here: `aggregate`, `class_of`, `declared_limits`, `burstable_score`, `container_cgroup`, `pod_cgroup`
    and `files` decide, as they do for every pod; only the walk that feeds them is shorter. Figures are in thousandths,
    which is exact for amounts that were defaulted (R-2).
    """
    spec = pod.spec
    if (
        spec.resources is not None
        or pod.status.qos_class is not None
        or policy.hugepage_sizes
        or policy.limited_swap
        or place.driver == "systemd"
    ):
        return None
    init_containers = spec.init_containers
    walk = _walked(init_containers + spec.containers if init_containers else spec.containers)
    if walk is None:
        return None
    asks, requests, limits, every_cpu, every_memory = walk
    qos = class_of(
        every_cpu and every_memory,
        (requests.get(CPU, 0), requests.get(MEMORY, 0)),
        (limits.get(CPU, 0), limits.get(MEMORY, 0)),
    )
    if init_containers:
        requests = aggregate(
            [_requested(each) for each in spec.containers],
            [(is_sidecar(each), _requested(each)) for each in init_containers],
        )
        limits = aggregate(
            [_limited(each) for each in spec.containers],
            [(is_sidecar(each), _limited(each)) for each in init_containers],
        )
        every_cpu, every_memory = declared_limits(pod)
    if spec.overhead:
        overhead = {name: quantity.milli for name, quantity in spec.overhead.items()}
        requests, limits = added(requests, overhead), with_overhead(limits, overhead)
    requests = {name: milli if name == CPU else -(-milli // 1000) for name, milli in requests.items()}
    limits = {name: milli if name == CPU else -(-milli // 1000) for name, milli in limits.items()}
    limited = qos != BEST_EFFORT
    values = pod_cgroup(
        qos,
        requests.get(CPU, 0),
        requests.get(MEMORY, 0),
        limits.get(CPU, 0) if every_cpu and limited else None,
        limits.get(MEMORY, 0) if every_memory and limited else None,
        hugepage_limits(requests),
        policy,
    )
    version, metadata = policy.cgroup_version, pod.metadata
    return PodPlan(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        qos,
        requests,
        limits,
        place.parents[qos].child("pod" + metadata.uid),
        files(values, version, "linear"),
        _containers(pod, asks, qos, policy),
        len(init_containers),
        None if values.hugetlb is None else hugetlb_files(values, version),
    )


# name, cpu request (None: none), memory request, cpu limit, memory limit
_Ask = tuple[str, int | None, int, int, int]


def _walked(
    containers: tuple[Container, ...],
) -> tuple[list[_Ask], dict[str, int], dict[str, int], bool, bool] | None:
    """What each container asks for, the sums in thousandths, and whether all have cpu and memory limits.

    None where an amount is negative: no API server takes such a pod, and sums would hide it from `class_of`.
    """
    cpu_request = memory_request = cpu_limit = memory_limit = 0
    cpu_requests = memory_requests = cpu_limits = memory_limits = 0  # how many containers have one
    every_cpu = every_memory = True
    requested: dict[str, int] = {}
    limited: dict[str, int] = {}
    asks: list[_Ask] = []
    for container in containers:
        resources = container.resources
        requests, limits = resources.requests, resources.limits
        cpu = memory = cpu_ask = None
        memory_ask = cpu_cap = memory_cap = 0
        if limits:
            if (cpu := limits.get(CPU)) is not None:
                cpu_cap = cpu.milli
                cpu_limit += cpu_cap
                cpu_limits += 1
            if (memory := limits.get(MEMORY)) is not None:
                memory_cap = memory.value
                memory_limit += memory.milli
                memory_limits += 1
        if requests:
            cpu, memory = requests.get(CPU, cpu), requests.get(MEMORY, memory)  # D-1
        if cpu is not None:
            cpu_ask = cpu.milli
            cpu_request += cpu_ask
            cpu_requests += 1
        if memory is not None:
            memory_ask = memory.value
            memory_request += memory.milli
            memory_requests += 1
        if not cpu_cap:
            every_cpu = False
        if not memory_cap:
            every_memory = False
        if memory_ask < 0 or cpu_cap < 0 or memory_cap < 0 or (cpu_ask is not None and cpu_ask < 0):
            return None
        if (limits and not limits.keys() <= _USUAL) or (requests and not requests.keys() <= _USUAL):
            requested, limited = (
                added(dict(requested), _requested(container)),
                added(dict(limited), _limited(container)),
            )
        asks.append((container.name, cpu_ask, memory_ask, cpu_cap, memory_cap))
    if cpu_requests:
        requested[CPU] = cpu_request
    if memory_requests:
        requested[MEMORY] = memory_request
    if cpu_limits:
        limited[CPU] = cpu_limit
    if memory_limits:
        limited[MEMORY] = memory_limit
    return asks, requested, limited, every_cpu, every_memory


def _requested(container: Container) -> dict[str, int]:
    """Requests in thousandths, limits standing in for those that are missing (D-1)."""
    resources = container.resources
    return {name: each.milli for name, each in {**(resources.limits or {}), **(resources.requests or {})}.items()}


def _limited(container: Container) -> dict[str, int]:
    return {name: each.milli for name, each in (container.resources.limits or {}).items()}


def _containers(pod: Pod, asks: list[_Ask], qos: QoSClass, policy: NodePolicy) -> list[ContainerPlan]:
    spec, version, weight, capacity = pod.spec, policy.cgroup_version, policy.weight, policy.memory_capacity_bytes
    constant = pod_score(pod, qos)
    scores: list[int] = []
    if constant is None and spec.init_containers:
        count = len(spec.init_containers)
        memory = [ask[2] for ask in asks]
        sidecars = [policy.sidecar_oom_rule and is_sidecar(each) for each in spec.init_containers]
        scores = burstable_scores(memory[:count], sidecars, memory[count:], capacity)
    plans: list[ContainerPlan] = []
    for name, cpu_ask, memory_ask, cpu_cap, memory_cap in asks:
        own = container_cgroup(qos, cpu_ask, memory_ask, cpu_cap, memory_cap, memory_cap, 0, None, policy)
        if constant is not None:
            score = constant
        else:
            score = scores[len(plans)] if scores else clamped(burstable_score(memory_ask, capacity))
        plans.append(ContainerPlan(name, score, files(own, version, weight)))
    return plans
