"""Watches that name a value get the changes that have it, in order and each once, and are not woken by others."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.store.cache import WatchCache
from plimsoll.store.errors import ExpiredError
from plimsoll.store.feed import Watch
from plimsoll.store.records import Change, History
from tests.unit.store.bodies import body

VALUES = ("a", "b", "c")
Batch = list[tuple[str, str]]  # the values before and after each change


def values_of(change: Change) -> set[str]:
    states = [change.body] if change.before is None else [change.before, change.body]
    return {json.loads(state)["value"] for state in states}


class Feed:
    def __init__(self, events: int = 1000) -> None:
        self.cache = WatchCache((), (), History(events=events), version=1, oldest=1)
        self.cache.divide("/pods/", values_of)
        self.changes: list[Change] = []

    def apply(self, batch: Batch) -> None:
        made = []
        for before, after in batch:
            version = self.cache.version + 1 + len(made)
            key = f"/pods/default/p{version}"
            made.append(Change(version, "ADDED", key, body(version, after), body(version - 1, before), 0, version))
        self.changes += made
        self.cache.apply(made, self.cache.version + len(made))


class Reader:
    """Reads a watch, by `push` or not, in a task that can be cancelled and started again."""

    def __init__(self, watch: Watch, value: str, *, pushes: bool) -> None:
        self._watch, self.value, self._pushes = watch, value, pushes
        self.seen: list[int] = []
        self.calls = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._read())

    def cancel(self) -> None:
        assert self._task is not None
        self._task.cancel()

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if not self._task.cancelled():
            self._task.result()

    def _take(self, changes: list[Change]) -> bool:
        self.calls += 1
        self.seen += [change.version for change in changes if self.value in values_of(change)]
        return True

    async def _read(self) -> None:
        while changes := await self._watch.changes(self._take if self._pushes else None):
            self._take(changes)


async def _rounds(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("pushes", [True, False])
async def test_a_change_reaches_only_the_watches_of_its_values(pushes: bool) -> None:
    feed = Feed()
    readers = [Reader(feed.cache.watch("/pods/", 1, value), value, pushes=pushes) for value in VALUES]
    for reader in readers:
        reader.start()
    await _rounds()
    feed.apply([("a", "b")])
    feed.apply([("b", "b")])
    await _rounds()
    assert [reader.seen for reader in readers] == [[2], [2, 3], []]
    assert readers[2].calls == 0  # it was not even asked
    for reader in readers:
        await reader.stop()


async def test_a_watch_does_not_expire_while_it_waits() -> None:
    """The history moves far past the last change that concerned it."""
    feed = Feed(events=16)
    watch = feed.cache.watch("/pods/", 1, "a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await watch.changes()
    for is_timed_out in (False, True):
        waiting = asyncio.create_task(watch.changes())
        await _rounds()
        for _ in range(100):
            feed.apply([("b", "b")])
        if is_timed_out:  # as for a bookmark
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert watch.version == feed.cache.version
            waiting = asyncio.create_task(watch.changes())
            await _rounds()
        feed.apply([("b", "a")])
        assert [change.version for change in await waiting] == [feed.cache.version]


async def test_a_watch_expires_when_the_history_is_lost() -> None:
    feed = Feed()
    watch = feed.cache.watch("/pods/", 1, "a")
    waiting = asyncio.create_task(watch.changes())
    await _rounds()
    feed.cache.replace((), 100)
    with pytest.raises(ExpiredError):
        await waiting


@given(
    st.lists(
        st.one_of(
            st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES)), min_size=1, max_size=3),
            st.sampled_from(["cancel", "again", "round"]),
        ),
        max_size=60,
    )
)
def test_each_watch_sees_all_that_concerns_it(steps: list[Batch | str]) -> None:
    async def run() -> None:
        feed = Feed()
        readers = [
            Reader(feed.cache.watch("/pods/", 1, value), value, pushes=pushes)
            for value in VALUES
            for pushes in (True, False)
        ]
        for reader in readers:
            reader.start()
        for step in steps:
            if step == "again":
                for reader in readers:
                    await reader.stop()
                    reader.start()
            elif step == "cancel":
                for reader in readers:
                    reader.cancel()
            elif step == "round":
                await asyncio.sleep(0)
            else:
                assert not isinstance(step, str)
                feed.apply(step)
        for reader in readers:
            await reader.stop()
            reader.start()
        await _rounds()
        for reader in readers:
            expected = [change.version for change in feed.changes if reader.value in values_of(change)]
            assert reader.seen == expected
            await reader.stop()

    asyncio.run(run())


@pytest.mark.parametrize("order", ["change, cancel", "cancel, change"])
@pytest.mark.parametrize("pushes", [True, False])
async def test_a_change_at_the_end_of_a_wait_is_not_lost(order: str, pushes: bool) -> None:
    feed = Feed()
    watch = feed.cache.watch("/pods/", 1, "a")
    taken: list[Change] = []

    def push(changes: list[Change]) -> bool:
        taken.extend(changes)
        return True

    waiting = asyncio.create_task(watch.changes(push if pushes else None))
    await _rounds()
    for step in order.split(", "):
        if step == "change":
            feed.apply([("b", "a")])
        else:
            waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await _rounds()
    async with asyncio.timeout(60):
        found = taken or await watch.changes()
    assert [change.version for change in found] == [2]


def _value_of(state: bytes) -> str:
    value: str = json.loads(state)["value"]
    return value


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["", *VALUES, None])), max_size=40), st.booleans())
def test_a_part_has_the_records_with_its_value(steps: list[tuple[int, str | None]], is_replaced: bool) -> None:
    cache = WatchCache((), (), History(), version=1, oldest=1)
    cache.divide("/pods/", values_of, _value_of)
    for number, value in steps:
        key, version = f"/pods/{'ab'[number % 2]}/p{number}", cache.version + 1
        before = cache.get(key)
        if value is not None:
            made = body(version, value)
            old = None if before is None else before.body
            change = Change(version, "ADDED" if before is None else "MODIFIED", key, made, old, 0, version)
        elif before is None:
            continue
        else:
            change = Change(version, "DELETED", key, before.body, before.body, before.version, before.created)
        cache.apply([change], version)
    if is_replaced:
        cache.replace(cache.list("")[1], cache.version + 1)
    for prefix in ("/pods/", "/pods/a/"):
        for value in VALUES:
            expected = [record for record in cache.list(prefix)[1] if _value_of(record.body) == value]
            assert cache.list_part(prefix, value) == (cache.version, expected)


def test_a_resource_that_is_not_divided_is_listed_whole() -> None:
    cache = WatchCache((), (), History(), version=1, oldest=1)
    cache.apply([Change(2, "ADDED", "/pods/a/p", body(2, "a"), None, 0, 2)], 2)
    assert [record.key for record in cache.list_part("/pods/", "b")[1]] == ["/pods/a/p"]
