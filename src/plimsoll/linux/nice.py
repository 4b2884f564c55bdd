"""Raise this process's CPU priority (nice, autogroup). Stdlib only (the supervisor imports it).

The pods of a node together have the CPU weight of all its CPUs, the agent that of one process. When the pods keep every
CPU busy, the agent would get a fraction of one exactly when it must act; it needs little CPU time, but without delay.

Nice applies among the processes of one scheduling group. In a cgroup below the root of the cpu hierarchy these are its
processes. In the root, the kernel groups the processes by session (autogroup), and the session has a nice value of its
own. Only a session leader changes that value, as another process may share the session of a user's terminal. The
session of init has no autogroup, and its file is empty. See sched(7).
"""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll.linux.capabilities import has_capability

NICE = -10
_SESSION = Path("/proc/self/autogroup")


def raise_priority() -> bool:
    """False where this process is not allowed to."""
    if not has_capability("SYS_NICE"):
        return False
    try:
        os.setpriority(os.PRIO_PROCESS, 0, min(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
        if os.getsid(0) == os.getpid() and autogroup_nice() is not None:
            _SESSION.write_text(str(NICE))
    except PermissionError:  # the capability is only valid in a user namespace
        return False
    except BlockingIOError:  # without CAP_SYS_ADMIN, one autogroup write per 100 ms: the process's own nice is set
        return True
    return True


def autogroup_nice(pid: int | str = "self") -> int | None:
    """The nice value of the autogroup of that process's session; None where it has none."""
    try:
        words = Path(f"/proc/{pid}/autogroup").read_text().split()
    except FileNotFoundError:
        return None
    return int(words[-1]) if words else None


def reset_priority() -> None:
    """For a child that runs the program of a container."""
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
