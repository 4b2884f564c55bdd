"""Write one value into an open cgroup and read it back, and wait for changes that the kernel completes later."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from plimsoll.aio import ExponentialBackoff
from plimsoll.linux.cgroup_files import CgroupError, Directory
from plimsoll.rules.blockio.files import is_keyed, writes
from plimsoll.rules.cgroups.rounding import same_value

# Files that take commands, not values: they cannot be read back.
_COMMANDS = frozenset(
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
# A write to these reclaims memory first, which takes seconds in a full cgroup: never in the event loop's thread.
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
# Those of them that are limits → the usage that they limit.
_USAGE = {
    "memory.high": "memory.current",
    "memory.limit_in_bytes": "memory.usage_in_bytes",
    "memory.max": "memory.current",
    "memory.memsw.limit_in_bytes": "memory.memsw.usage_in_bytes",
}
_UNLIMITED = ("max", "-1")


def is_command(file: str) -> bool:
    return file in _COMMANDS


def is_slow(file: str) -> bool:
    return file in _SLOW


def fits(directory: Directory, file: str, value: str) -> bool:
    """A limit above the usage needs no reclaim, so no thread is needed, also while the cgroup is frozen."""
    usage = _USAGE.get(file)
    if usage is None or value in _UNLIMITED:
        return usage is not None
    text = directory.read_if_there(usage)
    return text is not None and value.isdecimal() and int(text) < int(value)


def write_checked(directory: Directory, file: str, value: str, page_size: int) -> None:
    """Raises CgroupError where the file then has another value, apart from the kernel's rounding."""
    for text in writes(file, value, directory.read(file)) if is_keyed(file) else (value,):
        directory.write(file, text)
    if is_command(file):
        return
    text = directory.read(file)
    if not same_value(file, value, text, page_size):
        detail = f"the kernel accepted it, but shows {text!r}: another process writes this file"
        raise CgroupError("read back", f"{directory.path}/{file}", value, errno.EIO, detail)


async def until(condition: Callable[[], bool], deadline_s: float) -> bool:
    """Whether the condition became true in time. Polls often at first, then every 20 ms."""
    clock = asyncio.get_running_loop().time
    end, backoff = clock() + deadline_s, ExponentialBackoff(0.0002, 0.02)
    while not condition():
        if (left_s := end - clock()) <= 0:
            return False
        await asyncio.sleep(min(backoff.next_s(), left_s))
    return True
