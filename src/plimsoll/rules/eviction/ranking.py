"""The order of eviction (04 §5).

Pods are compared key by key: for memory and disk, whether usage exceeds the request, then priority, then the excess;
for process numbers, priority, then the count. The QoS class is no key: a BestEffort pod comes first only because any
usage exceeds its request of zero. A pod without statistics comes before pods that have some.

Priority 0 each: 600Mi used of 500Mi requested (excess 100Mi) is evicted before 550Mi of 500Mi, and both before 1Gi of
2Gi.

`Ranked` keeps the figures behind the keys, so that the order can be explained.

Kubernetes: pkg/kubelet/eviction/helpers.go, rankMemoryPressure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from plimsoll.rules.config.thresholds import ALLOCATABLE_MEMORY_AVAILABLE, MEMORY_AVAILABLE, PID_AVAILABLE, FsLayout
from plimsoll.rules.eviction.usage import PodUsage, disk_parts, disk_usage
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, MEMORY, Pod, is_critical, is_pod_level_resource
from plimsoll.rules.quantity import NANO_PER_UNIT, ZERO, Quantity
from plimsoll.rules.resources.effective import container_requests, pod_level_set

INODES = "inodes"
PIDS = "pids"

RankReason = Literal[
    "no statistics", "exceeds its request", "lower priority", "larger excess", "closer to its request",
    "more processes", "equal",
]  # fmt: skip


class Ranked(msgspec.Struct, frozen=True):
    """One pod in the order of eviction. A smaller `key` is evicted first; equal keys in any order."""

    pod: Pod
    key: tuple[int, int, int]
    critical: bool  # is listed, but never evicted
    has_usage: bool
    exceeds: bool
    priority: int
    usage: int  # bytes, inodes or processes
    request: Quantity  # what the last key subtracts


def ranking_request(pod: Pod, name: str, *, gates: Gates = DEFAULT_GATES) -> Quantity:
    """The request that eviction and critical-pod preemption count; it differs from the effective request (§5, §9).

    With pod-level resources the containers are ignored, and overhead is added only to a request above zero. Up to 1.33
    pod level does not count, and a sidecar counts like any init container.
    """
    if not gates.ranking_counts_pod_level:
        quantity = _largest_or_sum(pod, name)
    elif gates.pod_level and pod_level_set(pod.spec.resources):
        requests = (pod.spec.resources.requests if pod.spec.resources is not None else None) or {}
        quantity = requests.get(name, ZERO) if is_pod_level_resource(name) else ZERO
    else:
        quantity = container_requests(pod).get(name, ZERO)
    overhead = (pod.spec.overhead or {}).get(name)
    return quantity + overhead if overhead is not None and quantity else quantity


def _largest_or_sum(pod: Pod, name: str) -> Quantity:
    requests = [(each.resources.requests or {}).get(name, ZERO) for each in pod.spec.containers]
    initial = [(each.resources.requests or {}).get(name, ZERO) for each in pod.spec.init_containers]
    return max([sum(requests, ZERO), *initial])


def ranked(
    pods: Iterable[Pod],
    usage: Mapping[str, PodUsage],
    signal: str,
    layout: FsLayout = "single",
    *,
    gates: Gates = DEFAULT_GATES,
) -> tuple[Ranked, ...]:
    """Every pod in the order of eviction; `usage` is by pod uid, and pods with equal keys keep their order."""
    if signal == PID_AVAILABLE:
        ranks = [_by_processes(pod, usage.get(pod.metadata.uid)) for pod in pods]
    else:
        ranks = [_by_excess(pod, usage.get(pod.metadata.uid), signal, layout, gates) for pod in pods]
    return tuple(sorted(ranks, key=lambda rank: rank.key))


def victim(order: Iterable[Ranked]) -> Ranked | None:
    """The first pod that is not critical."""
    return next((rank for rank in order if not rank.critical), None)


def reason_before(first: Ranked, second: Ranked, signal: str) -> RankReason:
    """The key that puts `first` before `second`."""
    reasons: tuple[RankReason, RankReason, RankReason] = ("lower priority", "no statistics", "more processes")
    if signal != PID_AVAILABLE:
        beyond: RankReason = "exceeds its request" if first.has_usage else "no statistics"
        reasons = beyond, "lower priority", "larger excess" if first.exceeds else "closer to its request"
    for own, other, reason in zip(first.key, second.key, reasons, strict=True):
        if own != other:
            return reason
    return "equal"


def _by_processes(pod: Pod, usage: PodUsage | None) -> Ranked:
    priority = pod.spec.priority or 0
    processes = (usage.processes or 0) if usage is not None else 0
    key = (priority, int(usage is not None), -processes)
    return Ranked(pod, key, is_critical(pod), usage is not None, False, priority, processes, ZERO)


def _by_excess(pod: Pod, usage: PodUsage | None, signal: str, layout: FsLayout, gates: Gates) -> Ranked:
    priority = pod.spec.priority or 0
    if signal in (MEMORY_AVAILABLE, ALLOCATABLE_MEMORY_AVAILABLE):
        compared = subtracted = ranking_request(pod, MEMORY, gates=gates)
        used = (usage.memory_bytes or 0) if usage is not None else 0
    else:
        used_bytes, used_inodes = (0, 0) if usage is None else disk_usage(pod, usage, disk_parts(signal, layout))
        # The kubelet subtracts the byte request from inodes as well.
        subtracted = ranking_request(pod, EPHEMERAL_STORAGE, gates=gates)
        if signal.endswith(".inodesFree"):
            used, compared = used_inodes, ranking_request(pod, INODES, gates=gates)
        else:
            used, compared = used_bytes, subtracted
    if usage is None:
        return Ranked(pod, (0, priority, 0), is_critical(pod), False, False, priority, 0, subtracted)
    used_nanos = used * NANO_PER_UNIT
    exceeds = used_nanos > compared.nanos
    key = (1 if exceeds else 2, priority, subtracted.nanos - used_nanos)
    return Ranked(pod, key, is_critical(pod), True, exceeds, priority, used, subtracted)
