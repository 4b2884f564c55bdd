"""Backups move between SQLite and etcd in both directions: objects keep everything, versions only grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.store.errors import ExpiredError, LogRefusedError
from plimsoll.store.etcd.location import Location
from plimsoll.store.etcd.restoring import restore
from plimsoll.store.records import Record
from plimsoll.store.sealing import PLAIN
from plimsoll.store.sqlite import backup, snapshot
from plimsoll.store.store import Store
from tests.unit.store.bodies import delete, put, value_of

POD = "/pods/default/p{}"


async def filled(store: Store) -> list[Record]:
    for number in range(30):
        await store.change(POD.format(number), put(number))
    for number in range(0, 30, 3):
        await store.change(POD.format(number), put(f"new {number}"))
    for number in range(0, 30, 5):
        await store.change(POD.format(number), delete)
    return store.list("")[1]


async def test_from_sqlite_to_etcd_and_back(where: Location, tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "a")
    objects, version = await filled(store), store.version
    await store.backup(tmp_path / "one")
    await store.close()

    await restore(where, *snapshot.read(tmp_path / "one", PLAIN), PLAIN)
    on_etcd = await Store.open_etcd(where)
    again = await Store.open_etcd(where)
    try:
        assert on_etcd.list("")[1] == objects
        assert on_etcd.version > version
        with pytest.raises(ExpiredError):  # a watcher of the old store lists again
            on_etcd.watch("/pods/", version)
        watch = again.watch("/pods/", again.version)
        changed = await on_etcd.change(objects[0].key, put("changed"))
        gone = await again.change(objects[1].key, delete)
        assert changed is not None and gone is not None
        assert version < changed.version < gone.version
        assert next(each.version for each in await watch.changes()) == changed.version
        assert await on_etcd.fresh()
        after = on_etcd.list("")[1]
        assert after == again.list("")[1]
        assert after[1:] == objects[2:]
        await on_etcd.backup(tmp_path / "two")
    finally:
        await on_etcd.close()
        await again.close()

    backup.restore(tmp_path / "two", tmp_path / "b")
    back = await Store.open(tmp_path / "b")
    try:
        assert back.list("")[1] == after
        assert back.version > gone.version
        assert value_of(await back.change(objects[0].key, put("again"))) == "again"
    finally:
        await back.close()


async def test_a_restore_replaces_nothing(where: Location, tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "a")
    await filled(store)
    await store.backup(tmp_path / "one")
    await store.close()
    used = await Store.open_etcd(where)
    await used.change(POD.format("x"), put(1))
    with pytest.raises(LogRefusedError, match="is not empty"):
        await restore(where, *snapshot.read(tmp_path / "one", PLAIN), PLAIN)
    assert await used.fresh()
    assert used.count() == 1
    await used.close()
