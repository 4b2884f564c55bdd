"""A small file that is replaced as a whole: readers, and whoever comes after a kill −9, see the old one or the new one.

Nothing is synced: these files tell a killed process's successor what it did, and a power cut ends all that anyway. A
plain rename over a file would be synced all the same: ext4 flushes the new one to the disk first, which takes
milliseconds. So the two files change places instead, and the old one is written over the next time, not truncated first
(which would be flushed as well). Whoever reads meanwhile may hold the one that is written over: `read_whole` looks
whether the file is still the same when it has been read.

A full disk is when a node has most to write down, so a file that grows gets its blocks beforehand (`reserve`).
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
    """OSError where it cannot be written; then the file is as it was. `room_bytes`: what it may grow to later."""
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
    """Blocks for a file of that size; it stays as long as it is. False where the file system has or gives none."""
    fallocate = getattr(_libc, "fallocate64", None)
    if fallocate is None or size_bytes <= 0:
        return False
    return bool(fallocate(descriptor, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size_bytes)) == 0)


def read_whole(path: Path) -> bytes:
    """FileNotFoundError where there is none."""
    while True:
        with path.open("rb") as file:
            data = file.read()
            was = os.fstat(file.fileno())
        now = path.stat()
        if (was.st_dev, was.st_ino) == (now.st_dev, now.st_ino):
            return data


def _exchanged(one: Path, other: Path) -> bool:
    """False where there is nothing yet to change places with, or this system cannot do it."""
    renameat2 = getattr(_libc, "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOENT, errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), str(other))
