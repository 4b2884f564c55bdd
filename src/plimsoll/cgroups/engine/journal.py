"""The write-ahead journal: each plan for the cgroup tree is recorded before it is applied.

One JSON line per record, appended. `begin` has the whole plan with the old values; `end` records that it was applied or
rolled back. After a kill −9, a plan without its `end` is unfinished, and its line has everything that a rollback needs.
A line that the kill cut off was never applied, and is dropped. The file is locked during a transaction; a second
process gets `StateBusyError`.

There is no fsync: cgroups do not outlive a boot, so only the writes of a killed process matter, and those are in the
page cache. A power cut may damage the file; a damaged file from before this boot counts as empty.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from plimsoll.errors import StructuredError
from plimsoll.linux.files.atomic_file import reserve
from plimsoll.rules.cgroups.steps import ObservedCgroup, Step

COMPACT_BYTES = 1 << 16
ROOM_BYTES = 2 * COMPACT_BYTES

LOCK_S = 1.0


class StateBusyError(StructuredError):
    """Another process is working on the same tree."""

    path: Path
    template = "another plimsoll process is changing this node's cgroups ({path} is locked): try again later"


class StateWriteError(StructuredError):
    """`path` could not be written, for example because the disk is full."""

    path: Path
    error: OSError

    def __str__(self) -> str:
        reason = self.error.strerror or str(self.error)
        return f"{self.path} cannot be written: {reason}; fix that, then check with `plimsoll node status`"


class JournalCorruptError(StructuredError):
    path: Path
    line: int
    reason: str
    template = "{path}, line {line}: {reason}; move the file away, then `plimsoll node status` shows what differs"


class Begin(msgspec.Struct, frozen=True, tag="begin", tag_field="kind", omit_defaults=True):
    number: int
    subject: str  # the pod, or the verb
    boot_id: str
    steps: tuple[Step, ...]
    before: dict[str, ObservedCgroup] = {}  # the cgroups that are removed, as they were
    containers: tuple[str, ...] = ()  # of a resize: each of these has either all old or all new values


class JournalEnd(msgspec.Struct, frozen=True, tag="end", tag_field="kind"):
    number: int
    how: Literal["made", "undone", "void"]


_DECODER = msgspec.json.Decoder(Begin | JournalEnd)


Stamp = tuple[int, int, int]  # inode, size, time of the last change


class _Scan(msgspec.Struct, frozen=True):
    stamp: Stamp | None = None
    number: int = 0  # of the last plan
    unfinished: Begin | None = None


def stamp(path: Path) -> Stamp | None:
    """Equal stamps: no process has written the file in between."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def is_from_before_this_boot(path: Path, proc: Path = Path("/proc")) -> bool:
    """The cgroups that such a file describes no longer exist."""
    booted = next((line for line in (proc / "stat").read_text().splitlines() if line.startswith("btime ")), "")
    return bool(booted) and path.stat().st_mtime < int(booted.split()[1])


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._scanned = _Scan()
        self._has_room = False

    def unfinished(self) -> Begin | None:
        """The plan without an end. There is at most one: it is rolled back before the next one begins."""
        return self._scan().unfinished

    def is_locked(self) -> bool:
        """Whether a transaction is open in any process."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        """Wait for a child that was forked during the last transaction: it shares the lock until its execve."""
        end_s = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > end_s:
                    raise StateBusyError(self.path) from None
            time.sleep(0.005)

    def begin(
        self,
        subject: str,
        boot_id: str,
        steps: Sequence[Step],
        before: Mapping[str, ObservedCgroup],
        containers: Sequence[str] = (),
        *,
        after: int = 0,
    ) -> Begin:
        """`after`: the last number in the state file, in case this file was moved away."""
        last = self._scan()
        entry = Begin(max(last.number, after) + 1, subject, boot_id, tuple(steps), dict(before), tuple(containers))
        self._append(entry, fresh=self._size() > COMPACT_BYTES and last.unfinished is None)
        return entry

    def end(self, entry: Begin, how: Literal["made", "undone", "void"]) -> None:
        self._append(JournalEnd(entry.number, how))

    def _scan(self) -> _Scan:
        """The sum of the records; read again only when another process has written the file."""
        now = stamp(self.path)
        if now != self._scanned.stamp or now is None:
            last, unfinished = 0, None
            for record in self._records():
                last = max(last, record.number)
                if isinstance(record, Begin):
                    unfinished = record
                elif unfinished is not None and record.number == unfinished.number:
                    unfinished = None
            self._scanned = _Scan(now, last, unfinished)
        return self._scanned

    def _records(self) -> Iterator[Begin | JournalEnd]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        for number, line in enumerate(data.split(b"\n")[:-1], 1):  # an incomplete last line is dropped
            try:
                yield _DECODER.decode(line)
            except msgspec.DecodeError as error:
                if is_from_before_this_boot(self.path):
                    return
                raise JournalCorruptError(self.path, number, str(error)) from None

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def _append(self, record: Begin | JournalEnd, *, fresh: bool = False) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before, self._scanned = self._scan(), _Scan()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end = 0 if fresh else _end_of_last_line(descriptor)
            if end != os.fstat(descriptor).st_size:
                os.ftruncate(descriptor, end)
            if fresh or not self._has_room:  # so that pods can be removed when the disk is full
                self._has_room = reserve(descriptor, ROOM_BYTES)
            data = memoryview(msgspec.json.encode(record) + b"\n")
            while data:
                written = os.pwrite(descriptor, data, end)
                data, end = data[written:], end + written
        except OSError as error:
            raise StateWriteError(self.path, error) from error
        finally:
            os.close(descriptor)
        number = record.number if fresh else max(before.number, record.number)
        is_open = before.unfinished is not None and before.unfinished.number != record.number
        unfinished = record if isinstance(record, Begin) else before.unfinished if is_open else None
        self._scanned = _Scan(stamp(self.path), number, unfinished)


def _end_of_last_line(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    position = size
    while position:
        start = max(0, position - 65536)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0
