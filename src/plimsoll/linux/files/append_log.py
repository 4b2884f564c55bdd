"""A key-value file in which few entries change at a time: changes are appended, the rest is not written again.

    [checksum, {"key": value, …}]      one line for each change; null removes an entry

The first line has all entries. A line that a kill cut off is dropped: its writer had not acted on it yet. Once more
than half of the file is out of date, the file is replaced as a whole (`atomic_file`, which also explains why there is
no fsync). One process writes at a time; others may read meanwhile.

Two files alternate, and each has reserved blocks to grow into. So a state of about the same size can be written also
when the disk is full, which is when evictions must be recorded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from plimsoll.errors import StructuredError
from plimsoll.linux.files.atomic_file import read_whole, replace_whole

SPARE_BYTES = 1 << 16
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_LINE = msgspec.json.Decoder(tuple[int, msgspec.Raw])
_ENTRIES = msgspec.json.Decoder(dict[str, msgspec.Raw])


class AppendLogCorruptError(StructuredError):
    line: int
    reason: str
    template = "line {line}: {reason}"


class AppendLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, bytes] = {}
        self._size = 0  # of the file after the last write here; 0: unknown, so the next write replaces the file
        self._max_size = 0  # a write beyond this size replaces the file
        self._both_reserved = False  # both files have their blocks

    def read(self) -> Mapping[str, bytes]:
        """Key → JSON. Raises FileNotFoundError, or AppendLogCorruptError where a line cannot be decoded."""
        self.discard()
        entries: dict[str, bytes] = {}
        *lines, _ = read_whole(self.path).split(b"\n")  # an incomplete last line is dropped
        if not lines:
            raise AppendLogCorruptError(1, "the line is incomplete")
        for number, line in enumerate(lines, 1):
            try:
                checksum, data = _LINE.decode(line)
                if zlib.crc32(data) != checksum:
                    raise AppendLogCorruptError(number, "the checksum is wrong")
                changes = _ENTRIES.decode(data)
            except msgspec.DecodeError as error:
                raise AppendLogCorruptError(number, str(error)) from None
            _update(entries, {key: None if bytes(value) == b"null" else bytes(value) for key, value in changes.items()})
        self._entries = entries
        return entries

    def discard(self) -> None:
        """Drop all entries; the next write replaces the file."""
        self._entries, self._size = {}, 0

    def write(self, changes: Mapping[str, bytes | None]) -> None:
        """Key → JSON without newlines, or None to remove the entry. After an OSError nothing has changed."""
        line = _line(changes)
        if self._size and self._size + len(line) <= self._max_size and self._append(line):
            _update(self._entries, changes)
            self._size += len(line)
            return
        entries = dict(self._entries)
        _update(entries, changes)
        line = _line(entries)
        max_size = 2 * len(line) + SPARE_BYTES
        replace_whole(self.path, line, room_bytes=max_size)
        self._entries, self._size, self._max_size = entries, len(line), max_size
        if not self._both_reserved:
            with contextlib.suppress(OSError):  # written already; the other file gets its blocks when there is space
                replace_whole(self.path, line, room_bytes=max_size)
                self._both_reserved = True

    def _append(self, line: bytes) -> bool:
        """False where another process has changed the file, or it cannot grow."""
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return os.fstat(file).st_size == self._size and _write(file, line, self._size)
        finally:
            os.close(file)


def _write(file: int, line: bytes, size: int) -> bool:
    """False, with the file as before, where the disk is full."""
    try:
        if os.write(file, line) == len(line):
            return True
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
    os.ftruncate(file, size)
    return False


def _update(entries: dict[str, bytes], changes: Mapping[str, bytes | None]) -> None:
    for key, text in changes.items():
        if text is None:
            entries.pop(key, None)
        else:
            entries[key] = text


def _line(entries: Mapping[str, bytes | None]) -> bytes:
    texts = (msgspec.json.encode(key) + b":" + (text or b"null") for key, text in entries.items())
    data = b"{%b}" % b",".join(texts)
    return b"[%d,%b]\n" % (zlib.crc32(data), data)
