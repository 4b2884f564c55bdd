"""The errors of a store, written for its operator: each says what to do next."""

from __future__ import annotations

from pathlib import Path

from plimsoll.errors import StructuredError


class StoreError(StructuredError):
    """Base of the errors below."""


class StoreCorruptError(StoreError):
    """The file on disk is not what this store has written. Nothing was changed; it is never replaced automatically."""

    path: Path
    found: str
    template = (
        "the store {path} is damaged: {found}. Nothing was changed. Stop whatever else writes there, "
        "keep a copy of the directory, check the disk, then restore the newest backup with `plimsoll api restore "
        "FILE` (without one: move the directory away to start empty)"
    )


class StoreUnavailableError(StoreError):
    """The store can't be opened for a reason outside of it: rights, a full disk, a failing device."""

    path: Path
    reason: str
    template = (
        "the store {path} can't be opened: {reason}. Check that its directory belongs to this user and "
        "is writable, that the disk has room, and the kernel's log for errors of the device"
    )


class StoreNewerError(StoreError):
    """A newer Plimsoll has written this store."""

    path: Path
    found: int
    known: int
    template = (
        "the store {path} has schema {found}, this version knows up to {known}: run the newer "
        "version again, or restore a backup that was made before the upgrade"
    )


class StoreLockedError(StoreError):
    """Another process has this store open."""

    path: Path
    pid: int | None

    def __str__(self) -> str:
        owner = f"process {self.pid}" if self.pid else "another process"
        return f"the store {self.path} is in use by {owner}: stop that process first, or choose another state directory"


class WriteFailedError(StoreError):
    """This change was not made durable and is not visible. With `lasting` no write succeeds until a restart."""

    path: Path
    reason: str
    lasting: bool

    def __str__(self) -> str:
        then = (
            "writes are refused until the server is restarted; reads continue"
            if self.lasting
            else "later writes are attempted"
        )
        return f"nothing was written to {self.path}: {self.reason}; {then}"


class StoreClosedError(StoreError):
    """The server is shutting down."""

    template = "the store is closed: the server is shutting down"


class ExpiredError(StoreError):
    """A version older than the history, or one that a crash has undone: list again and watch from there."""

    version: int
    oldest: int
    template = "too old resource version: {version} ({oldest})"
