"""Replace a small file atomically: readers, and the next process after a kill −9, see either the old or the new file.

There is no fsync: these files record the work of a process for its successor, and a power cut ends that work anyway.
A rename over an existing file would flush it nevertheless (ext4 writes the new file to disk first, which takes
milliseconds). So the two files are exchanged (RENAME_EXCHANGE), and the old one is overwritten the next time, without
truncating it first, which would flush as well. A concurrent reader may have the overwritten file open, so `read_whole`
checks after the read that the path still names the same file.

A node has most to record when the disk is full, so blocks are allocated beforehand (`reserve`).
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD, _EXCHANGE = -100, 2
_KEEP_SIZE = 1
_libc = ctypes.CDLL(None, use_errno=True)


def replace_whole(path: Path, data: bytes, *, room_bytes: int = 0) -> None:
    """After an OSError the file is as before. `room_bytes`: the size up to which it may grow later."""
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.ftruncate(descriptor, len(data))
        reserve(descriptor, room_bytes)
    finally:
        os.close(descriptor)
    if not _exchanged(fresh, path):
        os.replace(fresh, path)


def reserve(descriptor: int, size_bytes: int) -> bool:
    """Allocate blocks up to that size without changing the file's length; False where the file system cannot."""
    fallocate = getattr(_libc, "fallocate64", None)
    if fallocate is None or size_bytes <= 0:
        return False
    return bool(fallocate(descriptor, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size_bytes)) == 0)


def read_whole(path: Path) -> bytes:
    """Raises FileNotFoundError."""
    while True:
        with path.open("rb") as file:
            data = file.read()
            was = os.fstat(file.fileno())
        now = path.stat()
        if (was.st_dev, was.st_ino) == (now.st_dev, now.st_ino):
            return data


def _exchanged(one: Path, other: Path) -> bool:
    """False where the other file does not exist yet, or the system has no RENAME_EXCHANGE."""
    renameat2 = getattr(_libc, "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOENT, errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), str(other))
