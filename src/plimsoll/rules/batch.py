"""Many pods at once: the same rules as `plan.pod_plan`, one stage after the other over a whole block.

A processor is good at doing one small thing many times over. So the block is laid out in columns (`figures`), walked
pod by pod for what each asks for in all (`batch_walk`, `batch_by_name`), and then files are made of the columns, first
of all containers, then of all pods (`batch_files`). No rule lives here. Pods that only quantities can tell about take
`pod_plan` one by one. A property test holds both ways equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise, repeat

from plimsoll.rules.batch_files import container_files, conversions, pod_files
from plimsoll.rules.batch_walk import figures
from plimsoll.rules.figures import Ask, Figures
from plimsoll.rules.files import hugepage_files
from plimsoll.rules.hierarchy import UNKNOWN_UID
from plimsoll.rules.objects import Pod, QoSClass, is_sidecar
from plimsoll.rules.oom import burstable_scores, pod_score
from plimsoll.rules.plan import ContainerPlan, Placement, PodPlan, pod_plan
from plimsoll.rules.policy import NodePolicy
from plimsoll.rules.values import hugepage_limits


def block_plans(pods: Sequence[Pod], policy: NodePolicy, place: Placement) -> list[PodPlan]:
    """The plan of each pod, in order. Raises what `pod_plan` raises, for the first pod that is at fault."""
    if policy.hugepage_sizes or policy.limited_swap or policy.static_cpus or place.driver == "systemd":
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
    classes, requests, limits, cpu_limits, memory_limits, shares, only_compute = zip(*found, strict=True)
    containers = _container_plans(pods, asks, bounds, classes, shares, policy) if asks else []
    metadata = [pod.metadata for pod in pods]
    uids = [each.uid for each in metadata]
    parents, version = place.parents, policy.cgroup_version
    return map(
        PodPlan,
        [each.namespace for each in metadata],
        [each.name for each in metadata],
        uids,
        classes,
        requests,
        limits,
        [parents[qos].child("pod" + (uid or UNKNOWN_UID)) for qos, uid in zip(classes, uids, strict=True)],
        pod_files(classes, requests, cpu_limits, memory_limits, policy),
        [containers[start:end] for start, end in pairwise(bounds)],
        [len(pod.spec.init_containers) for pod in pods],
        [
            None if compute else hugepage_files(hugepage_limits(each), version)
            for each, compute in zip(requests, only_compute, strict=True)
        ],
    )


def _container_plans(
    pods: Sequence[Pod],
    asks: Sequence[Ask],
    bounds: Sequence[int],
    classes: Sequence[QoSClass],
    shares: Sequence[int],
    policy: NodePolicy,
) -> list[ContainerPlan]:
    names, cpu_asks, memory_asks, cpu_caps, own_memory_caps, memory_caps = zip(*asks, strict=True)
    counts = [end - start for start, end in pairwise(bounds)]
    owners = list(chain.from_iterable(map(repeat, classes, counts)))
    files = container_files(owners, cpu_asks, memory_asks, cpu_caps, own_memory_caps, memory_caps, policy)
    return list(map(ContainerPlan, names, _scores(pods, memory_asks, bounds, classes, shares, policy), files))


def _scores(
    pods: Sequence[Pod],
    memory_asks: Sequence[int],
    bounds: Sequence[int],
    classes: Sequence[QoSClass],
    shares: Sequence[int],
    policy: NodePolicy,
) -> list[int]:
    """As if every pod were Burstable, without sidecars and pod level, then put right where that is not so."""
    scores = list(map(conversions(policy).score.__getitem__, memory_asks))
    for index, constant in enumerate(map(pod_score, pods, classes)):
        share, init_containers = shares[index], pods[index].spec.init_containers
        if constant is not None:
            start, end = bounds[index : index + 2]
            scores[start:end] = [constant] * (end - start)
        elif share or init_containers:
            start, end = bounds[index : index + 2]
            sidecars = [policy.sidecar_oom_rule and is_sidecar(each) for each in init_containers]
            counted = [ask + share for ask in memory_asks[start:end]]
            count = len(sidecars)
            scores[start:end] = burstable_scores(
                counted[:count], sidecars, counted[count:], policy.memory_capacity_bytes
            )
    return scores
