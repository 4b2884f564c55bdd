"""A process that only exists, for a systemd scope that has no other yet.

systemd makes a scope around processes and removes it after the last of them. Where a container's cgroup is wanted
before its processes are there (`plimsoll cgroup apply`), a holder keeps it: a sleeping bystander without open files.
It outlives whoever started it. It costs the container next to nothing, as its memory was charged to the starter's
cgroup before it was moved. Its environment says for which cgroup it is, so that it can be found among the members and
ended when it is no longer needed; nothing else is ever taken for one.
"""

from __future__ import annotations

import os
import signal
import time

from plimsoll.errors import PlimsollError
from plimsoll.linux import detached_process
from plimsoll.linux.processes import stat

VARIABLE = "PLIMSOLL_HOLDER"
_EXEC_S = 1.0


class NotAScopeHolderError(PlimsollError):
    """The process is none of ours to end."""


def start(cgroup_path: str) -> int:
    """A new holder for that cgroup, still in our own; whoever makes the scope hands the pid to systemd."""
    return detached_process.start("exec sleep infinity", environment={VARIABLE: cgroup_path})


def held_by(pid: int) -> str | None:
    """The cgroup that this process was started to hold; None where it is no holder, or gone."""
    end_s = time.monotonic() + _EXEC_S
    entries = _environment(pid)
    # Between two programs (the shell that becomes sleep) a process has no environment for a moment.
    while entries == [b""] and not _has_ended(pid) and time.monotonic() < end_s:
        time.sleep(0.001)
        entries = _environment(pid)
    mark = f"{VARIABLE}=".encode()
    return next((os.fsdecode(entry.removeprefix(mark)) for entry in entries if entry.startswith(mark)), None)


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _has_ended(pid: int) -> bool:
    found = stat(pid)
    return found is None or found.state in "ZX"


def end(pid: int, cgroup_path: str) -> bool:
    """Kill the holder of that cgroup; False where it is gone already. Raises NotAHolder for any other process."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # With the pidfd in hand: whatever the pid is by now, this is the process that gets the signal.
        if (held := held_by(pid)) != cgroup_path:
            raise NotAScopeHolderError(
                f"process {pid} is not the holder of {cgroup_path}, but of {held}: it was left alone"
            )
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # somebody else's child by now: its parent, or init, reaps it
    return True
