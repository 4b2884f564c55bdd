"""inotify: the kernel says that a file was changed. Python has no binding, so three calls of the C library.

One instance serves any number of watches; a user has few instances (128 by default) and many watches, so a process
keeps one. The kernel merges equal events that follow each other, and drops all when its queue is full and then says so:
an event only ever means "look again".
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import NamedTuple

IN_MODIFY = 0x2
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ONLYDIR = 0x0100_0000
IN_MASK_ADD = 0x2000_0000

_HEAD = struct.Struct("iIII")  # wd, mask, cookie, length of the name
_BUFFER_BYTES = 64 << 10

_libc = ctypes.CDLL(None, use_errno=True)
_init = _libc.inotify_init1
_add = _libc.inotify_add_watch
_add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
_remove = _libc.inotify_rm_watch


class Noticed(NamedTuple):
    watch: int
    mask: int
    name: str  # of the entry in a watched directory; empty for a watched file itself


class Inotify:
    """One instance; `read` never waits."""

    def __init__(self) -> None:
        self._fd: int = _init(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise _error("inotify_init1")

    def fileno(self) -> int:
        return self._fd

    def add(self, path: str, mask: int) -> int:
        """The watch's number; the same file again gives the same number."""
        watch: int = _add(self._fd, os.fsencode(path), mask)
        if watch < 0:
            raise _error(path)
        return watch

    def remove(self, watch: int) -> None:
        """The kernel forgets a watch by itself when its file goes; that is no error."""
        _remove(self._fd, watch)

    def read(self) -> list[Noticed]:
        try:
            data = os.read(self._fd, _BUFFER_BYTES)
        except BlockingIOError:
            return []
        return noticed(data)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def noticed(data: bytes) -> list[Noticed]:
    """The records of one read; names are padded with NULs."""
    found, at = [], 0
    while at < len(data):
        watch, mask, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        found.append(Noticed(watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))))
        at += length
    return found


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)
