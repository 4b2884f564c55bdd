"""Space in the write-ahead log that is on the disk before SQLite writes there.

A commit that makes a file longer also makes the file system commit the new length: on ext4 0.14 ms against 0.09 ms for
writing over bytes that are there, and 1.8 ms against 0.2 ms while other programs write to the disk, too. After a
checkpoint SQLite writes over its log from the beginning, so only the first pass is slow. Here zeros are written behind
the log as soon as a commit has made it longer. To SQLite they are what an earlier pass left there: no frame of this
one, and so the end of the log.
"""

from __future__ import annotations

import os
from pathlib import Path

_LEAST_BYTES, _MOST_BYTES = 64 * 1024, 1024 * 1024  # so many are written with the next commit


class LogSpace:
    """Of a database that is open in WAL mode and has been written to. `extend` belongs to the thread that writes."""

    def __init__(self, database: Path) -> None:
        log = database.with_name(f"{database.name}-wal")
        self._descriptor = os.open(log, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._bytes = os.fstat(self._descriptor).st_size

    def extend(self) -> None:
        """Between two transactions. A disk without room for more is left as it was: the next commit will say so."""
        size = os.fstat(self._descriptor).st_size
        if size > self._bytes:
            step = min(max(size, _LEAST_BYTES), _MOST_BYTES)
            try:
                size += os.pwrite(self._descriptor, bytes(step), size)
            except OSError:
                os.ftruncate(self._descriptor, size)
        self._bytes = size

    def close(self) -> None:
        os.close(self._descriptor)
