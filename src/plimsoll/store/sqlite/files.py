"""The store's directory: its files, their modes, and the lock that keeps a second server out.

The directory belongs to the store alone (0700, files 0600). The store holds `lock` while it is open.
"""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll.linux.files import file_lock
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
    try:
        return file_lock.take(directory / LOCK)
    except file_lock.LockedError as error:
        raise StoreLockedError(directory, error.pid) from None


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
