"""inotify(7): file change notifications. Python has no binding, so this module calls the C library.

One instance serves any number of watches; a user has few instances (128 by default) and many watches, so a process
keeps one. The kernel merges equal consecutive events, and drops events when its queue is full (IN_Q_OVERFLOW): an event
only means that the file must be read again.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import NamedTuple

IN_MODIFY = 0x2
IN_CLOSE_WRITE = 0x8
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


class InotifyEvent(NamedTuple):
    watch: int
    mask: int
    name: str  # of the entry in a watched directory; empty for a watched file itself


class Inotify:
    """One instance; `read` never blocks."""

    def __init__(self) -> None:
        self._fd: int = _init(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise _error("inotify_init1")

    def fileno(self) -> int:
        return self._fd

    def add(self, path: str, mask: int) -> int:
        """The watch descriptor; the same file has the same descriptor."""
        watch: int = _add(self._fd, os.fsencode(path), mask)
        if watch < 0:
            raise _error(path)
        return watch

    def remove(self, watch: int) -> None:
        """No error where the kernel has removed the watch together with its file."""
        _remove(self._fd, watch)

    def read(self) -> list[InotifyEvent]:
        try:
            data = os.read(self._fd, _BUFFER_BYTES)
        except BlockingIOError:
            return []
        return parse_events(data)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def parse_events(data: bytes) -> list[InotifyEvent]:
    """The records of one read; names are padded with NULs."""
    events, at = [], 0
    while at < len(data):
        watch, mask, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        events.append(InotifyEvent(watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))))
        at += length
    return events


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)
