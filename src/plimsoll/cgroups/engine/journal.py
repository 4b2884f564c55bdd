"""What is about to be done to the cgroup tree, written down before it is done.

One JSON line per record, appended. `begin` has the whole plan with the old values; `end` says that it was made or
undone. After a kill −9 a plan without its `end` is unfinished: its line has all that is needed to go back. A line that
was cut off by the kill was never acted upon, and is dropped. While somebody works on the tree, the file is locked; a
second one is told so.

Nothing is synced to the disk: cgroups do not outlive a boot, so only what a killed process leaves must be found, and
that is in the kernel's cache. After a power cut the file may be damaged; one from before this boot counts as empty.
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

from plimsoll.errors import PlimsollError
from plimsoll.linux.atomic_file import reserve
from plimsoll.rules.cgroups.steps import ObservedCgroup, Step

COMPACT_BYTES = 1 << 16
ROOM_BYTES = 2 * COMPACT_BYTES

LOCK_S = 1.0


class StateBusyError(PlimsollError):
    """Another process is working on the same tree."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"another plimsoll is changing this node's cgroups ({self.path} is locked): wait until it has finished"


class StateWriteError(PlimsollError):
    """The disk is full, say. `path` is the file that could not be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(path, error)
        self.path, self.error = path, error

    def __str__(self) -> str:
        reason = self.error.strerror or str(self.error)
        return f"{self.path} cannot be written: {reason}; mend that, then `plimsoll node status` shows how things stand"


class JournalCorruptError(PlimsollError):
    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(path, line, reason)
        self.path, self.line, self.reason = path, line, reason

    def __str__(self) -> str:
        return (
            f"{self.path}, line {self.line}: {self.reason}; "
            "move the file away, then `plimsoll node status` shows what differs"
        )


class Begin(msgspec.Struct, frozen=True, tag="begin", tag_field="kind", omit_defaults=True):
    number: int
    subject: str  # the pod, or what else is being done
    boot_id: str
    steps: tuple[Step, ...]
    before: dict[str, ObservedCgroup] = {}  # the cgroups that are removed, as they were
    containers: tuple[str, ...] = ()  # of a resize: these are all old or all new, each by itself


class JournalEnd(msgspec.Struct, frozen=True, tag="end", tag_field="kind"):
    number: int
    how: Literal["made", "undone", "void"]


_DECODER = msgspec.json.Decoder(Begin | JournalEnd)


Stamp = tuple[int, int, int]  # inode, size, time of the last change


class _Scan(msgspec.Struct, frozen=True):
    stamp: Stamp | None = None
    number: int = 0  # the last that was given out
    unfinished: Begin | None = None


def stamp(path: Path) -> Stamp | None:
    """Tells whether somebody else has written a file since: equal means no."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_from_before_this_boot(path: Path, proc: Path = Path("/proc")) -> bool:
    """Then whatever it says about cgroups is void."""
    booted = next((line for line in (proc / "stat").read_text().splitlines() if line.startswith("btime ")), "")
    return bool(booted) and path.stat().st_mtime < int(booted.split()[1])


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._scanned = _Scan()
        self._has_room = False

    def unfinished(self) -> Begin | None:
        """The plan that has no end. There is at most one: the next begins only when this one has been dealt with."""
        return self._scan().unfinished

    def is_locked(self) -> bool:
        """Whether somebody is working on the tree at this moment."""
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
        """A child of ours that has not become its own program yet still shares the last turn's lock: wait for that."""
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
        """`after`: a number that was used already, should this file have been moved away meanwhile."""
        last = self._scan()
        entry = Begin(max(last.number, after) + 1, subject, boot_id, tuple(steps), dict(before), tuple(containers))
        self._append(entry, fresh=self._size() > COMPACT_BYTES and last.unfinished is None)
        return entry

    def end(self, entry: Begin, how: Literal["made", "undone", "void"]) -> None:
        self._append(JournalEnd(entry.number, how))

    def _scan(self) -> _Scan:
        """What the records come to; read again only where the file is not as we left it."""
        now = stamp(self.path)
        if now != self._scanned.stamp or now is None:
            last, begun = 0, None
            for record in self._records():
                last = max(last, record.number)
                if isinstance(record, Begin):
                    begun = record
                elif begun is not None and record.number == begun.number:
                    begun = None
            self._scanned = _Scan(now, last, begun)
        return self._scanned

    def _records(self) -> Iterator[Begin | JournalEnd]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        for number, line in enumerate(data.split(b"\n")[:-1], 1):  # what follows the last newline was cut off
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
            if fresh or not self._has_room:  # a full disk shall not keep pods from being removed
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
        found = os.pread(descriptor, position - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        position = start
    return 0
