"""The errors of a store, written for its operator: each says what to do next."""

from __future__ import annotations

from pathlib import Path

from plimsoll.errors import PlimsollError


class StoreError(PlimsollError):
    """Base of the errors below."""


class StoreCorruptError(StoreError):
    """The file on disk is not what this store has written. Nothing was changed; it is never replaced automatically."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(path, found)
        self.path = path
        self.found = found

    def __str__(self) -> str:
        return (
            f"the store {self.path} is damaged: {self.found}. Nothing was changed. Stop whatever else writes there, "
            "keep a copy of the directory, check the disk, then restore the newest backup with `plimsoll api restore "
            "FILE` (without one: move the directory away to start empty)"
        )


class StoreUnavailableError(StoreError):
    """The store can't be opened for a reason outside of it: rights, a full disk, a failing device."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the store {self.path} can't be opened: {self.reason}. Check that its directory belongs to this user and "
            "is writable, that the disk has room, and the kernel's log for errors of the device"
        )


class StoreNewerError(StoreError):
    """A newer Plimsoll has written this store."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(path, found, known)
        self.path = path
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"the store {self.path} has schema {self.found}, this version knows up to {self.known}: run the newer "
            "version again, or restore a backup that was made before the upgrade"
        )


class StoreLockedError(StoreError):
    """Another process has this store open."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        owner = f"process {self.pid}" if self.pid else "another process"
        return f"the store {self.path} is in use by {owner}: stop that process first, or choose another state directory"


class WriteFailedError(StoreError):
    """This change was not made durable and is not visible. With `lasting` no write succeeds until a restart."""

    def __init__(self, path: Path, reason: str, *, lasting: bool) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason
        self.lasting = lasting

    def __str__(self) -> str:
        then = (
            "writes are refused until the server is restarted; reads continue"
            if self.lasting
            else "later writes are attempted"
        )
        return f"nothing was written to {self.path}: {self.reason}; {then}"


class StoreClosedError(StoreError):
    """The server is shutting down."""

    def __str__(self) -> str:
        return "the store is closed: the server is shutting down"


class ExpiredError(StoreError):
    """A version older than the history, or one that a crash has undone: list again and watch from there."""

    def __init__(self, version: int, oldest: int) -> None:
        super().__init__(version, oldest)
        self.version = version
        self.oldest = oldest

    def __str__(self) -> str:
        return f"too old resource version: {self.version} ({self.oldest})"
