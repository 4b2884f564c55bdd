"""Pressure stall information: a trigger fires when tasks have stalled long enough within a window.

The trigger is a text written to a pressure file (`some 150000 1000000` and a NUL). It exists as long as the fd and
raises POLLPRI, which asyncio's readers do not poll for. So each trigger has an epoll of its own, edge-triggered, whose
fd becomes readable when the trigger fires.

Without CAP_SYS_RESOURCE the kernel accepts only windows that are multiples of 2 s (EINVAL otherwise; before Linux 6.5
no trigger at all, EPERM). Then the window is extended and the stall kept: a stall of that size still fires, only later.
See https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

import errno
import os
import select
from typing import Literal

from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, Directory, write_once

Resource = Literal["cpu", "memory", "io"]
Scope = Literal["some", "full"]

GLOBAL = "/proc/pressure"
UNPRIVILEGED_STEP_US = 2_000_000
MAX_WINDOW_US = 10_000_000
_FLAGS = os.O_RDWR | os.O_NONBLOCK

_REASONS = {
    errno.ENOENT: "this kernel has no pressure file there",
    errno.EOPNOTSUPP: "pressure accounting is off; boot with psi=1",
    errno.EPERM: "triggers need CAP_SYS_RESOURCE on this kernel",
    errno.EACCES: "no permission to write the pressure file",
}


class PsiTrigger:
    """An active trigger. `window_us`: the window in effect; `note`: why it differs from the requested one."""

    def __init__(self, fd: int, window_us: int, note: str = "") -> None:
        self.window_us = window_us
        self.note = note
        self._fd = fd
        self._epoll = select.epoll(1)
        self._epoll.register(fd, select.EPOLLPRI | select.EPOLLET)

    def fileno(self) -> int:
        """An fd that is readable when the trigger has fired."""
        return self._epoll.fileno()

    def clear(self) -> None:
        """Call it after the fd was readable. It returns nothing: the poll has consumed the event."""
        self._epoll.poll(0)

    def close(self) -> None:
        if self._fd >= 0:
            self._epoll.close()
            os.close(self._fd)
            self._fd = -1


def trigger(
    resource: Resource, scope: Scope, stall_us: int, window_us: int, *, directory: Directory | None = None
) -> PsiTrigger:
    """On the whole machine, or in one cgroup. Raises CgroupError with the reason where it is known."""
    path = f"{directory.path}/{resource}.pressure" if directory else f"{GLOBAL}/{resource}"
    if stall_us > window_us:  # a longer window would hide the error
        data = f"{scope} {stall_us} {window_us}"
        raise CgroupError("write", path, data, errno.EINVAL, "a stall cannot be longer than its window")
    fd = -1
    try:
        fd = directory.open(f"{resource}.pressure", _FLAGS) if directory else _open(path)
        return _arm(fd, path, scope, stall_us, window_us)
    except CgroupError as error:
        if fd >= 0:
            os.close(fd)
        if isinstance(error, CgroupGoneError):
            raise
        raise CgroupError(error.op, path, error.data, error.errno, _REASONS.get(error.errno, error.detail)) from error


def _open(path: str) -> int:
    try:
        return os.open(path, _FLAGS | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise CgroupError("open", path, "", error.errno or 0) from error


def _arm(fd: int, path: str, scope: Scope, stall_us: int, window_us: int) -> PsiTrigger:
    try:
        write_once(fd, path, f"{scope} {stall_us} {window_us}")
    except CgroupError as error:
        longer_us = unprivileged_window_us(window_us)
        if error.errno != errno.EINVAL or longer_us == window_us:
            raise
        write_once(fd, path, f"{scope} {stall_us} {longer_us}")
        reason = "the kernel accepts 0.5 to 10 s, and without CAP_SYS_RESOURCE only multiples of 2 s"
        return PsiTrigger(fd, longer_us, f"want a window of {window_us} us, have {longer_us} us ({reason})")
    return PsiTrigger(fd, window_us)


def unprivileged_window_us(window_us: int) -> int:
    """The next multiple of 2 s, at most the kernel's 10 s."""
    steps = max(1, -(-window_us // UNPRIVILEGED_STEP_US))
    return min(MAX_WINDOW_US, steps * UNPRIVILEGED_STEP_US)
