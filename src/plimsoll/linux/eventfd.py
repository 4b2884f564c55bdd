"""cgroup v1 notifications: a line in cgroup.event_control registers an eventfd for a control file.

`<eventfd> <fd of memory.usage_in_bytes> <bytes>` fires whenever usage crosses that many bytes, upwards or downwards;
`<eventfd> <fd of memory.oom_control>` fires when the cgroup runs out of memory. The eventfd also fires when the cgroup
is removed. Closing it ends the registration; the fd of the control file is needed only while registering.
See https://docs.kernel.org/admin-guide/cgroup-v1/memory.html#memory-thresholds
"""

from __future__ import annotations

import os

from plimsoll.linux.cgroup_files import CgroupError, Directory


def usage_threshold(directory: Directory, usage_bytes: int) -> int:
    """An eventfd that fires when the usage of this memory cgroup crosses the threshold."""
    return _register(directory, "memory.usage_in_bytes", f" {usage_bytes}")


def out_of_memory(directory: Directory) -> int:
    """An eventfd that fires when this memory cgroup, or one below it, is at its limit and cannot reclaim more."""
    return _register(directory, "memory.oom_control", "")


def clear(fd: int) -> int:
    """How often it has fired since the last call."""
    try:
        return os.eventfd_read(fd)
    except BlockingIOError:
        return 0


def _register(directory: Directory, file: str, argument: str) -> int:
    watched = directory.open(file)
    try:
        fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            directory.write("cgroup.event_control", f"{fd} {watched}{argument}")
        except CgroupError:
            os.close(fd)
            raise
        return fd
    finally:
        os.close(watched)
