"""A lock that a process holds while it runs: flock on a file that contains its pid.

The kernel releases it when the process ends, so a killed process leaves no stale lock. The pid is for messages, and to
end the holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path

_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class LockedError(Exception):
    """Another process holds the lock; `pid` is None where it has not written it yet."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(path, pid)
        self.path, self.pid = path, pid


def take(path: Path, within_s: float = 0.0) -> int:
    """An fd that keeps the lock until it is closed. `within_s`: how long to wait for it. Raises LockedError."""
    fd = os.open(path, _OPEN, 0o600)
    if not (_has(fd) or (within_s and _has_within(fd, within_s))):
        text = os.pread(fd, 32, 0).strip()
        os.close(fd)
        raise LockedError(path, int(text) if text.isdigit() else None)
    with contextlib.suppress(OSError):  # on a full disk the lock holds without its pid
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _has(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has_within(fd: int, within_s: float) -> bool:
    """flock has no timeout, but a thread that waits for it can be left behind."""
    waiting = threading.Thread(target=fcntl.flock, args=(fd, fcntl.LOCK_EX), daemon=True)
    waiting.start()
    waiting.join(within_s)
    return _has(fd)


def holder(path: Path) -> int | None:
    """The pid of the process that holds the lock; None where none does, or has not written it yet."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        text = os.pread(fd, 32, 0).strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(fd)
