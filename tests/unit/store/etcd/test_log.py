"""Several stores on one real etcd: what one writes the others read, and no change is lost or made twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from plimsoll.store.errors import ExpiredError, FencedError, LogRefusedError, StoreNewerError, TooLargeError
from plimsoll.store.etcd import messages
from plimsoll.store.etcd.client import CompactedError, EtcdClient
from plimsoll.store.etcd.location import Location
from plimsoll.store.etcd.log import EtcdLog
from plimsoll.store.fence import FENCE
from plimsoll.store.records import Change, Decision, History, Record
from plimsoll.store.store import Store
from tests.unit.store.bodies import body, delete, put, value_of

POD, QUOTA = "/pods/default/web", "/resourcequotas/default/q"
Open = Callable[..., Awaitable[Store]]


@pytest.fixture
async def opened(where: Location) -> AsyncIterator[Open]:
    stores: list[Store] = []

    async def open_one(**options: object) -> Store:
        stores.append(await Store.open_etcd(where, **options))  # type: ignore[arg-type]
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


@asynccontextmanager
async def client_of(where: Location) -> AsyncIterator[EtcdClient]:
    client = EtcdClient(where)
    try:
        yield client
    finally:
        client.close()


def log_of(store: Store) -> EtcdLog:
    assert isinstance(store._log, EtcdLog)
    return store._log


def increased(current: Record | None, version: int) -> Decision:
    return body(version, 1 + (int(str(value_of(current))) if current is not None else 0))


async def test_another_server_reads_what_was_acknowledged(opened: Open) -> None:
    one, two = await opened(), await opened()
    written = await one.change(POD, put("a"))
    assert written is not None and one.get(POD) == written  # read your writes, without waiting
    assert f'"resourceVersion":"{written.version}"'.encode() in written.body
    assert await two.fresh()
    assert two.get(POD) == written
    changed = await two.change(POD, put("b"))
    assert changed is not None and changed.version > written.version and changed.created == written.created
    gone = await one.change(POD, delete)
    assert gone is not None and gone.version > changed.version
    assert one.get(POD) is None
    assert await two.fresh()
    assert two.get(POD) is None


async def test_conditional_writes_are_decided_again_on_conflict(opened: Open) -> None:
    stores = [await opened() for _ in range(3)]
    await asyncio.gather(*(stores[each % 3].change(POD, increased) for each in range(60)))
    assert await stores[0].fresh()
    assert value_of(stores[0].get(POD)) == 60


async def test_an_error_is_not_decided_on_an_old_state(opened: Open) -> None:
    one, two = await opened(), await opened()

    def create(current: Record | None, version: int) -> Decision:
        if current is not None:
            raise LookupError
        return body(version, "new")

    for _ in range(10):  # the second server's cache is behind each time
        await one.change(POD, put(1))
        await one.change(POD, delete)
        assert await two.change(POD, create) is not None
        with pytest.raises(LookupError):
            await one.change(POD, create)
        await two.change(POD, delete)


async def test_a_watch_moves_from_one_server_to_another(opened: Open) -> None:
    one = await opened()
    start = one.version
    versions = []
    for value in range(5):
        record = await one.change(POD, put(value))
        assert record is not None
        versions.append(record.version)
    two = await opened()  # later, and it has the history of before
    watch = two.watch("/pods/", start)
    seen: list[Change] = []
    while len(seen) < 5:
        seen += await watch.changes()
    assert [change.version for change in seen] == versions
    assert [change.kind for change in seen] == ["ADDED"] + ["MODIFIED"] * 4
    assert [value_of(change.record_before()) for change in seen] == [None, 0, 1, 2, 3]
    assert two.list_at("/pods/", versions[2]) == one.list_at("/pods/", versions[2])


async def test_a_deletion_has_the_last_state_and_its_own_version(opened: Open) -> None:
    one, two = await opened(), await opened()
    await one.change(POD, put("last"))
    assert await two.fresh()
    watch = two.watch("/pods/", two.version)
    gone = await one.change(POD, delete)
    assert gone is not None
    (change,) = await watch.changes()
    assert (change.kind, change.version, change.body) == ("DELETED", gone.version, body(gone.version, "last"))


async def test_compaction_expires_what_a_server_has_not_seen(opened: Open, where: Location) -> None:
    one, two = await opened(), await opened()
    await one.change(POD, put(0))
    assert await two.fresh()
    watch, version = two.watch("/pods/", two.version), two.version
    watcher = log_of(two)._watcher
    tasks = log_of(two)._tasks
    for task in tasks:  # the second server is cut off, and misses what is compacted
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for value in range(1, 6):
        await one.change(POD, put(value))
    async with client_of(where) as client:
        revision = messages.CompactionRequest(one.version - log_of(one).form.offset)
        await client.read(messages.COMPACT, revision, messages.CompactionResponse)
    tasks[:] = [asyncio.create_task(watcher.run())]
    assert await asyncio.wait_for(watcher.reached(one.version, 30), 40)
    assert value_of(two.get(POD)) == 5
    with pytest.raises(ExpiredError):
        await watch.changes()
    with pytest.raises(ExpiredError):
        two.watch("/pods/", version)
    three = await opened()  # what it would need for a history is compacted: it begins now
    assert value_of(three.get(POD)) == 5


async def test_one_server_compacts_what_is_older_than_a_period(opened: Open) -> None:
    one, two = await opened(), await opened()
    await one.change(POD, put(0))
    revision = log_of(one)._watcher.revision
    assert await log_of(one).meta.compact(revision) == 0  # the first round only notes where it is
    answers = await asyncio.gather(*(log_of(store).meta.compact(revision + 1) for store in (one, two)))
    assert revision in answers
    with pytest.raises(CompactedError):
        request = messages.RangeRequest(b"/", b"0", revision=revision - 1)
        await log_of(one).client.read(messages.RANGE, request, messages.RangeResponse)
    assert value_of((await opened()).get(POD)) == 0


async def test_the_history_reaches_back_as_far_as_configured(opened: Open) -> None:
    one = await opened()
    for value in range(20):
        await one.change(POD, put(value))
    version = one.version
    two = await opened(history=History(events=5))
    assert two.oldest >= version - 5
    assert value_of(two.get(POD)) == 19
    with pytest.raises(ExpiredError):
        two.watch("/pods/", version - 10)


async def test_an_old_leader_cannot_write(opened: Open) -> None:
    one, two = await opened(), await opened()
    assert await one.last_term("kube-scheduler") == 0
    first = await one.begin_term("kube-scheduler", 0)
    assert first is not None
    token = FENCE.set(first)
    try:
        assert await one.change(POD, put(1)) is not None
        assert await two.begin_term("kube-scheduler", 0) is None  # it knows of no term, and changes nothing
        assert await one.change(POD, put(1)) is not None
        assert await two.begin_term("kube-scheduler", await two.last_term("kube-scheduler")) is not None
        for decide in (put(2), delete):
            with pytest.raises(FencedError):
                await one.change(POD, decide)
        with pytest.raises(FencedError):
            await one.change("/pods/default/new", put(2))
    finally:
        FENCE.reset(token)
    assert await two.fresh()
    assert value_of(two.get(POD)) == 1 and two.get("/pods/default/new") is None
    assert await one.change(POD, put(3)) is not None  # writes for clients are not the leader's


async def test_a_charge_is_taken_back_when_the_object_cannot_be_written(opened: Open) -> None:
    one, two = await opened(), await opened()
    await one.change(QUOTA, put(0))
    await one.change(POD, put("taken"))

    def create(records: list[Record | None], versions: list[int]) -> list[Decision]:
        if records[0] is not None:
            raise LookupError
        return [body(versions[0], "new"), increased(records[1], versions[1])]

    assert await two.fresh()
    log_of(two)._ahead[POD] = msgspec.structs.replace(log_of(two)._known(POD, {}), record=None, revision=0)
    with pytest.raises(LookupError):
        await two.change_many([POD, QUOTA], create)
    assert await one.fresh()
    assert value_of(one.get(QUOTA)) == 0
    await asyncio.gather(
        *((one, two)[each % 2].change_many([f"/pods/default/p{each}", QUOTA], create) for each in range(20))
    )
    assert await one.fresh()
    assert value_of(one.get(QUOTA)) == 20 and one.count("/pods/") == 21


async def test_bad_keys_and_too_large_objects_are_refused(opened: Open) -> None:
    store = await opened()
    with pytest.raises(ValueError, match="not a key"):
        await store.change("/pods/web", put(1))
    with pytest.raises(TooLargeError, match="larger than etcd accepts"):
        await store.change(POD, put("x" * 2_000_000))
    assert store.get(POD) is None
    assert await store.change(POD, put(1)) is not None


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("other", b"{}", "neither below objects/ nor below meta/"),
        ("objects/x", b"{}", "not <group>/<resource>/<namespace>/<name>"),
        ("objects//pods/default/web", b"binary", "not JSON"),
        ("objects//pods/default/web", b"{}", "no metadata.resourceVersion"),
    ],
)
async def test_foreign_data_is_refused(opened: Open, where: Location, name: str, value: bytes, reason: str) -> None:
    await (await opened()).close()
    await _write(where, name, value)
    with pytest.raises(LogRefusedError) as refused:
        await opened()
    assert reason in str(refused.value) and "prefix" in str(refused.value)


async def test_data_without_a_format_is_refused(opened: Open, where: Location) -> None:
    await _write(where, "objects//pods/default/web", b"{}")
    with pytest.raises(LogRefusedError, match="no meta/format"):
        await opened()


async def test_a_newer_format_is_refused(opened: Open, where: Location) -> None:
    await _write(where, "meta/format", b'{"format":2,"id":"x"}')
    with pytest.raises(StoreNewerError, match="schema 2"):
        await opened()


async def _write(where: Location, name: str, value: bytes) -> None:
    from plimsoll.store.etcd.shapes import transaction

    async with client_of(where) as client:
        path = f"{where.prefix}/{name}".encode()
        found = await client.read(messages.RANGE, messages.RangeRequest(path), messages.RangeResponse)
        revision = found.kvs[0].mod_revision if found.kvs else 0
        await client.write_once(messages.TXN, transaction(path, revision, value, None), messages.TxnResponse)
