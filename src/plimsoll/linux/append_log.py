"""A file of members by name, of which few change at a time: what changes is appended, the rest is not written again.

    [checksum, {"name": value, …}]      one line for each change; null takes a member away

The first line has everything that there was. A line that a kill has cut off is dropped: whoever wrote it had not gone
on yet. Once more of the file is out of date than is not, it is replaced as a whole (`atomic_file`, where it is also
said why nothing is synced). One process writes at a time; others may read meanwhile.

Two files take turns in being the one, and each keeps blocks to grow into. So what is about as large as before can be
written also when the disk is full, and that is when evictions are to be remembered.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.linux.atomic_file import read_whole, replace_whole

SPARE_BYTES = 1 << 16
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_LINE = msgspec.json.Decoder(tuple[int, msgspec.Raw])
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class AppendLogCorruptError(PlimsollError):
    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line, self.reason = line, reason

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class AppendLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._members: dict[str, bytes] = {}
        self._size = 0  # of the file as we left it; 0: it is not known to be that, so it is written as a whole next
        self._most = 0  # … and above this size too
        self._has_twin = False  # both files have their blocks

    def read(self) -> Mapping[str, bytes]:
        """Name → JSON. FileNotFoundError where there is none, MembersDamaged where nobody can tell what it says."""
        self.discard()
        found: dict[str, bytes] = {}
        *lines, _ = read_whole(self.path).split(b"\n")  # what follows the last newline was cut off
        if not lines:
            raise AppendLogCorruptError(1, "it is not whole")
        for number, line in enumerate(lines, 1):
            try:
                checksum, data = _LINE.decode(line)
                if zlib.crc32(data) != checksum:
                    raise AppendLogCorruptError(number, "the checksum is wrong")
                changed = _MEMBERS.decode(data)
            except msgspec.DecodeError as error:
                raise AppendLogCorruptError(number, str(error)) from None
            _change(found, {name: None if bytes(value) == b"null" else bytes(value) for name, value in changed.items()})
        self._members = found
        return found

    def discard(self) -> None:
        """Whatever the file says, the next that is written is all there is."""
        self._members, self._size = {}, 0

    def write(self, changed: Mapping[str, bytes | None]) -> None:
        """Name → JSON on one line, or None for one that is no more. After an OSError nothing has changed."""
        line = _line(changed)
        if self._size and self._size + len(line) <= self._most and self._append(line):
            _change(self._members, changed)
            self._size += len(line)
            return
        members = dict(self._members)
        _change(members, changed)
        line = _line(members)
        most = 2 * len(line) + SPARE_BYTES
        replace_whole(self.path, line, room_bytes=most)
        self._members, self._size, self._most = members, len(line), most
        if not self._has_twin:
            with contextlib.suppress(OSError):  # it is written; the other one gets its blocks when there are some
                replace_whole(self.path, line, room_bytes=most)
                self._has_twin = True

    def _append(self, line: bytes) -> bool:
        """False where the file is not the one we left, or cannot grow."""
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return os.fstat(file).st_size == self._size and _grows(file, line, self._size)
        finally:
            os.close(file)


def _grows(file: int, line: bytes, size: int) -> bool:
    try:
        if os.write(file, line) == len(line):
            return True
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
    os.ftruncate(file, size)
    return False


def _change(members: dict[str, bytes], changed: Mapping[str, bytes | None]) -> None:
    for name, text in changed.items():
        if text is None:
            members.pop(name, None)
        else:
            members[name] = text


def _line(members: Mapping[str, bytes | None]) -> bytes:
    texts = (msgspec.json.encode(name) + b":" + (text or b"null") for name, text in members.items())
    data = b"{%b}" % b",".join(texts)
    return b"[%d,%b]\n" % (zlib.crc32(data), data)
