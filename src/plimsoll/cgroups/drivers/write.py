"""One value into one open cgroup, and the proof that it is there: read back, equal up to the kernel's own rounding.

Waiting until the kernel says that something is so: for changes that it announces late or not at all.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from plimsoll.linux.cgroup_files import CgroupError, Directory
from plimsoll.rules.cgroups.rounding import same_value

# Files that are orders, not values: reading them shows nothing, or something else, or is not allowed.
_ORDERS = frozenset(
    {
        "cgroup.event_control",
        "cgroup.kill",
        "cgroup.procs",
        "cgroup.subtree_control",
        "freezer.state",
        "memory.force_empty",
        "memory.reclaim",
        "tasks",
    }
)
# Writing these reclaims memory until the value holds: seconds, when the cgroup is full. Not in an event loop's thread.
_SLOW = frozenset(
    {
        "memory.force_empty",
        "memory.high",
        "memory.limit_in_bytes",
        "memory.max",
        "memory.memsw.limit_in_bytes",
        "memory.reclaim",
    }
)


def is_slow(file: str) -> bool:
    return file in _SLOW


def write_checked(directory: Directory, file: str, value: str, page_size: int) -> None:
    directory.write(file, value)
    if file in _ORDERS:
        return
    found = directory.read(file)
    if not same_value(file, value, found, page_size):
        detail = f"the kernel took it without an error, but shows {found!r}: something else writes this file"
        raise CgroupError("read back", f"{directory.path}/{file}", value, errno.EIO, detail)


_FIRST_S = 0.0002
_LONGEST_S = 0.02


async def until(condition: Callable[[], bool], deadline_s: float) -> bool:
    """Whether the condition came true in time. Asked often at first, then every 20 ms."""
    clock = asyncio.get_running_loop().time
    end, pause_s = clock() + deadline_s, _FIRST_S
    while not condition():
        if (left_s := end - clock()) <= 0:
            return False
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 2, _LONGEST_S)
    return True
