"""How soon this process gets a CPU that others want too. Stdlib only: the runtime's supervisor uses it.

Together the pods of a node weigh as much as all its CPUs, the agent as much as one process does. Where they keep every
CPU busy, it would get a fraction of one just when it has to act; what it needs is little, but at once.

Nice counts among the processes that share a weight. In a cgroup below the top of the cpu hierarchy those are the others
in there. At the top, where the kernel makes a group of each session (autogroup), they are those of the session, and the
session has a nice of its own. Only who leads a session changes that: else it would be somebody's terminal. What goes on
in the session of the machine's first process has no group; there is nothing to change then, and its file is empty.
"""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll.linux.capabilities import has_capability

NICE = -10
_SESSION = Path("/proc/self/autogroup")


def go_before_others() -> bool:
    """False where this process may not."""
    if not has_capability("SYS_NICE"):
        return False
    try:
        os.setpriority(os.PRIO_PROCESS, 0, min(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
        if os.getsid(0) == os.getpid() and session_nice() is not None:
            _SESSION.write_text(str(NICE))
    except PermissionError:  # the capability is that of a user namespace, and the kernel asks for the first one's
        return False
    except BlockingIOError:  # without CAP_SYS_ADMIN one session in a tenth of a second: the process's own nice is set
        return True
    return True


def session_nice(pid: int | str = "self") -> int | None:
    """Of the group that the kernel made of that process's session; None where it made none."""
    try:
        words = Path(f"/proc/{pid}/autogroup").read_text().split()
    except FileNotFoundError:
        return None
    return int(words[-1]) if words else None


def go_like_others() -> None:
    """For a child that becomes somebody's program."""
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
