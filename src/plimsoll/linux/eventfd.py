"""cgroup v1's events: a line in cgroup.event_control ties an eventfd to a control file.

`<eventfd> <fd of memory.usage_in_bytes> <bytes>` fires whenever usage crosses that many bytes, upwards or downwards;
`<eventfd> <fd of memory.oom_control>` fires when the cgroup runs out of memory. The eventfd also fires when the cgroup
is removed. Closing it ends the registration; the control file's fd is needed only while registering.
"""

from __future__ import annotations

import os

from plimsoll.linux.cgroup_files import CgroupError, Directory


def usage_threshold(directory: Directory, usage_bytes: int) -> int:
    """An eventfd that fires when the usage of this memory cgroup crosses the threshold."""
    return _register(directory, "memory.usage_in_bytes", f" {usage_bytes}")


def out_of_memory(directory: Directory) -> int:
    """An eventfd that fires when a process in this memory cgroup, or below it, meets the limit and nothing is left."""
    return _register(directory, "memory.oom_control", "")


def clear(fd: int) -> int:
    """How often it has fired since the last time; 0 where it has not."""
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
