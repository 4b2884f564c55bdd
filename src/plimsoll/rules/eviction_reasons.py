"""Why a pod is evicted, in the kubelet's words: a storage limit of its own (04 §6), or a shortage of the node (§7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.rules.effective import pod_level_set, pod_limits
from plimsoll.rules.eviction import RESOURCE_OF, Observation
from plimsoll.rules.objects import EPHEMERAL_STORAGE, MEMORY, Pod, is_critical
from plimsoll.rules.quantity import NANO_PER_UNIT, ZERO, Quantity, from_units
from plimsoll.rules.thresholds import FsLayout, Threshold
from plimsoll.rules.usage import ContainerUsage, PodUsage

EMPTY_DIR_LIMIT = "emptydirfs.limit"
POD_STORAGE_LIMIT = "ephemeralpodfs.limit"
CONTAINER_STORAGE_LIMIT = "ephemeralcontainerfs.limit"


class LimitFinding(msgspec.Struct, frozen=True):
    """A pod that broke a storage limit of its own; `signal` is the metric's label."""

    pod: Pod
    signal: str
    message: str


class EvictionMessage(msgspec.Struct, frozen=True):
    text: str
    annotations: dict[str, str] = {}  # of the event


def limit_finding(
    pod: Pod, usage: PodUsage | None, layout: FsLayout = "single", *, pod_level: bool = True
) -> LimitFinding | None:
    """The first storage limit that the pod exceeds; no pressure is needed, and critical pods are spared (§6)."""
    if usage is None or is_critical(pod):
        return None
    return (
        _empty_dir_finding(pod, usage)
        or _pod_storage_finding(pod, usage, pod_level)
        or _container_storage_finding(pod, usage, layout)
    )


def _empty_dir_finding(pod: Pod, usage: PodUsage) -> LimitFinding | None:
    for volume in pod.spec.volumes:
        limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
        fs = usage.volumes.get(volume.name)
        if limit is None or limit.nanos <= 0 or fs is None or fs.used_bytes is None:
            continue
        if _exceeds(fs.used_bytes, limit):
            text = f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". '
            return LimitFinding(pod, EMPTY_DIR_LIMIT, text)
    return None


def _pod_storage_finding(pod: Pod, usage: PodUsage, pod_level: bool) -> LimitFinding | None:
    limit = pod_limits(pod, pod_level=pod_level).get(EPHEMERAL_STORAGE)
    if limit is None or not _exceeds(usage.ephemeral_storage_bytes or 0, limit):
        return None
    text = f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    return LimitFinding(pod, POD_STORAGE_LIMIT, text)


def _container_storage_finding(pod: Pod, usage: PodUsage, layout: FsLayout) -> LimitFinding | None:
    limits = {
        container.name: limit
        for container in pod.spec.containers
        if (limit := (container.resources.limits or {}).get(EPHEMERAL_STORAGE))
    }
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
    pod_level: bool = True,
) -> EvictionMessage:
    """The message M and the event's annotations (§7); every sentence ends with a space, the last one too."""
    text = f"The node was low on resource: {resource}. " + _shortage(resource, thresholds, observations)
    if usage is None:
        return EvictionMessage(text)
    annotations = {}
    if resource == MEMORY and pod_level and pod_level_set(pod.spec.resources) and usage.memory_bytes is not None:
        request = ((pod.spec.resources.requests if pod.spec.resources is not None else None) or {}).get(MEMORY)
        if request is not None:
            used = from_units(usage.memory_bytes, "BinarySI")
            text += _consumption(f"Pod {pod.metadata.name}", used, request, resource)
            annotations = {"offending_pod": pod.metadata.name, "offending_pod_usage": str(used)}
    offenders = _offenders(pod, usage, resource)
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


def _offenders(pod: Pod, usage: PodUsage, resource: str) -> list[tuple[str, Quantity, Quantity]]:
    """Regular and init containers above their own request, in the order of the statistics."""
    requests = {
        container.name: (container.resources.requests or {}).get(resource, ZERO)
        for container in (*pod.spec.init_containers, *pod.spec.containers)
    }
    found = []
    for container in usage.containers:
        used = _container_usage(container, resource)
        if used is not None and container.name in requests and _exceeds(used, requests[container.name]):
            found.append((container.name, from_units(used, "BinarySI"), requests[container.name]))
    return found


def _container_usage(container: ContainerUsage, resource: str) -> int | None:
    """For inodes and processes no container is named."""
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
