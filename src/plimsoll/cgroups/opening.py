"""From what was detected to a driver that can be used."""

from __future__ import annotations

from plimsoll.cgroups.detect import CgroupsUnusable, Hierarchies
from plimsoll.cgroups.v1 import CgroupsV1
from plimsoll.cgroups.v2 import CgroupsV2


def open_cgroupfs(found: Hierarchies) -> CgroupsV1 | CgroupsV2:
    """The driver that writes the file systems itself, for this host's version."""
    unified = found.unified
    if found.version == 2:
        if unified is None:
            raise CgroupsUnusable("cgroup2 is not mounted: mount -t cgroup2 none /sys/fs/cgroup")
        return CgroupsV2(unified.mount_point, unified.root)
    mounted = [*found.v1.values(), *([unified] if unified else [])]
    return CgroupsV1(
        {name: mount.mount_point for name, mount in found.v1.items()},
        unified.mount_point if unified else None,
        {mount.mount_point: mount.root for mount in mounted},
    )
