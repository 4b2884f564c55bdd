"""The newest committed version in a file of its own, so that a lost write-ahead log is noticed.

SQLite takes a missing or shortened WAL for one that was never written: a database that is whole, and old. The mark is
written after each commit, so it is never above what was on disk; it is flushed with each checkpoint only, because a
second flush would double the time of a write. After a power cut it may be a little old, and then misses a loss.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from zlib import crc32

NAME = "commit-mark"
_MARK = struct.Struct("<QI")


class CommitMark:
    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def read(self) -> int:
        """0 where there is none yet."""
        data = os.pread(self._descriptor, _MARK.size, 0)
        if len(data) < _MARK.size:
            return 0
        version, crc = _MARK.unpack(data)
        return int(version) if crc == crc32(data[:8]) else 0

    def write(self, version: int) -> None:
        data = struct.pack("<Q", version)
        os.pwrite(self._descriptor, data + struct.pack("<I", crc32(data)), 0)

    def flush(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
