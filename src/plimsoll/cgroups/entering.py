"""A cgroup's directories, opened for somebody else to enter: one per hierarchy on v1, one on v2."""

from __future__ import annotations

import os

from plimsoll.cgroups.v1 import CgroupsV1
from plimsoll.cgroups.v2 import CgroupsV2
from plimsoll.linux.beneath import CgroupGone


def entry_directories(files: CgroupsV1 | CgroupsV2, path: str) -> list[int]:
    """Descriptors that the caller closes; CgroupGone where there is no such cgroup in any hierarchy."""
    mounts = [files.mount] if isinstance(files, CgroupsV2) else list(dict.fromkeys(files.hierarchies.values()))
    opened: list[int] = []
    gone: CgroupGone | None = None
    for mount in mounts:
        try:
            with mount.directory(path) as directory:
                opened.append(os.dup(directory.fd))
        except CgroupGone as error:  # a hierarchy that we do not use
            gone = error
    if not opened and gone is not None:
        raise gone
    return opened
