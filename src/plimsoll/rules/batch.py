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
from plimsoll.rules.figures import Columns, Figures
from plimsoll.rules.files import hugepage_files
from plimsoll.rules.hierarchy import UNKNOWN_UID
from plimsoll.rules.objects import Pod, QoSClass, is_sidecar
from plimsoll.rules.oom import burstable_scores, pod_score
from plimsoll.rules.plan import ContainerPlan, Placement, PodPlan, pod_plan
from plimsoll.rules.policy import NodePolicy
from plimsoll.rules.values import hugepage_limits


def block_plans(pods: Sequence[Pod], policy: NodePolicy, place: Placement) -> list[PodPlan]:
    """The plan of each pod, in order. Raises what `pod_plan` raises, for one of the pods that are at fault."""
    if policy.hugepage_sizes or policy.limited_swap or policy.static_cpus or place.driver == "systemd":
        return [pod_plan(pod, policy, place) for pod in pods]
    columns = Columns(pods)
    found = [figures(pod, columns, *bounds, policy) for pod, bounds in zip(pods, pairwise(columns.bounds), strict=True)]
    known = [each for each in found if each is not None]
    if len(known) == len(pods):
        return list(_made(pods, columns, known, policy, place)) if pods else []
    others = iter(block_plans([pod for pod, own in zip(pods, found, strict=True) if own is not None], policy, place))
    return [pod_plan(pod, policy, place) if own is None else next(others) for pod, own in zip(pods, found, strict=True)]


def _made(
    pods: Sequence[Pod], columns: Columns, found: Sequence[Figures], policy: NodePolicy, place: Placement
) -> Iterable[PodPlan]:
    classes, requests, limits, cpu_limits, memory_limits, shares = zip(*found, strict=True)
    containers = list(_container_plans(pods, columns, classes, shares, policy))
    metadata = [pod.metadata for pod in pods]
    uids = [each.uid for each in metadata]
    parents = place.parents
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
        [containers[start:end] for start, end in pairwise(columns.bounds)],
        [len(pod.spec.init_containers) for pod in pods],
        [hugepage_files(hugepage_limits(each), policy.cgroup_version) for each in requests],
    )


def _container_plans(
    pods: Sequence[Pod], columns: Columns, classes: Sequence[QoSClass], shares: Sequence[int], policy: NodePolicy
) -> Iterable[ContainerPlan]:
    counts = [end - start for start, end in pairwise(columns.bounds)]
    owners = list(chain.from_iterable(map(repeat, classes, counts)))
    scores = _scores(pods, columns, classes, shares, policy)
    return map(ContainerPlan, columns.names, scores, container_files(owners, columns, policy))


def _scores(
    pods: Sequence[Pod], columns: Columns, classes: Sequence[QoSClass], shares: Sequence[int], policy: NodePolicy
) -> list[int]:
    """As if every pod were Burstable, without sidecars and pod level, then put right where that is not so."""
    scores = list(map(conversions(policy).score.__getitem__, columns.memory_requests))
    constants = list(map(pod_score, pods, classes))
    for pod, constant, share, (start, end) in zip(pods, constants, shares, pairwise(columns.bounds), strict=True):
        if constant is not None:
            scores[start:end] = [constant] * (end - start)
        elif share or pod.spec.init_containers:
            sidecars = [policy.sidecar_oom_rule and is_sidecar(each) for each in pod.spec.init_containers]
            counted = [each + share for each in columns.memory_requests[start:end]]
            count = len(sidecars)
            scores[start:end] = burstable_scores(
                counted[:count], sidecars, counted[count:], policy.memory_capacity_bytes
            )
    return scores
