"""Tables of the store and the way from each schema to the next.

`object` holds what is there now; its id is the version that created the object, so new objects append and no second
index is needed. `change` is the history, kept as undo: what a change replaced, not what it wrote, since the new body is
in `object` or in the next change of the same key. So creating an object writes its body once. `state` is one row.
Every row has a checksum, because SQLite guards only its structure and its WAL, not a flipped bit in a body.

To change the schema, append a script to MIGRATIONS: `PRAGMA user_version` counts those that have run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import msgspec

from plimsoll.store.errors import StoreCorruptError, StoreNewerError

APPLICATION_ID = 0x504C_4D53  # "PLMS", so that `file` and Plimsoll recognize the database

MIGRATIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE object (
             id INTEGER PRIMARY KEY,        -- the version that created it
             key TEXT NOT NULL,
             version INTEGER NOT NULL,
             body BLOB NOT NULL,
             crc INTEGER NOT NULL)""",
        """CREATE TABLE change (
             version INTEGER PRIMARY KEY,
             kind INTEGER NOT NULL,         -- 1 added, 2 modified, 3 deleted
             key TEXT NOT NULL,
             created INTEGER NOT NULL,      -- id of the object
             before_version INTEGER NOT NULL,
             before BLOB,                   -- NULL when added
             body BLOB,                     -- only when deleted: the last state with the deletion's version
             crc INTEGER NOT NULL)""",
        """CREATE TABLE state (
             id INTEGER PRIMARY KEY CHECK (id = 1),
             version INTEGER NOT NULL,      -- of the last change
             oldest INTEGER NOT NULL,       -- the oldest version a watch may start from
             ceiling INTEGER NOT NULL,      -- no version above it has been used, whatever else was lost
             gaps TEXT NOT NULL,            -- [[low, high], …]: versions between them were never committed, or lost
             objects INTEGER NOT NULL,      -- rows in `object`
             crc INTEGER NOT NULL)""",
    ),
)


class State(msgspec.Struct, frozen=True):
    """The one row of `state`."""

    version: int
    oldest: int
    ceiling: int
    gaps: tuple[tuple[int, int], ...]
    objects: int

    def row(self) -> tuple[int, int, int, str, int, int]:
        gaps = msgspec.json.encode(self.gaps).decode()
        fields = (self.version, self.oldest, self.ceiling, gaps, self.objects)
        return (*fields, crc32(repr(fields).encode()))


# Version 0 means "any" in the API, so an empty store starts with 1.
FIRST = State(version=1, oldest=1, ceiling=1, gaps=(), objects=0)


def object_crc(created: int, version: int, key: str, body: bytes) -> int:
    return crc32(body, crc32(f"{created} {version} {key}".encode()))


def change_crc(version: int, kind: int, key: str, before_version: int, before: bytes | None, body: bytes | None) -> int:
    bodies = f"{before is not None} {len(before or b'')} {body is not None}"
    head = crc32(f"{version} {kind} {before_version} {bodies} {key}".encode())
    return crc32(body or b"", crc32(before or b"", head))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def write_state(connection: sqlite3.Connection, state: State) -> None:
    connection.execute("REPLACE INTO state VALUES (1, ?, ?, ?, ?, ?, ?)", state.row())


def read_state(connection: sqlite3.Connection, path: Path) -> State:
    rows = connection.execute("SELECT version, oldest, ceiling, gaps, objects, crc FROM state").fetchall()
    if len(rows) != 1 or crc32(repr(rows[0][:5]).encode()) != rows[0][5]:
        raise StoreCorruptError(path, "its state row is missing or has a wrong checksum")
    version, oldest, ceiling, gaps, objects, _ = rows[0]
    return State(version, oldest, ceiling, msgspec.json.decode(gaps, type=tuple[tuple[int, int], ...]), objects)


def identify(connection: sqlite3.Connection, path: Path, known: int = len(MIGRATIONS)) -> int:
    """The schema of a Plimsoll database. Only reads, so a file of another program stays as it is."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID or not version:
        raise StoreCorruptError(path, "it is not a Plimsoll database")
    if version > known:
        raise StoreNewerError(path, version, known)
    return int(version)


def migrate(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS, *, new: bool = False
) -> None:
    """Migrate the tables to the newest schema, each step in its own transaction; with `new`, from an empty file."""
    version = 0 if new else identify(connection, path, len(migrations))
    for number in range(version, len(migrations)):
        with transaction(connection):
            for statement in migrations[number]:
                connection.execute(statement)
            if number == 0:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                write_state(connection, FIRST)
            connection.execute(f"PRAGMA user_version = {number + 1}")
