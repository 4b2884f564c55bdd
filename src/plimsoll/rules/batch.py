"""Many pods at once: the same rules as `plan.pod_plan`, one stage after the other over a whole block.

A processor is good at doing one small thing many times over. So the block is laid out in columns (`figures`), walked
pod by pod for what each asks for in all (`batch_walk`, `batch_by_name`), and then files are made of the columns, first
of all containers, then of all pods (`batch_files`). No rule lives here. Pods that only quantities can tell about take
`pod_plan` one by one. A property test holds both ways equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise, repeat
from operator import sub
from typing import TypeVar

from plimsoll.rules.batch_files import container_files, conversions, hugepages, pod_files
from plimsoll.rules.batch_walk import figures
from plimsoll.rules.figures import Apart, Ask, Figures
from plimsoll.rules.hierarchy import UNKNOWN_UID, below
from plimsoll.rules.objects import Pod, QoSClass
from plimsoll.rules.oom import counted_bytes, pod_score
from plimsoll.rules.plan import ContainerPlan, Placement, PodPlan, pod_plan
from plimsoll.rules.policy import NodePolicy

T = TypeVar("T")


def block_plans(pods: Sequence[Pod], policy: NodePolicy, place: Placement) -> list[PodPlan]:
    """The plan of each pod, in order. Raises what `pod_plan` raises, for the first pod that is at fault."""
    apart = policy.hugepage_sizes or policy.limited_swap or policy.static_cpus or policy.page_cache_safe
    if apart or place.driver == "systemd":
        return [pod_plan(pod, policy, place) for pod in pods]
    walked: list[Pod] = []
    found: list[Figures] = []
    asks: list[Ask] = []
    bounds = [0]  # where the asks of each pod begin and end
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
    asks: Sequence[Ask],
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
        [None if compute else hugepages(each, policy) for each, compute in zip(requests, only_compute, strict=True)],
    )


def _container_plans(
    pods: Sequence[Pod],
    asks: Sequence[Ask],
    bounds: Sequence[int],
    classes: Sequence[QoSClass],
    apart: Sequence[Apart | None],
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
    apart: Sequence[Apart | None],
    policy: NodePolicy,
) -> list[int]:
    """By class, or by request, in which sidecars and pod level may have a say."""
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
    """What holds for a pod, once for each of its containers."""
    return chain.from_iterable(map(repeat, column, map(sub, bounds[1:], bounds)))
