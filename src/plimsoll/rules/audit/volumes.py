"""A21, A23: volumes in memory beyond the limit they count into, and sidecars whose storage limit is not enforced."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.rules.audit.differences import ComparedNode
from plimsoll.rules.audit.evidence import AuditedPod
from plimsoll.rules.audit.finding import Finding, Rule
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, MEMORY, MEMORY_MEDIUM, is_sidecar
from plimsoll.rules.quantity import Quantity
from plimsoll.rules.resources.effective import pod_limits
from plimsoll.rules.resources.values import declared_limits


def _memory_volumes(view: ComparedNode) -> Iterator[Finding]:
    for pod in view.pods:
        for volume in pod.pod.spec.volumes:
            size = volume.empty_dir.size_limit if volume.empty_dir is not None else None
            if size is None or volume.empty_dir is None or volume.empty_dir.medium != MEMORY_MEDIUM:
                continue
            where, limit = _limit(pod, volume.name)
            if limit is None or size <= limit:
                continue
            yield Finding(
                "A21",
                "warning",
                "pod",
                pod.title,
                f"spec.volumes[{volume.name}].emptyDir.sizeLimit",
                declared=str(size),
                expected=f"at most {limit}, the memory limit of {where}",
                effective=str(limit),
                observed=str(size),
                owner="person",
                advice="lower sizeLimit, or raise the memory limit by the size of the volume",
                note="files in it count as memory of the container that writes them: it is OOM-killed before the "
                "volume is full",
                node=view.evidence.name,
            )


def _limit(pod: AuditedPod, volume: str) -> tuple[str, Quantity | None]:
    """The smallest memory limit that the volume counts into: of a container that mounts it, or of the pod."""
    found: list[tuple[str, Quantity]] = []
    spec = pod.pod.spec
    for container in (*spec.init_containers, *spec.containers):
        limit = (container.resources.limits or {}).get(MEMORY)
        if limit is not None and volume in pod.mounts.get(container.name, ()):
            found.append((f"container {container.name}", limit))
    _, memory_is_limited = declared_limits(pod.pod)
    total = pod_limits(pod.pod).get(MEMORY)
    if memory_is_limited and total is not None:
        found.append(("the pod", total))
    return min(found, key=lambda each: each[1].nanos) if found else ("", None)


def _sidecar_storage(view: ComparedNode) -> Iterator[Finding]:
    if view.chosen.profile.sidecar_storage_limits:
        return
    for pod in view.pods:
        for container in pod.pod.spec.init_containers:
            limit = (container.resources.limits or {}).get(EPHEMERAL_STORAGE)
            if limit is None or not is_sidecar(container):
                continue
            yield Finding(
                "A23",
                "warning",
                "container",
                f"{pod.title} / {container.name}",
                "limits.ephemeral-storage",
                declared=str(limit),
                expected=str(limit),
                effective="no limit of its own; the sum of the pod's limits applies to the pod",
                observed="not enforced by this kubelet",
                next_overwrite="with kubelet 1.37",
                advice="upgrade to 1.37, or limit what the sidecar writes (an emptyDir with a sizeLimit)",
                node=view.evidence.name,
            )


RULES = (
    Rule(
        "A21",
        "warning",
        ("pod",),
        "a volume in memory is larger than the limit it counts into",
        "Files of an emptyDir with medium Memory are memory of the container that writes them. A sizeLimit above its "
        "memory limit is never reached: the container is OOM-killed first.",
        "Keep sizeLimit below the memory limit of every container that writes to the volume.",
        ("04 §1.2", "https://kubernetes.io/docs/concepts/storage/volumes/#emptydir"),
        ("pods",),
        _memory_volumes,
    ),
    Rule(
        "A23",
        "warning",
        ("container",),
        "the storage limit of a sidecar is not enforced",
        "Up to 1.36 the kubelet checks limits of ephemeral storage of regular containers only. A sidecar may fill the "
        "node's disk.",
        "Upgrade to 1.37, or use a volume with a sizeLimit.",
        ("kubernetes#138462", "04 §7"),
        ("pods", "node"),
        _sidecar_storage,
    ),
)
