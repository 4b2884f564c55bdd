"""Usage of a pod in the node's statistics, and the sums that eviction takes from it (04 §1.1, §1.2).

A missing figure is None and counts as 0. A pod without any statistics is ranked differently (04 §5), so ranking takes
`PodUsage | None`.

Kubernetes: pkg/kubelet/eviction/helpers.go, podDiskUsage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from plimsoll.rules.config.thresholds import FsLayout
from plimsoll.rules.model.objects import Pod, Volume

if TYPE_CHECKING:  # the many structs of `runnable` would slow down the start of `explain`
    from plimsoll.rules.model.run_volumes import RunVolume

# The kernel shows "no limit" as a limit beyond this.
UNLIMITED_ABOVE_BYTES = 1 << 62

DiskPart = Literal["rootfs", "logs", "volumes"]
_ALL_PARTS: tuple[DiskPart, ...] = ("rootfs", "logs", "volumes")
# 04 §5: which files of a pod are on the file system of a signal. Images belong to no pod.
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
    """3Gi usage − 1Gi inactive files = 2Gi; active page cache counts as used (§1.1)."""
    return max(0, usage_bytes - inactive_file_bytes)


def is_local(volume: Volume | RunVolume) -> bool:
    """Whether the volume is on the node's disk; secrets, projected volumes and claims do not count (§1.2)."""
    if volume.empty_dir is not None and volume.empty_dir.medium == "":
        return True
    return volume.host_path is not None or volume.config_map is not None or volume.git_repo is not None


def disk_parts(signal: str, layout: FsLayout) -> tuple[DiskPart, ...]:
    return _PARTS[layout, signal.partition(".")[0]]


def disk_usage(pod: Pod, usage: PodUsage, parts: tuple[DiskPart, ...]) -> tuple[int, int]:
    """Bytes and inodes that the pod uses in these parts."""
    parts_used: list[FsUsage] = []
    for container in usage.containers:
        if "rootfs" in parts:
            parts_used.append(container.rootfs)
        if "logs" in parts:
            parts_used.append(container.logs)
    if "volumes" in parts:
        parts_used += [usage.volumes.get(volume.name, NO_FS_USAGE) for volume in pod.spec.volumes if is_local(volume)]
    return sum(fs.used_bytes or 0 for fs in parts_used), sum(fs.inodes or 0 for fs in parts_used)
