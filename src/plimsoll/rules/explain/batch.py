"""Plans for many pods at once: the same rules as `plan.pod_plan`, applied stage by stage to a whole block.

`batch_walk` computes the totals of each pod. Then the control files and OOM scores are computed column by column, first
for all containers, then for all pods, with the rules of `rules.resources`. What depends on one number alone (a weight,
the text of a quota, a score) is cached per number: a fleet repeats the same few hundred amounts. Pods that need exact
quantities take `pod_plan` one by one. Property tests compare both ways (docs/adr/0006-batch-form-of-plan.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain, pairwise, repeat
from operator import sub
from typing import TypeVar

from plimsoll.rules.explain.batch_amounts import Amounts
from plimsoll.rules.explain.batch_walk import ContainerRow, Figures, OomAdjustment, figures
from plimsoll.rules.explain.plan import ContainerPlan, Placement, PodPlan, pod_plan
from plimsoll.rules.model.cgroup_names import UNKNOWN_UID, below
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import CPU, HUGEPAGES_PREFIX, MEMORY, Pod, QoSClass
from plimsoll.rules.resources.cpu import shares
from plimsoll.rules.resources.files import MAX, Files, FilesV2, cpu_max, cpu_weight, files_v1, hugepage_file, or_max
from plimsoll.rules.resources.memory import memory_high
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.oom_score import burstable_score, clamped, counted_bytes, pod_score
from plimsoll.rules.resources.qos import BEST_EFFORT
from plimsoll.rules.resources.values import (
    container_cgroup,
    container_protection,
    container_quota,
    container_swap,
    page_size_bytes,
    pod_cgroup,
    pod_protection,
    pod_quota,
)

Number = TypeVar("Number")  # or a resource's name
PlanRow = TypeVar("PlanRow")


class _Memo(dict[Number, PlanRow]):
    """A bounded cache for a function of one number or name; cleared when full."""

    bound = 8192

    def __init__(self, compute: Callable[[Number], PlanRow]) -> None:
        self._compute = compute

    def __missing__(self, number: Number) -> PlanRow:
        if len(self) >= self.bound:
            self.clear()
        self[number] = answer = self._compute(number)
        return answer


class Conversions:
    """A node's conversions of single numbers, cached."""

    def __init__(self, policy: NodePolicy) -> None:
        capacity = policy.memory_capacity_bytes
        self.score = _Memo[int, int](lambda request: clamped(burstable_score(request, capacity)))
        self.container_weight = _Memo[int, int](lambda milli: cpu_weight(shares(milli), policy.weight))
        self.container_max = _Memo[int, str | None](lambda milli: cpu_max(*container_quota(milli, policy)))
        self.pod_weight = _Memo[int, int](lambda milli: cpu_weight(shares(milli), "linear"))
        self.hugepage_file = _Memo[str, str | None](partial(_hugepage_file, policy.cgroup_version))
        self.pod_max = _Memo[int | None, str | None](lambda milli: cpu_max(*pod_quota(milli, policy)))


def _hugepage_file(version: CgroupVersion, name: str) -> str | None:
    return hugepage_file(page_size_bytes(name), version) if name.startswith(HUGEPAGES_PREFIX) else None


conversions = lru_cache(maxsize=4)(Conversions)


def container_files(
    classes: Sequence[QoSClass],
    cpu_asks: Sequence[int],
    memory_asks: Sequence[int],
    cpu_caps: Sequence[int],
    own_memory_caps: Sequence[int],
    memory_caps: Sequence[int],
    policy: NodePolicy,
) -> Iterable[Files]:
    if policy.cgroup_version == 1:
        columns = (classes, cpu_asks, memory_asks, cpu_caps, own_memory_caps, memory_caps)
        return map(files_v1, map(container_cgroup, *columns, repeat(0), repeat(None), repeat(policy)))
    known = conversions(policy)
    minima: Iterable[int | None] = repeat(None)
    low: Iterable[int | None] = repeat(None)
    high: Iterable[int | str | None] = repeat(MAX if policy.high_reset else None)
    if policy.memory_qos:
        reservation, allocatable, factor = policy.reservation, policy.allocatable_memory_bytes, policy.throttling_factor
        page_size, without_request = policy.page_size, policy.high_without_request
        minima, low = zip(
            *[container_protection(each, qos, reservation) for each, qos in zip(memory_asks, classes, strict=True)],
            strict=True,
        )
        high = [
            memory_high(each, limit, allocatable, factor, page_size, without_request)
            for each, limit in zip(memory_asks, own_memory_caps, strict=True)
        ]
    return map(
        FilesV2,
        map(known.container_weight.__getitem__, cpu_asks),
        map(known.container_max.__getitem__, cpu_caps),
        minima,
        low,
        high,
        [each or None for each in memory_caps],
        repeat(or_max(container_swap(0, 0, policy)[1])),
        repeat(1 if policy.oom_group else None),
    )


def hugepages(amounts: Amounts, known: Mapping[str, str | None]) -> dict[str, int] | None:
    """The files of the huge page sizes that a pod names; None if there are none. `known`: the files by resource."""
    return {file: amount for name, amount in amounts.items() if (file := known[name]) is not None} or None


def pod_files(
    classes: Sequence[QoSClass],
    requests: Sequence[Amounts],
    cpu_limits: Sequence[int | None],
    memory_limits: Sequence[int | None],
    policy: NodePolicy,
) -> Iterable[Files]:
    cpu = [0 if qos == BEST_EFFORT else each.get(CPU, 0) for qos, each in zip(classes, requests, strict=True)]
    memory = [each.get(MEMORY, 0) for each in requests]
    if policy.cgroup_version == 1:
        columns = (classes, cpu, memory, cpu_limits, memory_limits)
        return map(files_v1, map(pod_cgroup, *columns, repeat(None), repeat(policy)))
    known = conversions(policy)
    minima: Iterable[int | None] = repeat(None)
    low: Iterable[int | None] = repeat(None)
    if policy.memory_qos:
        reservation = policy.reservation
        minima, low = zip(
            *[pod_protection(each, qos, reservation) for each, qos in zip(memory, classes, strict=True)],
            strict=True,
        )
    return map(
        FilesV2,
        map(known.pod_weight.__getitem__, cpu),
        map(known.pod_max.__getitem__, cpu_limits),
        minima,
        low,
        repeat(None),
        [each or None for each in memory_limits],
        repeat(None),
        repeat(None),
        repeat(policy.pod_pids_limit if policy.pod_pids_limit > 0 else None),
    )


T = TypeVar("T")


def block_plans(pods: Sequence[Pod], policy: NodePolicy, place: Placement) -> list[PodPlan]:
    """The plan of each pod, in order. Raises what `pod_plan` raises, for the first invalid pod."""
    apart = policy.hugepage_sizes or policy.limited_swap or policy.static_cpus or policy.page_cache_safe
    apart = apart or policy.swap_with_memory or policy.gates.claims
    if apart or place.driver == "systemd":
        return [pod_plan(pod, policy, place) for pod in pods]
    walked: list[Pod] = []
    found: list[Figures] = []
    asks: list[ContainerRow] = []
    bounds = [0]  # where the rows of each pod begin and end
    alone: list[tuple[int, PodPlan]] = []
    for index, pod in enumerate(pods):
        own = figures(pod, asks, policy)
        if own is None:
            alone.append((index, pod_plan(pod, policy, place)))
        else:
            walked.append(pod)
            found.append(own)
            bounds.append(len(asks))
    plans = list(_made(walked, found, asks, bounds, policy, place)) if walked else []
    for index, plan in alone:
        plans.insert(index, plan)
    return plans


def _made(
    pods: Sequence[Pod],
    found: Sequence[Figures],
    asks: Sequence[ContainerRow],
    bounds: Sequence[int],
    policy: NodePolicy,
    place: Placement,
) -> Iterable[PodPlan]:
    classes, requests, limits, cpu_limits, memory_limits, apart, only_compute = zip(*found, strict=True)
    containers = _container_plans(pods, asks, bounds, classes, apart, policy) if asks else []
    metadata = [pod.metadata for pod in pods]
    uids = [each.uid for each in metadata]
    components = ["pod" + (uid or UNKNOWN_UID) for uid in uids]
    below((), *components)
    above = {qos: parent.path for qos, parent in place.parents.items()}
    known = conversions(policy).hugepage_file  # once: a policy is expensive to hash
    return map(
        PodPlan,
        [each.namespace for each in metadata],
        [each.name for each in metadata],
        uids,
        classes,
        requests,
        limits,
        [f"{above[qos]}/{each}" for qos, each in zip(classes, components, strict=True)],
        pod_files(classes, requests, cpu_limits, memory_limits, policy),
        [containers[start:end] for start, end in pairwise(bounds)],
        [len(pod.spec.init_containers) for pod in pods],
        [None if compute else hugepages(each, known) for each, compute in zip(requests, only_compute, strict=True)],
    )


def _container_plans(
    pods: Sequence[Pod],
    asks: Sequence[ContainerRow],
    bounds: Sequence[int],
    classes: Sequence[QoSClass],
    apart: Sequence[OomAdjustment | None],
    policy: NodePolicy,
) -> list[ContainerPlan]:
    names, cpu_asks, memory_asks, cpu_caps, own_memory_caps, memory_caps = zip(*asks, strict=True)
    files = container_files(
        list(_per_container(classes, bounds)), cpu_asks, memory_asks, cpu_caps, own_memory_caps, memory_caps, policy
    )
    return list(map(ContainerPlan, names, _scores(pods, memory_asks, bounds, classes, apart, policy), files))


def _scores(
    pods: Sequence[Pod],
    memory_asks: Sequence[int],
    bounds: Sequence[int],
    classes: Sequence[QoSClass],
    apart: Sequence[OomAdjustment | None],
    policy: NodePolicy,
) -> list[int]:
    """By class, or by request with the rules for sidecars and pod level."""
    counted = list(memory_asks)
    for each, (start, end) in zip(apart, pairwise(bounds), strict=True):
        if each is not None:
            share, sidecars = each
            own = [ask + share for ask in counted[start:end]] if share else counted[start:end]
            if policy.sidecar_oom_rule and sidecars:
                own = counted_bytes(own[: len(sidecars)], sidecars, own[len(sidecars) :])
            counted[start:end] = own
    score = conversions(policy).score
    return [
        score[ask] if constant is None else constant
        for ask, constant in zip(counted, _per_container(map(pod_score, pods, classes), bounds), strict=True)
    ]


def _per_container(column: Iterable[T], bounds: Sequence[int]) -> Iterable[T]:
    """A value per pod, repeated for each of its containers."""
    return chain.from_iterable(map(repeat, column, map(sub, bounds[1:], bounds)))
