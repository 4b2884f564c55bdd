"""What a pod uses, as the node's statistics report it, and the sums that eviction takes from it (04 §1.1, §1.2).

A figure that was not reported is None, and counts as 0 once the pod has statistics at all; a pod without any is another
matter (§5), so whoever ranks keeps `PodUsage | None`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.rules.config.thresholds import FsLayout
from plimsoll.rules.model.objects import Pod, Volume
from plimsoll.rules.model.runnable import RunVolume

# A limit beyond this is the kernel's way to say "none".
UNLIMITED_ABOVE_BYTES = 1 << 62

DiskPart = Literal["rootfs", "logs", "volumes"]
_ALL_PARTS: tuple[DiskPart, ...] = ("rootfs", "logs", "volumes")
# §5: which of a pod's files lie on the file system that a signal speaks of. Images belong to no pod.
_PARTS: dict[tuple[FsLayout, str], tuple[DiskPart, ...]] = {
    ("single", "nodefs"): _ALL_PARTS,
    ("single", "imagefs"): _ALL_PARTS,
    ("single", "containerfs"): _ALL_PARTS,
    ("dedicated", "nodefs"): ("logs", "volumes"),
    ("dedicated", "imagefs"): ("rootfs",),
    ("dedicated", "containerfs"): ("rootfs",),
    ("split", "nodefs"): _ALL_PARTS,
    ("split", "imagefs"): (),
    ("split", "containerfs"): _ALL_PARTS,
}


class FsUsage(msgspec.Struct, frozen=True):
    used_bytes: int | None = None
    inodes: int | None = None


NO_FS_USAGE = FsUsage()


class ContainerUsage(msgspec.Struct, frozen=True):
    name: str
    memory_bytes: int | None = None  # working set
    rootfs: FsUsage = NO_FS_USAGE
    logs: FsUsage = NO_FS_USAGE


class PodUsage(msgspec.Struct, frozen=True):
    """`memory_bytes` and `processes` are the pod cgroup's own figures, not sums over the containers."""

    memory_bytes: int | None = None  # working set
    processes: int | None = None
    containers: tuple[ContainerUsage, ...] = ()
    volumes: dict[str, FsUsage] = {}
    ephemeral_storage_bytes: int | None = None


def working_set_bytes(usage_bytes: int, inactive_file_bytes: int) -> int:
    """What the kernel cannot drop without a fault; active page cache counts as used (§1.1)."""
    return max(0, usage_bytes - inactive_file_bytes)


def is_local(volume: Volume | RunVolume) -> bool:
    """Does the volume live on the node's own disk? Secrets, projected volumes and claims do not count (§1.2)."""
    if volume.empty_dir is not None and volume.empty_dir.medium == "":
        return True
    return volume.host_path is not None or volume.config_map is not None or volume.git_repo is not None


def disk_parts(signal: str, layout: FsLayout) -> tuple[DiskPart, ...]:
    return _PARTS[layout, signal.partition(".")[0]]


def disk_usage(pod: Pod, usage: PodUsage, parts: tuple[DiskPart, ...]) -> tuple[int, int]:
    """Bytes and inodes that the pod holds in these parts."""
    found: list[FsUsage] = []
    for container in usage.containers:
        if "rootfs" in parts:
            found.append(container.rootfs)
        if "logs" in parts:
            found.append(container.logs)
    if "volumes" in parts:
        found += [usage.volumes.get(volume.name, NO_FS_USAGE) for volume in pod.spec.volumes if is_local(volume)]
    return sum(fs.used_bytes or 0 for fs in found), sum(fs.inodes or 0 for fs in found)
