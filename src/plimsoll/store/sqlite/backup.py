"""Backups of a store: created while a server runs, restored while none does.

`backup` reads the database beside the server (SQLite's backup in one step is one consistent snapshot, and a reader of a
WAL blocks no writer), checks the copy and moves it into place when it is complete. `restore` destroys nothing: it moves
the existing files aside. The restored state does not contain what came after it, so its history is cleared and its
versions jump far ahead: every watcher lists again, and no version has two meanings.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from plimsoll.store.errors import StoreCorruptError, StoreUnavailableError
from plimsoll.store.sqlite.disk import check, connect, objects, reading
from plimsoll.store.sqlite.files import ASIDE, DATABASE, lock, make_directory, make_private, put_in_place
from plimsoll.store.sqlite.schema import MIGRATIONS, State, identify, migrate, read_state, transaction, write_state

JUMP = 1_000_000


def backup(directory: Path, file: Path) -> None:
    """Copy the store in `directory` to `file` (0600, replaced if there), whether or not a server has it open."""
    new = file.with_name(f"{file.name}.part")
    make_private(new)
    try:
        _copy(directory / DATABASE, new)
    except BaseException:
        new.unlink()
        raise
    put_in_place(new, file)


def _copy(source_path: Path, path: Path) -> State:
    with reading(source_path) as source:
        schema = identify(source, source_path)
        with contextlib.closing(connect(path)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # one file, complete without a WAL
            check(target, source_path)
            if schema < len(MIGRATIONS):
                migrate(target, source_path)
            state = read_state(target, source_path)
            for _ in objects(target, source_path, state):
                pass  # reading each object checks it
    return state


def restore(file: Path, directory: Path) -> Path | None:
    """Replace the store in `directory` by the backup `file`; no server may have it open (`StoreLockedError`).

    Returns where the files of the replaced store are now, None if there was none. A damaged `file` is detected
    before anything is moved.
    """
    make_directory(directory)
    lock_fd = lock(directory)
    try:
        path = directory / DATABASE
        new = path.with_name(f"{DATABASE}.new")
        used = _ceiling_of(path)
        make_private(new)
        try:
            _prepare(file, new, used)
        except BaseException:
            new.unlink()
            raise
        aside = _move_aside(path)
        put_in_place(new, path)
        return aside
    finally:
        os.close(lock_fd)


def _prepare(file: Path, new: Path, used: int) -> None:
    state = _copy(file, new)
    version = max(state.ceiling, used) + JUMP
    with contextlib.closing(connect(new)) as target, transaction(target):
        target.execute("DELETE FROM change")
        write_state(target, State(version, version, version, (), state.objects))


def _ceiling_of(path: Path) -> int:
    """The highest version the store that is about to be replaced may have used; 0 where it cannot be read."""
    try:
        with reading(path) as connection:
            return read_state(connection, path).ceiling
    except (StoreCorruptError, StoreUnavailableError):
        return 0


def _move_aside(path: Path) -> Path | None:
    files = [path.with_name(DATABASE + suffix) for suffix in ("", "-wal", "-shm")]
    if not any(file.exists() for file in files):
        return None
    number = 1
    while (aside := path.with_name(f"{ASIDE}{number}")).exists():
        number += 1
    aside.mkdir(mode=0o700)
    for file in files:
        if file.exists():
            os.rename(file, aside / file.name)
    return aside
