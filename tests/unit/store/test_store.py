"""The store's promises one by one: order, versions, atomicity, watches, locks, modes."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.store.errors import ExpiredError, StoreClosedError, StoreLockedError
from plimsoll.store.feed import Watch
from plimsoll.store.records import Change, Decision, Delete, History, Record
from plimsoll.store.sqlite import disk
from plimsoll.store.sqlite import log as store_module
from plimsoll.store.store import Store
from tests.unit.store.bodies import body, crashed, delete, put, value_of

pytestmark = pytest.mark.asyncio
POD = "/pods/default/web"


async def seen(watch: Watch, count: int) -> list[Change]:
    async with asyncio.timeout(60):
        return [await anext(watch) for _ in range(count)]


async def test_a_record_is_created_updated_and_deleted(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "store")
    start = store.version
    watch = store.watch("/pods/", start)
    created = await store.change(POD, put("a"))
    assert created == Record(POD, start + 1, body(start + 1, "a"), start + 1) == store.get(POD)
    updated = await store.change(POD, put("b"))
    assert updated == Record(POD, start + 2, body(start + 2, "b"), start + 1) == store.get(POD)
    gone = await store.change(POD, delete)
    assert gone == Record(POD, start + 3, body(start + 3, "b"), start + 1)
    assert store.get(POD) is None
    assert [(c.version - start, c.kind, c.key, c.body, c.before) for c in await seen(watch, 3)] == [
        (1, "ADDED", POD, body(start + 1, "a"), None),
        (2, "MODIFIED", POD, body(start + 2, "b"), body(start + 1, "a")),
        (3, "DELETED", POD, body(start + 3, "b"), body(start + 2, "b")),
    ]
    await store.close()


async def test_a_new_store_does_not_begin_with_version_0(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    assert store.list("") == (1, [])
    await store.close()


async def test_lists_are_in_byte_order_of_the_whole_key(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    keys = [
        "/pods/a/x",
        "/pods/a-b/x",
        "/pods/a/b.c",
        "/pods/a/b-c",
        "/podsets/a/x",
        "/pod/a/x",
        "apps/pods/a/x",
        "/pods//x",
    ]
    await asyncio.gather(*(store.change(key, put(key)) for key in keys))
    expected = sorted((key for key in keys if key.startswith("/pods/")), key=str.encode)
    assert [record.key for record in store.list("/pods/")[1]] == expected
    assert [record.key for record in store.list("/pods/a/")[1]] == ["/pods/a/b-c", "/pods/a/b.c", "/pods/a/x"]
    assert [record.key for record in store.list("/pods/", start_after="/pods/a/b-c", limit=2)[1]] == [
        "/pods/a/b.c",
        "/pods/a/x",
    ]
    assert [record.key for record in store.list("")[1]] == sorted(keys, key=str.encode)
    assert [store.count(prefix) for prefix in ("", "/pods/", "/pods/a/", "apps/", "/none/")] == [8, 5, 3, 1, 0]
    assert store.count("/pods/", start_after="/pods/a/b-c") == 2
    await store.close()


@pytest.mark.parametrize(
    ("key", "decision", "reason"),
    [
        pytest.param("/pods/default", b"{}", "not a key", id="three parts"),
        pytest.param("/pods/default/a/b", b"{}", "not a key", id="five parts"),
        pytest.param("/pods/default/a\0", b"{}", "not a key", id="NUL"),
        pytest.param("/pods/default/\ud800", b"{}", "not a key", id="half a surrogate pair"),
        pytest.param("/pods/default/web", Delete(b"{}"), "to delete", id="deleting what is not there"),
        pytest.param("/pods/default/web", "{}", "encoding", id="text for a body"),
    ],
)
async def test_what_the_disk_could_not_take_is_refused_before_others_share_its_batch(
    tmp_path: Path, key: str, decision: Decision, reason: str
) -> None:
    store = await Store.open(tmp_path)
    with pytest.raises((ValueError, TypeError), match=reason):
        await store.change(key, lambda current, version: decision)
    assert (await store.change(POD, put(1))) == store.get(POD)
    await store.close()


async def test_whether_there_are_objects_of_a_resource(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "store")
    resources = frozenset({"/pods/", "/nodes/"})
    await store.change("/services/a/x", put("x"))
    assert not store.has_any(resources)
    await store.change("/nodes//n", put("x"))
    assert store.has_any(resources)
    await store.change("/nodes//n", lambda _, __: Delete(b"{}"))
    assert not store.has_any(resources)
    await store.close()


async def test_writers_of_one_key_see_each_other_before_the_disk_has_them(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)

    def increment(current: Record | None, version: int) -> bytes:
        count = value_of(current) or 0
        assert isinstance(count, int)
        return body(version, count + 1)

    records = await asyncio.gather(*(store.change(POD, increment) for _ in range(100)))
    assert [value_of(record) for record in records] == [*range(1, 101)]
    assert store.meter.commits < 100
    assert store.meter.committed_changes == 100
    assert store.meter.waiting == 0
    await store.close()


async def test_readers_see_nothing_before_it_is_durable(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    before = store.version
    writing = asyncio.ensure_future(store.change(POD, put(1)))
    await asyncio.sleep(0)
    assert store.meter.waiting == 1
    assert (store.get(POD), store.version, store.count("")) == (None, before, 0)
    await writing
    assert store.get(POD) is not None
    await store.close()


async def test_a_no_op_uses_no_version_and_emits_no_event(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    record = await store.change(POD, put(1))
    version = store.version
    assert await store.change(POD, lambda current, new: None) == record
    assert await store.change("/pods/default/none", lambda current, new: None) is None
    assert store.version == version
    again = await store.change(POD, put(2))
    assert again is not None
    assert again.version == version + 1
    await store.close()


async def test_no_answer_about_a_state_that_is_not_durable_yet(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)

    def exists(current: Record | None, version: int) -> bytes:
        if current is not None:
            raise FileExistsError(current.key)
        return body(version, 1)

    def unchanged(current: Record | None, version: int) -> None:
        return None

    order: list[str] = []

    async def noted(name: str, key: str, decide: object) -> None:
        try:
            await store.change(key, decide)  # type: ignore[arg-type]
        finally:
            order.append(f"{name} {store.get(POD) is not None}")

    results = await asyncio.gather(
        noted("first", POD, exists),
        noted("second", POD, exists),
        noted("no-op", POD, unchanged),
        return_exceptions=True,
    )
    assert isinstance(results[1], FileExistsError)
    assert order == ["first True", "second True", "no-op True"]
    await store.close()


async def test_several_keys_change_together_or_not_at_all(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    keys = ["/pods/default/a", "/pods/default/b", "/resourcequotas/default/q"]
    start = store.version
    made = await store.change_many(keys, lambda current, versions: [body(versions[0], 1), None, body(versions[2], 2)])
    assert [value_of(record) for record in made] == [1, None, 2]
    assert [(c.version, c.key) for c in await seen(store.watch("", start), 2)] == [
        (start + 1, keys[0]),
        (start + 3, keys[2]),
    ]

    with pytest.raises(ValueError, match="shorter"):
        await store.change_many(keys, lambda current, versions: [body(versions[0], 9)])
    with pytest.raises(ValueError, match="duplicate key"):
        await store.change_many([POD, POD], lambda current, versions: [body(version, 9) for version in versions])
    assert [value_of(store.get(key)) for key in (*keys, POD)] == [1, None, 2, None]
    await store.close()


async def test_a_cancelled_writer_loses_no_change(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    tasks = [asyncio.ensure_future(store.change(f"/pods/default/p{i}", put(i))) for i in range(4)]
    await asyncio.sleep(0)
    assert store.meter.waiting == 4
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [value_of(store.get(f"/pods/default/p{i}")) for i in range(4)] == [0, 1, 2, 3]
    await store.close()


async def test_lists_at_an_older_version(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    for name in "abcd":
        await store.change(f"/pods/default/{name}", put(1))
    then = store.version
    await store.change("/pods/default/b", delete)
    await store.change("/pods/default/c", put(2))
    await store.change("/pods/default/bb", put(2))
    await store.change("/pods/other/e", put(2))

    def names(records: list[Record]) -> list[tuple[str, object]]:
        return [(record.key.rpartition("/")[2], value_of(record)) for record in records]

    version, records = store.list_at("/pods/", then)
    assert (version, names(records)) == (then, [("a", 1), ("b", 1), ("c", 1), ("d", 1)])
    assert [record.version for record in records] == [then - 3, then - 2, then - 1, then]
    assert names(store.list_at("/pods/", then, start_after="/pods/default/a", limit=2)[1]) == [("b", 1), ("c", 1)]
    assert store.count("/pods/", start_after="/pods/default/a", version=then) == 3
    assert names(store.list_at("/pods/", store.version)[1]) == names(store.list("/pods/")[1])
    with pytest.raises(ValueError, match="above"):
        store.list_at("/pods/", store.version + 1)
    await store.close()


@pytest.mark.parametrize(
    "history", [pytest.param(History(events=32), id="events"), pytest.param(History(bytes=32 * 400), id="bytes")]
)
async def test_history_is_bounded_and_what_is_older_has_expired(tmp_path: Path, history: History) -> None:
    store = await Store.open(tmp_path, history=history)
    start = store.version
    slow = store.watch("/pods/", start)
    other = store.watch("/nodes/", start)
    for value in range(100):
        await store.change(POD, put(value))
    assert 16 <= store.version - store.oldest <= 34
    for attempt in (lambda: store.watch("", store.oldest - 1), lambda: store.list_at("", store.oldest - 1)):
        with pytest.raises(ExpiredError, match=rf"^too old resource version: {store.oldest - 1} \({store.oldest}\)$"):
            attempt()
    assert [c.version for c in await seen(store.watch("/pods/", store.oldest), 2)] == [
        store.oldest + 1,
        store.oldest + 2,
    ]
    with pytest.raises(ExpiredError):
        await anext(slow)
    # Nothing happened to nodes: their watcher has missed nothing, however long it slept.
    await store.change("/nodes//n1", put(1))
    assert [c.key for c in await seen(other, 1)] == ["/nodes//n1"]
    await store.close()


async def test_history_survives_a_restart_within_its_bounds(tmp_path: Path) -> None:
    store = await Store.open(tmp_path, history=History(events=32))
    for value in range(40):
        await store.change(f"/pods/default/p{value % 3}", delete if value % 4 == 3 else put(value))
    oldest, version = store.oldest, store.version
    changes = await store.watch("", oldest).changes()
    assert {c.kind for c in changes} == {"ADDED", "MODIFIED", "DELETED"}
    await store.close()
    for _ in range(2):
        store = await Store.open(tmp_path, history=History(events=32))
        assert (store.oldest, store.version) == (oldest, version)
        assert await store.watch("", oldest).changes() == changes
        await store.close()


async def test_a_watch_from_the_future_waits_for_it(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    watch = store.watch("/pods/", store.version + 2)
    for value in range(4):
        await store.change(POD, put(value))
    assert [value_of(c.record_after()) for c in await seen(watch, 2)] == [2, 3]
    await store.close()


async def test_a_bookmark_covers_all_that_was_returned_and_no_more(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    watch = store.watch("/pods/a/", store.version)
    for key in ("/pods/a/1", "/pods/a/2", "/nodes//n"):
        await store.change(key, put(1))
    start = store.version - 3
    assert watch.version == start
    await anext(watch)
    assert watch.version == start + 1
    await anext(watch)
    assert watch.version == start + 3  # the node is not its business, so it has seen all there is
    waiting = asyncio.ensure_future(anext(watch))
    await store.change("/pods/b/1", put(1))
    assert watch.version == store.version
    waiting.cancel()
    await store.close()


async def test_a_cancelled_wait_loses_nothing(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    watch = store.watch("/pods/", store.version)
    for value in range(20):
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        change = asyncio.ensure_future(store.change(POD, put(value)))
        if value % 2:
            await change  # the watcher has been woken but has not run
        waiting.cancel()
        await asyncio.gather(waiting, change, return_exceptions=True)
        got = [] if waiting.cancelled() else [waiting.result()]
        got = got or await seen(watch, 1)
        assert [value_of(c.record_after()) for c in got] == [value]
    await store.close()


async def test_a_close_ends_watches_and_refuses_writes(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)

    async def read() -> list[Change]:
        return [change async for change in store.watch("", store.version)]

    reading = asyncio.ensure_future(read())
    writing = asyncio.ensure_future(store.change(POD, put(1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await store.close()
    assert value_of(await writing) == 1
    assert len(await reading) == 1
    with pytest.raises(StoreClosedError, match="shutting down"):
        await store.change(POD, put(2))
    await store.close()
    assert set(os.listdir(tmp_path)) == {"commit-mark", "lock", "objects.db"}


async def test_a_second_server_is_refused_with_the_process_id_of_the_first(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    with pytest.raises(StoreLockedError, match=f"in use by process {os.getpid()}: stop that process first"):
        await Store.open(tmp_path)
    script = "import asyncio, pathlib, sys; from plimsoll.store.store import Store; asyncio.run(Store.open(pathlib.Path(sys.argv[1])))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert f"in use by process {os.getpid()}" in errors.decode()
    await store.close()
    await (await Store.open(tmp_path)).close()


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "store"
    old_mask = os.umask(0)
    try:
        store = await Store.open(directory)
        await store.change(POD, put(1))
        await store.backup(tmp_path / "copy")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()}
        assert modes == dict.fromkeys(("commit-mark", "lock", "objects.db", "objects.db-wal", "objects.db-shm"), 0o600)
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
        await store.close()
    finally:
        os.umask(old_mask)


async def test_two_hundred_watchers_share_one_change(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    watches = [store.watch("/pods/", store.version) for _ in range(200)]
    waiting = [asyncio.ensure_future(anext(watch)) for watch in watches]
    await asyncio.sleep(0)
    await store.change(POD, put(1))
    changes = await asyncio.gather(*waiting)
    assert len({id(change) for change in changes}) == 1
    await store.close()


async def test_the_log_is_moved_into_the_database_before_it_grows_long(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    for value in range(200):
        await store.change(f"/configmaps/default/c{value % 10}", put(f"{value} " * 25_000))
    written = 200 * 100_000
    await store.close()
    assert store.meter.checkpoints > 0
    assert store.meter.failed_checkpoints == 0
    assert (tmp_path / "objects.db").stat().st_size > written / 2
    store = await Store.open(tmp_path)
    assert [str(value_of(record)).split(" ")[0] for record in store.list("")[1]] == [str(190 + i) for i in range(10)]
    await store.close()


async def test_the_reserve_of_versions_is_renewed_before_it_is_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "RESERVE", 10)
    monkeypatch.setattr(store_module, "RESERVE", 10)
    store = await Store.open(tmp_path / "store")
    for value in range(50):
        await store.change(POD, put(value))
        if value < 5:  # within the reserve that was written when the store was opened
            left = crashed(tmp_path / "store", tmp_path / f"crashed-{value}")
            (left / "objects.db-wal").unlink()  # even if the disk had kept nothing of the log
            other = await Store.open(left)
            assert other.version > store.version
            await other.close()
    left = crashed(tmp_path / "store", tmp_path / "crashed")
    other = await Store.open(left)
    assert store.version < other.version <= store.version + 10
    await other.close()
    await store.close()
