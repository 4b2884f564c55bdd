"""The store's directory: its files, their modes, and the lock that keeps a second server out.

The directory belongs to the store alone (0700, files 0600). the store locks `lock` with flock while it is open, so a
killed server leaves no stale lock behind; the pid in it is only for the error message.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from plimsoll.store.errors import StoreLockedError

DATABASE = "objects.db"
LOCK = "lock"
ASIDE = "before-restore-"  # directories with what a restore has replaced


def make_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


def lock(directory: Path) -> int:
    """An fd that keeps the lock until it is closed; `StoreLockedError` where another process has it."""
    fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0).strip()
        os.close(fd)
        raise StoreLockedError(directory, int(text) if text.isdigit() else None) from None
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def make_private(path: Path) -> None:
    """An empty file for its owner only, before SQLite writes to it: SQLite gives its WAL the same mode."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))


def sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def put_in_place(new: Path, path: Path) -> None:
    """Durably: after a crash there is either what was at `path` or all of `new`."""
    sync_file(new)
    os.replace(new, path)
    sync_file(path.parent)
