"""One pod → everything a node will do with it, as plain values: the batch form of `explain` (`plimsoll plan`).

This is the hot path for fleets: no formulas, no texts, nothing computed that is not printed.
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.defaulting import defaulted
from plimsoll.rules.effective import pod_limits, pod_requests
from plimsoll.rules.files import Files, files, hugetlb_files
from plimsoll.rules.hierarchy import CgroupName, Driver, Parent, class_name, parent
from plimsoll.rules.objects import CPU, MEMORY, Pod, QoSClass, ResourceList, is_node_critical
from plimsoll.rules.oom import GUARANTEED_SCORE, burstable_score, clamped, constant_score, oom_scores
from plimsoll.rules.policy import NodePolicy
from plimsoll.rules.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, class_of, qos_class
from plimsoll.rules.values import as_kept, container_cgroup, container_values, hugepage_limits, pod_cgroup, pod_values

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
    """The plan of one pod as it came from JSON; defaulting is part of it."""
    plain = _plain_plan(raw, policy, place)
    return _general_plan(raw, policy, place) if plain is None else plain


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
    """The same in one walk, for the shape most pods have: regular containers alone. None: not that shape.

    No rule lives here: `class_of`, `burstable_score`, `container_cgroup`, `pod_cgroup` and `files` decide, as they do
    for every pod; only the walk that feeds them is shorter, since sums are all there is to aggregate. Sums are in
    thousandths, which is exact for amounts that were defaulted (R-2).
    """
    spec = pod.spec
    if (
        spec.init_containers
        or spec.resources is not None
        or pod.status.qos_class is not None
        or policy.hugepage_sizes
        or policy.limited_swap
        or place.driver == "systemd"
    ):
        return None
    cpu_request = memory_request = cpu_limit = memory_limit = 0
    cpu_requested = memory_requested = cpu_limited = memory_limited = 0  # by how many containers
    every_cpu = every_memory = True
    other_requests: dict[str, int] = {}
    other_limits: dict[str, int] = {}
    asks = []
    for container in spec.containers:
        resources = container.resources
        requests, limits = resources.requests, resources.limits
        cpu = memory = cpu_ask = None
        memory_ask = cpu_cap = memory_cap = 0
        if limits:
            if (cpu := limits.get(CPU)) is not None:
                cpu_cap = cpu.milli
                cpu_limit += cpu_cap
                cpu_limited += 1
            if (memory := limits.get(MEMORY)) is not None:
                memory_cap = memory.value
                memory_limit += memory.milli
                memory_limited += 1
        if requests:
            cpu, memory = requests.get(CPU, cpu), requests.get(MEMORY, memory)  # D-1
        if cpu is not None:
            cpu_ask = cpu.milli
            cpu_request += cpu_ask
            cpu_requested += 1
        if memory is not None:
            memory_ask = memory.value
            memory_request += memory.milli
            memory_requested += 1
        if (limits and not limits.keys() <= _USUAL) or (requests and not requests.keys() <= _USUAL):
            _add_others({**(limits or {}), **(requests or {})}, other_requests)
            _add_others(limits or {}, other_limits)
        if not cpu_cap:
            every_cpu = False
        if not memory_cap:
            every_memory = False
        if memory_ask < 0 or cpu_cap < 0 or memory_cap < 0 or (cpu_ask is not None and cpu_ask < 0):
            return None  # no API server takes such a pod; the general rules know what a node would do with it
        asks.append((container.name, cpu_ask, memory_ask, cpu_cap, memory_cap))
    qos = class_of(every_cpu and every_memory, (cpu_request, memory_request), (cpu_limit, memory_limit))
    constant = GUARANTEED_SCORE if spec.priority_class_name and is_node_critical(pod) else constant_score(qos)
    version, weight, capacity = policy.cgroup_version, policy.weight, policy.memory_capacity_bytes
    containers = []
    for name, cpu_ask, memory_ask, cpu_cap, memory_cap in asks:
        own = container_cgroup(qos, cpu_ask, memory_ask, cpu_cap, memory_cap, memory_cap, 0, None, policy)
        score = clamped(burstable_score(memory_ask, capacity)) if constant is None else constant
        containers.append(ContainerPlan(name, score, files(own, version, weight)))
    if cpu_requested:
        other_requests[CPU] = cpu_request
    if memory_requested:
        other_requests[MEMORY] = memory_request
    if cpu_limited:
        other_limits[CPU] = cpu_limit
    if memory_limited:
        other_limits[MEMORY] = memory_limit
    if spec.overhead:
        for name, quantity in spec.overhead.items():
            other_requests[name] = other_requests.get(name, 0) + quantity.milli
            if other_limits.get(name):  # E-1
                other_limits[name] += quantity.milli
    all_requests = {name: milli if name == CPU else -(-milli // 1000) for name, milli in other_requests.items()}
    all_limits = {name: milli if name == CPU else -(-milli // 1000) for name, milli in other_limits.items()}
    values = pod_cgroup(
        qos,
        all_requests.get(CPU, 0),
        all_requests.get(MEMORY, 0),
        all_limits.get(CPU, 0) if every_cpu and qos != BEST_EFFORT else None,
        all_limits.get(MEMORY, 0) if every_memory and qos != BEST_EFFORT else None,
        hugepage_limits(all_requests),
        policy,
    )
    metadata = pod.metadata
    return PodPlan(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        qos,
        all_requests,
        all_limits,
        place.parents[qos].child("pod" + metadata.uid),
        files(values, version, "linear"),
        containers,
        0,
        None if values.hugetlb is None else hugetlb_files(values, version),
    )


def _add_others(resources: ResourceList, total: dict[str, int]) -> None:
    """Add what is neither cpu nor memory, in thousandths."""
    for name, quantity in resources.items():
        if name not in _USUAL:
            total[name] = total.get(name, 0) + quantity.milli
