"""Why a pod is evicted, in the kubelet's words: a storage limit of its own (04 §6), or a shortage of the node (04 §7).

`decision` is one pass of the eviction manager: what is short, which pod is evicted, why, and with which grace period
(04 §3, §5, §7). `EvictionDecision` keeps the order with its figures, so that "why this pod, and which is next" can be
answered after the pod is gone.

Kubernetes: pkg/kubelet/eviction/helpers.go, evictionMessage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from plimsoll.rules.config.thresholds import FsLayout, Threshold
from plimsoll.rules.eviction.assessment import EVICTED, RESOURCE_OF, Observation, eviction_grace_s, wanted
from plimsoll.rules.eviction.ranking import PIDS, Ranked, ranked, reason_before, victim
from plimsoll.rules.eviction.storage_limits import storage_limits
from plimsoll.rules.eviction.usage import ContainerUsage, PodUsage
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, MEMORY, MEMORY_MEDIUM, Pod, is_critical
from plimsoll.rules.quantity import NANO_PER_UNIT, ZERO, Quantity, from_units
from plimsoll.rules.resources.effective import pod_level_set, pod_limits

EMPTY_DIR_LIMIT = "emptydirfs.limit"
POD_STORAGE_LIMIT = "ephemeralpodfs.limit"
CONTAINER_STORAGE_LIMIT = "ephemeralcontainerfs.limit"


class LimitFinding(msgspec.Struct, frozen=True):
    """A pod that exceeds a storage limit of its own; `signal` is the metric's label."""

    pod: Pod
    signal: str
    message: str


class EvictionMessage(msgspec.Struct, frozen=True):
    text: str
    annotations: dict[str, str] = {}  # of the event


def limit_finding(
    pod: Pod, usage: PodUsage | None, layout: FsLayout = "single", *, gates: Gates = DEFAULT_GATES
) -> LimitFinding | None:
    """The first storage limit that the pod exceeds, also without pressure; critical pods are exempt (§6)."""
    if usage is None or is_critical(pod):
        return None
    return (
        _empty_dir_finding(pod, usage, gates)
        or _pod_storage_finding(pod, usage, gates)
        or _container_storage_finding(pod, usage, layout, gates)
    )


def _empty_dir_finding(pod: Pod, usage: PodUsage, gates: Gates) -> LimitFinding | None:
    for volume in pod.spec.volumes:
        if gates.memory_volumes and volume.empty_dir is not None and volume.empty_dir.medium == MEMORY_MEDIUM:
            continue  # the kernel enforces the size of a tmpfs
        limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
        fs = usage.volumes.get(volume.name)
        if limit is None or limit.nanos <= 0 or fs is None or fs.used_bytes is None:
            continue
        if _exceeds(fs.used_bytes, limit):
            text = f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". '
            return LimitFinding(pod, EMPTY_DIR_LIMIT, text)
    return None


def _pod_storage_finding(pod: Pod, usage: PodUsage, gates: Gates) -> LimitFinding | None:
    limit = pod_limits(pod, gates=gates).get(EPHEMERAL_STORAGE)
    if limit is None or not _exceeds(usage.ephemeral_storage_bytes or 0, limit):
        return None
    text = f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    return LimitFinding(pod, POD_STORAGE_LIMIT, text)


def _container_storage_finding(pod: Pod, usage: PodUsage, layout: FsLayout, gates: Gates) -> LimitFinding | None:
    limits = storage_limits(pod, gates)
    for container in usage.containers:
        used = container.logs.used_bytes or 0
        if layout == "single":
            used += container.rootfs.used_bytes or 0
        limit = limits.get(container.name)
        if limit is not None and _exceeds(used, limit):
            text = f'Container {container.name} exceeded its local ephemeral storage limit "{limit}". '
            return LimitFinding(pod, CONTAINER_STORAGE_LIMIT, text)
    return None


def eviction_message(
    pod: Pod,
    usage: PodUsage | None,
    resource: str,
    thresholds: Iterable[Threshold],
    observations: Mapping[str, Observation],
    *,
    gates: Gates = DEFAULT_GATES,
) -> EvictionMessage:
    """The message and the event's annotations (§7); every sentence ends with a space, including the last."""
    text = f"The node was low on resource: {resource}. " + _shortage(resource, thresholds, observations)
    if usage is None:
        return EvictionMessage(text)
    annotations = {}
    names_pod = resource == MEMORY and gates.pod_level and gates.ranking_counts_pod_level
    if names_pod and pod_level_set(pod.spec.resources, gates) and usage.memory_bytes is not None:
        request = ((pod.spec.resources.requests if pod.spec.resources is not None else None) or {}).get(MEMORY)
        if request is not None:
            used = from_units(usage.memory_bytes, "BinarySI")
            text += _consumption(f"Pod {pod.metadata.name}", used, request, resource)
            annotations = {"offending_pod": pod.metadata.name, "offending_pod_usage": str(used)}
    offenders = _offenders(pod, usage, resource, gates)
    for name, used, request in offenders:
        text += _consumption(f"Container {name}", used, request, resource)
    annotations |= {
        "offending_containers": ",".join(name for name, _, _ in offenders),
        "offending_containers_usage": ",".join(str(used) for _, used, _ in offenders),
        "starved_resource": resource,
    }
    return EvictionMessage(text, annotations)


def _shortage(resource: str, thresholds: Iterable[Threshold], observations: Mapping[str, Observation]) -> str:
    for threshold in thresholds:
        observed = observations.get(threshold.signal)
        if RESOURCE_OF[threshold.signal] == resource and observed is not None:
            quantity = threshold.value.of(observed.capacity)
            return f"Threshold quantity: {quantity}, available: {observed.available}. "
    return ""


def _offenders(pod: Pod, usage: PodUsage, resource: str, gates: Gates) -> list[tuple[str, Quantity, Quantity]]:
    """Containers and, since 1.32, init containers above their own request, in the order of the statistics."""
    initial = pod.spec.init_containers if gates.eviction_names_init_containers else ()
    requests = {
        container.name: (container.resources.requests or {}).get(resource, ZERO)
        for container in (*initial, *pod.spec.containers)
    }
    offenders = []
    for container in usage.containers:
        used = _container_usage(container, resource)
        if used is not None and container.name in requests and _exceeds(used, requests[container.name]):
            offenders.append((container.name, from_units(used, "BinarySI"), requests[container.name]))
    return offenders


def _container_usage(container: ContainerUsage, resource: str) -> int | None:
    """None for inodes and processes: the message names no container."""
    if resource == MEMORY:
        return container.memory_bytes
    rootfs, logs = container.rootfs.used_bytes, container.logs.used_bytes
    if resource == EPHEMERAL_STORAGE and rootfs is not None and logs is not None:
        return rootfs + logs
    return None


def _consumption(subject: str, used: Quantity, request: Quantity, resource: str) -> str:
    return f"{subject} was using {used}, request is {request}, has larger consumption of {resource}. "


def _exceeds(used: int, limit: Quantity) -> bool:
    return used * NANO_PER_UNIT > limit.nanos


THRESHOLD_MET = "EvictionThresholdMet"
EVICTION_DECISION = "EvictionDecision"  # an event on the pod, not in Kubernetes: why this pod
NO_REASON = ""
SHOWN = 20  # how many candidates a decision keeps


class EvictionCandidate(msgspec.Struct, frozen=True, rename="camel"):
    """One pod in the order. `before`: the key that puts it before the next pod that can be evicted."""

    uid: str
    namespace: str
    name: str
    priority: int
    usage: int
    request: str
    exceeds: bool
    critical: bool = False
    has_usage: bool = True
    before: str = NO_REASON


class EvictionDecision(msgspec.Struct, frozen=True, rename="camel"):
    signal: str
    resource: str
    threshold: str  # the quantity that should be available
    available: str
    hard: bool
    grace_s: float
    order: tuple[EvictionCandidate, ...]
    victim: EvictionCandidate | None  # None: all pods are exempt
    reason: str = EVICTED
    message: str = ""
    annotations: Mapping[str, str] = {}
    time_s: float = 0.0
    reclaimed_bytes: int = 0  # before the eviction, without success
    pods: int = 0  # how many were ranked; `order` has the first of them
    exempt: int = 0  # how many of them must not be evicted
    following: EvictionCandidate | None = None  # the next victim


def attempt_text(resource: str) -> str:
    """The node's event before it acts (§3.13)."""
    return f"Attempting to reclaim {resource}"


def decision(
    urgent: Sequence[Threshold],
    observations: Mapping[str, Observation],
    pods: Iterable[Pod],
    usage: Mapping[str, PodUsage],
    *,
    layout: FsLayout = "single",
    max_pod_grace_s: int = 0,
    hard_grace_s: int | None = None,
    gates: Gates = DEFAULT_GATES,
    time_s: float = 0.0,
    most: int | None = SHOWN,
) -> EvictionDecision | None:
    """The pod to evict for the most urgent threshold; None if no threshold is urgent.

    `most`: how many candidates are kept, None for all.
    """
    threshold = next((threshold for threshold in urgent if threshold.signal in RESOURCE_OF), None)
    if threshold is None:
        return None
    resource, observed = RESOURCE_OF[threshold.signal], observations[threshold.signal]
    order = ranked(pods, usage, threshold.signal, layout, gates=gates)
    chosen = victim(order)
    places = candidates(order, threshold.signal)
    base = EvictionDecision(
        threshold.signal,
        resource,
        str(wanted(threshold, observed.capacity)),
        str(observed.available),
        threshold.hard,
        0.0,
        places[:most],
        None,
        time_s=time_s,
        pods=len(places),
        exempt=sum(place.critical for place in places),
    )
    if chosen is None:
        return base
    message = eviction_message(
        chosen.pod, usage.get(chosen.pod.metadata.uid), resource, urgent, observations, gates=gates
    )
    grace = eviction_grace_s(threshold, chosen.pod, max_pod_grace_s, hard_grace_s, gates.eviction_grace)
    at = order.index(chosen)
    return msgspec.structs.replace(
        base,
        grace_s=float(grace),
        victim=places[at],
        following=next((place for place in places[at + 1 :] if not place.critical), None),
        message=message.text,
        annotations=message.annotations,
    )


def why_sentence(decision: EvictionDecision) -> str:
    """Why this pod, and which is next: for an event on the pod."""
    if decision.victim is None:
        return f"{decision.signal}: no pod can be evicted"
    others = decision.pods - decision.exempt - 1
    text = (
        f"{decision.signal} is {decision.available} and should be {decision.threshold}: chosen before {others} other "
        f"{'pod' if others == 1 else 'pods'}{f', {decision.exempt} exempt' if decision.exempt else ''}; "
        f"{_figures(decision.victim, decision.resource)}"
    )
    if (following := decision.following) is not None:
        text += (
            f"; before {following.namespace}/{following.name} ({_figures(following, decision.resource)}) "
            f"because: {decision.victim.before}"
        )
    if decision.reclaimed_bytes:
        text += f"; {from_units(decision.reclaimed_bytes, 'BinarySI')} were reclaimed first, but that was not enough"
    return text


def _figures(place: EvictionCandidate, resource: str) -> str:
    used = str(from_units(place.usage, "BinarySI" if resource in (MEMORY, EPHEMERAL_STORAGE) else "DecimalSI"))
    if not place.has_usage:
        used = "an unknown amount"
    requested = "" if resource == PIDS else f", requests {place.request}"
    return f"priority {place.priority}, uses {used}{requested}"


def candidates(order: Sequence[Ranked], signal: str) -> tuple[EvictionCandidate, ...]:
    """The order as it is reported."""
    return tuple(
        EvictionCandidate(
            rank.pod.metadata.uid,
            rank.pod.metadata.namespace,
            rank.pod.metadata.name,
            rank.priority,
            rank.usage,
            str(rank.request),
            rank.exceeds,
            rank.critical,
            rank.has_usage,
            reason,
        )
        for rank, reason in zip(order, _reasons(order, signal), strict=True)
    )


def _reasons(order: Sequence[Ranked], signal: str) -> list[str]:
    """Why each pod is before the next one that can be evicted; critical pods have no reason."""
    reasons, following = [], None
    for rank in reversed(order):
        if rank.critical:
            reasons.append(NO_REASON)
            continue
        reasons.append(NO_REASON if following is None else reason_before(rank, following, signal))
        following = rank
    return reasons[::-1]
