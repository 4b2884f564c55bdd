"""A placeholder process for a systemd scope that has no other process yet.

systemd creates a scope around processes and removes it with the last of them. Where a container's cgroup is needed
before its processes exist (`plimsoll cgroup apply`), a holder keeps it: a detached `sleep` without open files, which
outlives its parent. It costs the container almost nothing, as its memory was charged to the parent's cgroup before it
was moved. Its environment names the cgroup, so that the holder can be found among the members and ended later; no
other process is ever taken for one.
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
    """The process is not a holder of that scope, and must not be killed."""


def start(cgroup_path: str) -> int:
    """Start a holder, still in the caller's cgroup; the caller passes the pid to systemd, which creates the scope."""
    return detached_process.start("exec sleep infinity", environment={VARIABLE: cgroup_path})


def scope_of(pid: int) -> str | None:
    """The cgroup that this process holds; None where it is not a holder, or has ended."""
    end_s = time.monotonic() + _EXEC_S
    entries = _environment(pid)
    # During execve (the shell becomes sleep) a process has no environment for a moment.
    while entries == [b""] and not _has_ended(pid) and time.monotonic() < end_s:
        time.sleep(0.001)
        entries = _environment(pid)
    prefix = f"{VARIABLE}=".encode()
    return next((os.fsdecode(entry.removeprefix(prefix)) for entry in entries if entry.startswith(prefix)), None)


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _has_ended(pid: int) -> bool:
    process = stat(pid)
    return process is None or process.state in "ZX"


def end(pid: int, cgroup_path: str) -> bool:
    """Kill the holder of that cgroup; False where it has ended. Raises NotAScopeHolderError for any other process."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The pidfd is open: even if the pid is reused, the signal reaches only this process.
        if (scope := scope_of(pid)) != cgroup_path:
            raise NotAScopeHolderError(f"process {pid} holds {scope}, not {cgroup_path}: it is not killed")
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # not a child of this process: its parent, or init, reaps it
    return True
