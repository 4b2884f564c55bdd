"""The database file: opened and checked, read once at the start, then only written, one transaction per batch.

WAL with synchronous=FULL: COMMIT returns when the batch is on disk; a torn tail of the WAL fails its checksums and is
ignored by SQLite. Three precautions go beyond that:

- A version is never used twice, even if a disk has lost the newest commits that it acknowledged. `ceiling` is written
  ahead: a server uses no version above it before a higher one is durable. After a clean shutdown it equals the last
  version. After a crash the next server continues above it, and the versions in between are a gap: a watcher at one of
  them gets `ExpiredError` and lists again.
- The newest committed version is kept beside the database (`commit_mark.py`), so that a WAL that was cut off or removed
  is noticed: `lost` says what is missing.
- A new database is created beside its path and moved there when complete, so an empty or missing file among other
  files of a store is damage, never a new store.
"""

from __future__ import annotations

import contextlib
import sqlite3
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import msgspec

from plimsoll.store.errors import StoreCorruptError, StoreUnavailableError
from plimsoll.store.records import Change, Record
from plimsoll.store.sealing import PLAIN, Sealing, opened
from plimsoll.store.sqlite.batch import KINDS, Batch, create_targets, write_batch
from plimsoll.store.sqlite.commit_mark import CommitMark
from plimsoll.store.sqlite.files import ASIDE, DATABASE, make_private, put_in_place
from plimsoll.store.sqlite.log_space import LogSpace
from plimsoll.store.sqlite.reserve import Reserve
from plimsoll.store.sqlite.schema import (
    MIGRATIONS,
    State,
    change_crc,
    identify,
    migrate,
    object_crc,
    read_state,
    transaction,
    write_state,
)
from plimsoll.store.sqlite.wal import lost_commits

# How many versions a server may use before it must write a higher ceiling, and so how far a crash makes them jump.
RESERVE = 20_000
_PAGE_BYTES = 4096  # a pod fills about half a page: larger pages would write more neighbours along with it

# A failed commit after which the next one may well succeed: nothing of the batch can have reached the file.
PASSING = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP})


# Reasons outside the file for which it can't be opened.
_OUTSIDE = PASSING | {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR}


def is_full(error: BaseException | None) -> bool:
    """Whether the disk has no room: for the WAL, or for the index of the WAL, which comes before any write to it."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) in _NO_ROOM


def connect(path: Path, *, read_only: bool = False, immutable: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode; any thread may use it, one at a time.

    `immutable`: no process writes to it and it has no WAL, so SQLite needs no files beside it.
    """
    mode = "ro" if read_only else "rw"  # never "rwc": a missing file is an error
    if immutable:
        mode += "&immutable=1"
    uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5.0, check_same_thread=False)


@contextlib.contextmanager
def reported(path: Path) -> Iterator[None]:
    """Convert SQLite's errors on reading a file to `StoreError`. One without a code is Python's, on invalid text."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        if code & 0xFF in _OUTSIDE and code != sqlite3.SQLITE_IOERR_SHORT_READ:
            raise StoreUnavailableError(path, f"{error} ({getattr(error, 'sqlite_errorname', '')})") from error
        raise StoreCorruptError(path, str(error)) from error


@contextlib.contextmanager
def reading(path: Path, *, immutable: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing, not even when it is closed."""
    with reported(path), contextlib.closing(connect(path, read_only=True, immutable=immutable)) as connection:
        yield connection


def inspect(path: Path, *, immutable: bool = False) -> int:
    """Detect damage to the file as a whole; return its schema."""
    with reading(path, immutable=immutable) as connection:
        schema = identify(connection, path)
        if lost := lost_commits(path, _PAGE_BYTES):
            log = path.with_name(f"{path.name}-wal")
            raise StoreCorruptError(
                log, f"{lost} transactions behind a damaged place (a backup made now contains the rest)"
            )
        check(connection, path)
        return schema


def check(connection: sqlite3.Connection, path: Path) -> None:
    """SQLite's own check of the whole file."""
    problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    if problems != ["ok"]:
        raise StoreCorruptError(path, "; ".join("; ".join(problems).splitlines()))


def objects(connection: sqlite3.Connection, path: Path, state: State) -> Iterator[Record]:
    """Every object, with its checksum checked, and at the end their number."""
    rows = 0
    for created, key, version, body, crc in connection.execute("SELECT id, key, version, body, crc FROM object"):
        if type(body) is not bytes or object_crc(created, version, key, body) != crc:
            raise StoreCorruptError(path, f"the object {key} has a wrong checksum")
        yield Record(key, version, body, version if created == version else created)
        rows += 1
    if rows != state.objects:
        raise StoreCorruptError(path, f"{rows} objects where {state.objects} were written")


def read_changes(
    connection: sqlite3.Connection, path: Path, state: State, records: dict[str, Record], sealing: Sealing = PLAIN
) -> list[Change]:
    """The history, oldest first. Read backwards from the present, so that no body is in memory twice."""
    changes: list[Change] = []
    current: dict[str, tuple[str, int, bytes]] = {}
    rows = connection.execute(
        "SELECT version, kind, key, created, before_version, before, body, crc FROM change WHERE version > ? "
        "ORDER BY version DESC",
        (state.oldest,),
    )
    for version, kind, key, created, before_version, before, body, crc in rows:
        plausible = all(blob is None or type(blob) is bytes for blob in (before, body))
        if not plausible or change_crc(version, kind, key, before_version, before, body) != crc:
            raise StoreCorruptError(path, f"the change {version} of {key} has a wrong checksum")
        before, body = (None if each is None else sealing.opened(key, each) for each in (before, body))
        if key in current:
            key, stands, after = current[key]
        elif (record := records.get(key)) is not None:
            key, stands, after = record.key, record.version, record.body
        else:
            stands, after = 0, b""
        if body is None and stands != version:
            raise StoreCorruptError(path, f"the change {version} of {key} does not lead to the state after it")
        changes.append(
            Change(version, KINDS[kind - 1], key, after if body is None else body, before, before_version, created)
        )
        current[key] = (key, before_version, before if before is not None else b"")
    changes.reverse()
    return changes


class Contents:
    """Everything in a database, read and checked through a connection that cannot write."""

    def __init__(self, path: Path, sealing: Sealing = PLAIN, *, immutable: bool = False) -> None:
        with reading(path, immutable=immutable) as connection:
            self.state = read_state(connection, path)
            records = {record.key: opened(record, sealing) for record in objects(connection, path, self.state)}
            self.changes = read_changes(connection, path, self.state, records, sealing)
        self.records = records.values()
        if len(records) != self.state.objects:
            raise StoreCorruptError(path, f"{len(records)} names for {self.state.objects} objects")
        newest = max((record.version for record in self.records), default=0)
        if max(newest, self.changes[-1].version if self.changes else 0, self.state.oldest) > self.state.version:
            raise StoreCorruptError(path, f"it contains versions above its newest, {self.state.version}")


class Disk:
    """One open database."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        state: State,
        mark: CommitMark,
        sealing: Sealing,
        space: LogSpace | None = None,
    ) -> None:
        """Without `space` it is only read."""
        self._connection = connection
        self.path = path
        self.state = state
        self._mark = mark
        self._space = space
        self._sealing = sealing
        self.reserve = Reserve(path.parent, 0)
        self.is_full = False  # at the start: whether only deletions are accepted
        self.refusal: str | None = None  # why it can only be read
        self.lost = ""  # what is known to be lost

    @classmethod
    def open(
        cls, directory: Path, max_bytes: int | None = None, reserve_bytes: int = 0, sealing: Sealing = PLAIN
    ) -> tuple[Disk, Contents]:
        """Create the database if the directory is new, check and load it. The caller has the directory's lock.

        On a full disk the reserve is used, and only deletions are accepted; without a reserve it can only be read.
        """
        reserve = Reserve(directory, reserve_bytes)
        try:
            disk, contents = cls._open(directory, max_bytes, sealing)
        except StoreUnavailableError as error:
            if not is_full(error.__cause__):
                raise
            try:
                reserve.release()
                disk, contents = cls._open(directory, max_bytes, sealing)
            except StoreUnavailableError as still:
                if not is_full(still.__cause__):
                    raise
                return cls._open_to_read(directory, str(still.__cause__), sealing)
        disk.reserve = reserve
        disk.is_full = not reserve.allocate()
        return disk, contents

    @classmethod
    def _open(cls, directory: Path, max_bytes: int | None, sealing: Sealing) -> tuple[Disk, Contents]:
        path = directory / DATABASE
        if not path.exists():
            create(path)
        if not path.stat().st_size:
            raise StoreCorruptError(path, "it is empty")
        # All checks use connections that cannot write: closing one that can write would move a damaged log into the
        # database and destroy what could still be recovered.
        if inspect(path) < len(MIGRATIONS):
            with reported(path), contextlib.closing(connect(path)) as connection:
                migrate(connection, path)
        contents = Contents(path, sealing)
        with reported(path), contextlib.ExitStack() as unless_done:
            mark = CommitMark(directory)
            unless_done.callback(mark.close)
            marked = mark.read()
            state = _begun(contents.state, marked)
            connection = connect(path)
            unless_done.callback(connection.close)
            _set_up(connection, max_bytes)
            create_targets(connection)
            with transaction(connection):
                write_state(connection, state)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that the ceiling does not depend on the WAL
            space = LogSpace(path)
            unless_done.pop_all()
        disk = cls(connection, path, state, mark, sealing, space)
        if marked > contents.state.version:
            disk.lost = (
                f"the changes after version {contents.state.version} up to {marked} were committed and are lost: the "
                f"write-ahead log of {path} was cut off or removed. Restore the newest backup with `plimsoll api "
                "restore FILE`, or restart the server to continue without them"
            )
        mark.write(contents.state.version)
        return disk, contents

    @classmethod
    def _open_to_read(cls, directory: Path, reason: str, sealing: Sealing) -> tuple[Disk, Contents]:
        path = directory / DATABASE
        log = path.with_name(f"{DATABASE}-wal")
        immutable = not log.exists() or not log.stat().st_size  # else its index exists, too
        inspect(path, immutable=immutable)
        contents = Contents(path, sealing, immutable=immutable)
        connection = connect(path, read_only=True, immutable=immutable)
        disk = cls(connection, path, contents.state, CommitMark(directory), sealing)
        disk.refusal = f"{reason}; make room on the disk and restart the server"
        return disk, contents

    def write(self, batch: Batch) -> None:
        """Return when the batch is on disk; raise with nothing of it written."""
        forgets = batch.state.oldest != self.state.oldest
        write_batch(self._connection, batch, self._sealing, forgets=forgets)
        self.state = batch.state
        self._mark.write(batch.state.version)
        if self._space is not None:
            self._space.extend()

    def has_room_again(self) -> bool:
        """Whether others have made room: enough for the reserve, and for a transaction."""
        if not self.reserve.has_room() or not self.reserve.allocate():
            return False
        with transaction(self._connection):
            write_state(self._connection, self.state)
        return True

    def move_log(self) -> None:
        """Move most of the WAL to the database, from any thread, while transactions continue."""
        with contextlib.closing(connect(self.path)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        self._mark.flush()

    def move_rest(self) -> None:
        """Move the rest between two transactions, so that the WAL starts again; a running backup may prevent it."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self, version: int) -> None:
        """A clean shutdown: no version above this one was used, so the next server continues there."""
        try:
            with transaction(self._connection):
                ended = msgspec.structs.replace(self.state, ceiling=max(version, self.state.version))
                write_state(self._connection, ended)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """After a failed write: nothing is recorded, so the next server jumps ahead as after a crash."""
        self._mark.close()
        if self._space is not None:
            self._space.close()
        self._connection.close()


def _set_up(connection: sqlite3.Connection, max_bytes: int | None) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"this file system does not support WAL (journal mode {mode})")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # a checkpoint after a commit would delay its answer
    connection.execute("PRAGMA journal_size_limit = 67108864")  # a WAL that grew during a long backup shrinks again
    connection.execute("PRAGMA cache_size = -2048")  # objects are read from memory; this serves the writer only
    if max_bytes is not None:
        connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // _PAGE_BYTES)}")


def create(path: Path) -> None:
    """A complete empty database at `path`; refused where files of an older one are beside it."""
    new = path.with_name(f"{path.name}.new")
    files = [*path.parent.glob(f"{path.name}*"), *path.parent.glob(f"{ASIDE}*")]
    if others := sorted(other.name for other in files if other != new):
        raise StoreCorruptError(
            path, f"it is missing while {', '.join(others)} is there (an interrupted restore? repeat it)"
        )
    make_private(new)
    with reported(path), contextlib.closing(connect(new)) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        migrate(connection, new, new=True)
    put_in_place(new, path)


def _begun(state: State, marked: int) -> State:
    """The state a server starts with: above every version that may have been used, and with a new reserve."""
    version, gaps = state.version, state.gaps
    used = max(state.ceiling, marked)
    if used > version:
        gaps = (*gaps, (version, used))
        version = used
    gaps = tuple(gap for gap in gaps if gap[1] > state.oldest)
    return State(version, state.oldest, version + RESERVE, gaps, state.objects)
