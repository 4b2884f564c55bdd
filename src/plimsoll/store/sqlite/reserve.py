"""Disk space for the moment when there is none left: deletions must still be possible.

SQLite needs room in its WAL even to delete. A file of a few megabytes is allocated while there is space and removed
when a write finds the disk full; what it frees is only for deletions (`writer.py`). It is allocated again when others
have made room.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "reserve"


class Reserve:
    """`size` 0: none."""

    def __init__(self, directory: Path, size: int) -> None:
        self._path, self._size = directory / NAME, size

    def allocate(self) -> bool:
        """Whether there is a reserve now, or none is wanted."""
        if not self._size:
            return True
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._size)
        except OSError:
            os.ftruncate(descriptor, 0)
            return False
        finally:
            os.close(descriptor)
        return True

    def has_room(self) -> bool:
        """Whether the disk has room for a reserve and as much again, so that it is not full at once."""
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize >= 2 * self._size

    def release(self) -> bool:
        """Give the space back; whether there was some."""
        try:
            size = self._path.stat().st_size
            self._path.unlink()
        except FileNotFoundError:
            return False
        return size > 0
