"""The journal of attach: for every file that it writes, the value before. `detach` restores from it.

An entry is on disk (fsync) before the write that it describes. It is removed after the value from before is back, or
when its cgroup is gone. The directory is on a tmpfs by default (/run), because cgroups end with a boot; elsewhere, the
boot id in the file shows that it is of an earlier one.

A lock makes sure that one attach or detach at a time works with it. A second lock is shared with the guard of the
bursts, which continues for a moment after an attach that was killed: the next one waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from plimsoll.audit.attached import BOOT, JOURNAL, stored_entry
from plimsoll.errors import PlimsollError
from plimsoll.linux.files.append_log import AppendLog, AppendLogCorruptError
from plimsoll.linux.files.file_lock import LockedError, take
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.rules.attach.writes import Entry

LOCK, GUARD_LOCK, STATUS = "lock", "guard-lock", "status.json"
GUARD_S = 30.0  # for the guard, which needs less than a second


class JournalError(PlimsollError):
    """The journal cannot be used; the text says why and what to do."""


class AttachJournal:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._log = AppendLog(directory / JOURNAL)
        self._entries: dict[str, Entry] = {}
        self._lock = self.guard_lock = -1

    def open(self, boot_id: str, *, guard_s: float = GUARD_S) -> None:
        """Raises JournalError if another process uses it, or if it is damaged."""
        private_directory(self.directory)
        try:
            self._lock = take(self.directory / LOCK)
        except LockedError as error:
            who = "another process" if error.pid is None else f"process {error.pid}"
            raise JournalError(f"{who} is attached to this node ({self.directory}): end it first") from None
        try:
            self.guard_lock = take(self.directory / GUARD_LOCK, guard_s)
        except LockedError:
            raise JournalError(
                f"the guard of an attach that has ended still works after {guard_s:g} s ({self.directory})"
            ) from None
        self.load(boot_id)

    def load(self, boot_id: str) -> None:
        """Without the locks: the guard has inherited its own. Raises JournalError if it is damaged."""
        try:
            stored = self._log.read()
        except FileNotFoundError:
            stored = {}
        except AppendLogCorruptError as error:
            raise self._unusable(str(error)) from None
        if stored.get(BOOT) not in (None, msgspec.json.encode(boot_id)):
            stored = {}
            self._log.discard()
        try:
            entries = [stored_entry(data) for key, data in stored.items() if key != BOOT]
        except msgspec.DecodeError as error:
            raise self._unusable(f"an entry is not of this version: {error}") from None
        self._entries = {entry.key: entry for entry in entries}
        if BOOT not in stored:
            self._write({BOOT: msgspec.json.encode(boot_id)})

    def _unusable(self, reason: str) -> JournalError:
        return JournalError(
            f"{self.directory / JOURNAL}: {reason}; nothing was changed. Move the file away; "
            "`plimsoll audit` then shows which values differ"
        )

    def close(self) -> None:
        for lock in (self._lock, self.guard_lock):
            if lock >= 0:
                os.close(lock)
        self._lock = self.guard_lock = -1

    @property
    def entries(self) -> Mapping[str, Entry]:
        return self._entries

    def record(self, entries: Iterable[Entry]) -> None:
        """Before the writes. Raises JournalError, and then nothing may be written."""
        new = {entry.key: entry for entry in entries if self._entries.get(entry.key) != entry}
        if new:
            self._write({key: msgspec.json.encode(entry) for key, entry in new.items()})
            self._entries |= new

    def forget(self, entries: Iterable[Entry]) -> None:
        """An entry that was changed meanwhile stays."""
        keys = [entry.key for entry in entries if self._entries.get(entry.key) == entry]
        if keys:
            self._write(dict.fromkeys(keys))
            for key in keys:
                del self._entries[key]

    def _write(self, changes: Mapping[str, bytes | None]) -> None:
        try:
            self._log.write(changes)
            handle = os.open(self._log.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise JournalError(f"{self._log.path} cannot be written: {error.strerror}; nothing is changed") from error
