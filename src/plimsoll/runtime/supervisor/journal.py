"""What must survive a kill of the supervisor: the containers and how they ended.

Lines of JSON, appended. A line is the newest record of one id (`{"id": …}` with everything known, or
`{"id": …, "gone": true}`), so the last line of an id counts and a torn last line is dropped. An exit is made durable
(fdatasync) before it is reported; other records need only survive the supervisor, for which the page cache is enough.
The file is rewritten when most of its lines are stale.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

JournalRecord = dict[str, Any]

_SLACK_LINES = 256


class SupervisorJournal:
    def __init__(self, directory: int, name: str = "journal") -> None:
        self._directory, self._name = directory, name
        self._lines = 0
        self._unsynced = False
        self._fd = -1

    def read(self) -> dict[str, JournalRecord]:
        """The newest record of every id that is not gone."""
        try:
            fd = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._directory)
        except FileNotFoundError:
            return {}
        with open(fd, "rb") as file:
            return latest(file)

    def begin(self, records: Iterable[JournalRecord]) -> None:
        """Replace the file by one with these records, atomically."""
        lines = [_line(record) for record in records]
        temporary = f"{self._name}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_APPEND
        fd = os.open(temporary, flags, 0o600, dir_fd=self._directory)
        try:
            _write(fd, b"".join(lines))
            os.fsync(fd)
            os.rename(temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            os.fsync(self._directory)
        except OSError:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._lines, self._unsynced = fd, len(lines), False

    def append(self, record: JournalRecord, *, durable: bool = False) -> None:
        """`durable` records are safe after the next `sync`."""
        _write(self._fd, _line(record))
        self._lines += 1
        self._unsynced |= durable

    def sync(self) -> None:
        if self._unsynced:
            os.fdatasync(self._fd)
            self._unsynced = False

    def is_stale(self, live: int) -> bool:
        return self._lines > 2 * live + _SLACK_LINES


def latest(lines: Iterable[bytes]) -> dict[str, JournalRecord]:
    records: dict[str, JournalRecord] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # torn when the last supervisor was killed
            continue
        if not isinstance(record, dict) or not isinstance(record.get("id"), str):
            continue
        if record.get("gone"):
            records.pop(record["id"], None)
        else:
            records[record["id"]] = record
    return records


def _line(record: JournalRecord) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
