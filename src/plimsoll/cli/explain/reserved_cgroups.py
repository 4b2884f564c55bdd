"""Which hierarchies of this machine lack a cgroup that reservations are enforced on (01 §10.4).

Neither the kubelet nor Plimsoll creates these cgroups; a node that lacks one does not start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from plimsoll.cgroups.drivers.detect import Hierarchies
from plimsoll.rules.cgroups.desired import Cgroup


def missing_cgroups(tree: Cgroup, host: Hierarchies, exists: Callable[[str], bool] = os.path.isdir) -> Iterator[str]:
    for cgroup in tree.children:
        if cgroup.level != "reserved":
            continue
        # The first word of a file is its controller; v2 has one tree for all.
        wanted = dict.fromkeys(file.name.partition(".")[0] for file in cgroup.files)
        missing = [name for name in wanted if not exists(_directory(host, name) + cgroup.path)]
        if missing:
            where = f" in {', '.join(missing)}" if host.version == 1 else ""
            yield (
                f"{cgroup.name} is enforced on {cgroup.path}, which does not exist{where} on this machine: "
                "create it, or the node does not start"
            )


def _directory(host: Hierarchies, controller: str) -> str:
    mounted = host.unified if host.version == 2 else host.v1.get(controller)
    return "/nonexistent" if mounted is None else mounted.mount_point
