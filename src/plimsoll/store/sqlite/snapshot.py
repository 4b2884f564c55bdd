"""A backup file from objects that are not in SQLite: the form of `backup`, so that it can be restored anywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from plimsoll.store.records import Record
from plimsoll.store.sealing import Sealing
from plimsoll.store.sqlite.disk import Contents, check, connect, reported
from plimsoll.store.sqlite.files import make_private, put_in_place
from plimsoll.store.sqlite.schema import State, migrate, object_crc, transaction, write_state


def write(file: Path, records: Iterable[Record], version: int, sealing: Sealing) -> None:
    """Replace `file` (0600) when it is complete and checked."""
    new = file.with_name(f"{file.name}.part")
    make_private(new)
    try:
        with reported(new), contextlib.closing(connect(new)) as connection:
            migrate(connection, new, new=True)
            count = 0
            with transaction(connection):
                for record in records:
                    body = sealing.sealed(record.key, record.body)
                    crc = object_crc(record.created, record.version, record.key, body)
                    row = (record.created, record.key, record.version, body, crc)
                    connection.execute("INSERT INTO object VALUES (?, ?, ?, ?, ?)", row)
                    count += 1
                write_state(connection, State(version, version, version, (), count))
            check(connection, new)
    except BaseException:
        new.unlink()
        raise
    put_in_place(new, file)


def read(file: Path, sealing: Sealing) -> tuple[list[Record], int]:
    """All objects of a backup, checked, and a version that is above all that were used."""
    contents = Contents(file, sealing, immutable=True)
    return list(contents.records), max(contents.state.version, contents.state.ceiling)
