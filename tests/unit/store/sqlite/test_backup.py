"""Backups beside a working server, restores, and the way from one schema to the next."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from plimsoll.store.errors import ExpiredError, StoreCorruptError, StoreLockedError, StoreUnavailableError
from plimsoll.store.records import Record
from plimsoll.store.sqlite import backup, schema
from plimsoll.store.sqlite.disk import connect
from plimsoll.store.store import Store
from tests.unit.store.bodies import crashed, put

pytestmark = pytest.mark.asyncio


async def filled(directory: Path, count: int = 50) -> Store:
    store = await Store.open(directory)
    await asyncio.gather(*(store.change(f"/pods/default/p{i:03}", put(i)) for i in range(count)))
    return store


async def test_a_backup_is_one_snapshot_while_writers_continue(tmp_path: Path) -> None:
    store = await filled(tmp_path / "store")
    stop = asyncio.Event()
    rounds = 0

    def twice(current: list[Record | None], versions: list[int]) -> list[bytes]:
        return [b"%06d" % rounds + b"x" * 5000] * 2

    async def both() -> None:  # two keys that are always equal
        nonlocal rounds
        while not stop.is_set():
            rounds += 1
            await store.change_many(["/pods/default/a", "/pods/default/b"], twice)

    await store.change_many(["/pods/default/a", "/pods/default/b"], twice)
    writing = asyncio.ensure_future(both())
    for number in range(5):
        await store.backup(tmp_path / f"copy{number}")
    assert rounds > 1
    stop.set()
    await writing
    for number in range(5):
        backup.restore(tmp_path / f"copy{number}", tmp_path / "other")
        other = await Store.open(tmp_path / "other")
        first, second = other.get("/pods/default/a"), other.get("/pods/default/b")
        assert first is not None
        assert second is not None
        assert first.body == second.body
        assert other.count("") == 52
        await other.close()
    await store.close()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


@pytest.mark.parametrize("state", ["running", "closed", "killed"])
async def test_a_backup_needs_no_server(tmp_path: Path, state: str) -> None:
    directory = tmp_path / "store"
    store = await filled(directory)
    if state == "killed":
        directory = crashed(directory, tmp_path / "crashed")
    if state != "running":
        await store.close()
    files = set(os.listdir(directory))
    await asyncio.to_thread(backup.backup, directory, tmp_path / "copy")
    assert files <= set(os.listdir(directory))
    if state == "running":
        await store.change("/pods/default/after", put(1))
        await store.close()
    assert backup.restore(tmp_path / "copy", tmp_path / "new") is None
    restored = await Store.open(tmp_path / "new")
    assert restored.list("")[1] == [r for r in store.list("")[1] if r.key != "/pods/default/after"]
    await restored.close()


async def test_a_restore_keeps_what_was_there_and_starts_a_new_count(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store = await filled(directory)
    await store.backup(tmp_path / "copy")
    with pytest.raises(StoreLockedError):
        backup.restore(tmp_path / "copy", directory)
    await store.change("/pods/default/later", put(1))
    last = store.version
    await store.close()
    aside = backup.restore(tmp_path / "copy", directory)
    assert aside == directory / "before-restore-1"
    store = await Store.open(directory)
    assert store.count("") == 50
    assert store.get("/pods/default/later") is None
    assert store.version > last + 900_000
    for version in (last, last - 1, store.version - 1):
        with pytest.raises(ExpiredError):
            store.watch("", version)
    record = await store.change("/pods/default/new", put(1))
    assert record is not None
    assert record.version == store.version
    await store.close()
    older = await Store.open(aside)
    assert older.get("/pods/default/later") is not None
    await older.close()
    assert backup.restore(tmp_path / "copy", directory) == directory / "before-restore-2"


async def test_a_bad_backup_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store = await filled(directory)
    await store.backup(tmp_path / "copy")
    await store.close()
    data = bytearray((tmp_path / "copy").read_bytes())
    place = data.index(b'"value":7}')
    data[place : place + 10] = b'"value":8}'
    (tmp_path / "bad").write_bytes(data)
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    for name, error in (("bad", StoreCorruptError), ("cut", StoreCorruptError), ("none", StoreUnavailableError)):
        with pytest.raises(error, match=str(tmp_path / name)):
            backup.restore(tmp_path / name, directory)
    with pytest.raises(StoreUnavailableError):
        backup.backup(tmp_path / "nowhere", tmp_path / "copy")
    assert "objects.db.new" not in os.listdir(directory)
    store = await Store.open(directory)
    assert store.count("") == 50
    await store.close()


async def test_a_damaged_store_can_be_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store = await filled(directory)
    await store.backup(tmp_path / "copy")
    await store.close()
    (directory / "objects.db").write_bytes(b"nothing of this can be read")
    with pytest.raises(StoreCorruptError):
        await Store.open(directory)
    aside = backup.restore(tmp_path / "copy", directory)
    assert aside is not None
    assert (aside / "objects.db").read_bytes() == b"nothing of this can be read"
    store = await Store.open(directory)
    assert store.count("") == 50
    await store.close()


async def test_an_interrupted_restore_is_not_taken_for_a_new_store(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store = await filled(directory)
    await store.backup(tmp_path / "copy")
    await store.close()
    backup._move_aside(directory / "objects.db")
    with pytest.raises(StoreCorruptError, match="an interrupted restore"):
        await Store.open(directory)
    backup.restore(tmp_path / "copy", directory)
    store = await Store.open(directory)
    assert store.count("") == 50
    await store.close()


async def test_each_migration_runs_once_and_as_a_whole(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    await store.close()
    path = tmp_path / "objects.db"
    longer = (*schema.MIGRATIONS, ("ALTER TABLE state ADD COLUMN note TEXT",), ("CREATE TABLE other (id)",))
    broken = (*longer[:-1], ("CREATE TABLE other (id)", "CREATE TABLE object (id)"))
    with contextlib.closing(connect(path)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            schema.migrate(connection, path, broken)
        assert schema.identify(connection, path, 3) == 2  # the step before holds, nothing of the broken one
        assert not connection.execute("SELECT * FROM sqlite_schema WHERE name = 'other'").fetchall()
        schema.migrate(connection, path, longer)
        schema.migrate(connection, path, longer)
        assert schema.identify(connection, path, 3) == 3
        assert connection.execute("SELECT count(*) FROM object").fetchone() == (50,)
