"""How a batch is written: as one statement, which SQLite commits by itself.

Python's sqlite3 gives up the interpreter lock several times for every statement, and getting it back from a busy event
loop is what costs time. So the rows of a batch are inserted into a temporary view, whose triggers change the tables;
the last row also has the new state. View and triggers belong to the connection and not to the file. A large batch has
few statements between BEGIN and COMMIT.
"""

from __future__ import annotations

import sqlite3
from functools import cache

import msgspec

from plimsoll.store.records import Change, Kind
from plimsoll.store.sealing import Sealing
from plimsoll.store.sqlite.schema import State, change_crc, object_crc, transaction

KINDS: tuple[Kind, ...] = ("ADDED", "MODIFIED", "DELETED")
_NUMBERS = {kind: number for number, kind in enumerate(KINDS, 1)}
_MOST_ROWS, _FEW_ROWS = 64, 16  # of a statement; few shapes, so that SQLite's prepared statements are found again

_TARGETS = (
    # Neither a temporary file, which another disk may have no room for, nor one that has to be synced.
    "PRAGMA temp_store = MEMORY",
    """CREATE TEMP VIEW batch AS SELECT
         0 version, 0 kind, '' key, 0 created, 0 before_version, x'' before, x'' body, 0 crc, 0 object_crc,
         0 oldest, 0 ceiling, '' gaps, 0 objects, NULL state_crc""",
    """CREATE TEMP TRIGGER put INSTEAD OF INSERT ON batch WHEN NEW.kind <> 3 BEGIN
         INSERT INTO change VALUES (
           NEW.version, NEW.kind, NEW.key, NEW.created, NEW.before_version, NEW.before, NULL, NEW.crc);
         INSERT INTO object VALUES (NEW.created, NEW.key, NEW.version, NEW.body, NEW.object_crc)
           ON CONFLICT (id) DO UPDATE
           SET key = excluded.key, version = excluded.version, body = excluded.body, crc = excluded.crc;
       END""",
    """CREATE TEMP TRIGGER remove INSTEAD OF INSERT ON batch WHEN NEW.kind = 3 BEGIN
         INSERT INTO change VALUES (
           NEW.version, NEW.kind, NEW.key, NEW.created, NEW.before_version, NEW.before, NEW.body, NEW.crc);
         DELETE FROM object WHERE id = NEW.created;
       END""",
    """CREATE TEMP TRIGGER note_state INSTEAD OF INSERT ON batch WHEN NEW.state_crc IS NOT NULL BEGIN
         UPDATE state SET version = NEW.version, oldest = NEW.oldest, ceiling = NEW.ceiling, gaps = NEW.gaps,
           objects = NEW.objects, crc = NEW.state_crc;
       END""",
)


class Batch(msgspec.Struct, frozen=True):
    """What one transaction writes: all changes, and the state after the last one."""

    changes: list[Change]
    state: State


def create_targets(connection: sqlite3.Connection) -> None:
    """Once, before batches are written."""
    for statement in _TARGETS:
        connection.execute(statement)


def write_batch(connection: sqlite3.Connection, batch: Batch, sealing: Sealing, *, forgets: bool) -> None:
    """Return when it is on disk; raise with nothing of it written. `forgets`: changes up to the oldest version go."""
    changes, state = batch.changes, batch.state
    if len(changes) <= _FEW_ROWS and not forgets:
        connection.execute(*_inserted(changes, state, sealing))
        return
    with transaction(connection):
        start = 0
        while start < len(changes):
            left = len(changes) - start
            end = start + next(size for size in (_MOST_ROWS, _FEW_ROWS, left) if size <= left)
            connection.execute(*_inserted(changes[start:end], state if end == len(changes) else None, sealing))
            start = end
        if forgets:
            connection.execute("DELETE FROM change WHERE version <= ?", (state.oldest,))


def _inserted(changes: list[Change], state: State | None, sealing: Sealing) -> tuple[str, list[object]]:
    """The statement and its fields. `state`: with the last of a batch."""
    fields: list[object] = []
    for change in changes:
        fields += _row(change, sealing)
    if state is not None:
        fields += state.row()[1:]
    return _statement(len(changes), with_state=state is not None), fields


def _row(change: Change, sealing: Sealing) -> tuple[object, ...]:
    key, created, version = change.key, change.created, change.version
    number, is_deleted = _NUMBERS[change.kind], change.kind == "DELETED"
    before = None if change.before is None else sealing.sealed(key, change.before)
    body = sealing.sealed(key, change.body)
    crc = change_crc(version, number, key, change.before_version, before, body if is_deleted else None)
    of_object = 0 if is_deleted else object_crc(created, version, key, body)
    return version, number, key, created, change.before_version, before, body, crc, of_object


@cache
def _statement(rows: int, *, with_state: bool) -> str:
    change = ", ".join("?" * 9)
    plain, last = f"({change}, NULL, NULL, NULL, NULL, NULL)", f"({change}, ?, ?, ?, ?, ?)"
    return f"INSERT INTO batch VALUES {', '.join([plain] * (rows - with_state) + [last] * with_state)}"
