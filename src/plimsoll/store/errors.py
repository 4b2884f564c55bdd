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

    path: Path | str
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

    path: Path | str  # the file, or the endpoint
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


class LogUnreachableError(StoreError):
    """No endpoint of the shared log answers, or no majority of its members."""

    where: str
    reason: str
    template = (
        "etcd at {where} does not answer: {reason}. Check that the endpoints are right, that a majority of the members "
        "runs (`etcdctl endpoint status --cluster`), and that no firewall is in between"
    )


class LogRefusedError(StoreError):
    """The shared log answers and refuses: credentials, rights, its version, what is stored there."""

    where: str
    reason: str
    advice: str
    template = "etcd at {where}: {reason}. {advice}"


class OutcomeUnknownError(StoreError):
    """The log did not answer in time: this change is either durable or was never made."""

    where: str
    reason: str
    template = (
        "etcd at {where} has not confirmed this change: {reason}. It may or may not be stored: read the object before "
        "you try again"
    )


class FencedError(StoreError):
    """Another server has become the leader: what this one decided before must not be written."""

    name: str
    template = "this server no longer leads {name}: another one has taken over, and nothing was written"


class TooLargeError(StoreError):
    """One object is larger than the log accepts."""

    size: int
    limit: str
    template = "an object of {size} bytes is larger than {limit}"
