"""Changes that are pushed: at once, in order, each exactly once, whether or not the receiver takes them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.store.records import Change
from plimsoll.store.store import Store
from tests.unit.store.bodies import put

pytestmark = pytest.mark.asyncio


async def written(store: Store, *names: str) -> None:
    await asyncio.gather(*(store.change(f"/pods/{name}", put("x")) for name in names))
    await asyncio.sleep(0)


async def test_changes_that_are_taken_wake_no_task(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "store")
    watch = store.watch("/pods/a/", store.version)
    taken: list[str] = []

    def push(changes: list[Change]) -> bool:
        taken.extend(change.key for change in changes)
        return True

    waiting = asyncio.ensure_future(watch.changes(push))
    await asyncio.sleep(0)
    await written(store, "a/1", "b/1", "a/2")
    await written(store, "b/2")
    await written(store, "a/3")
    assert (taken, waiting.done()) == (["/pods/a/1", "/pods/a/2", "/pods/a/3"], False)
    assert watch.version == store.version
    await store.close()
    assert await waiting == []


async def test_changes_that_are_refused_reach_the_task_first(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "store")
    watch = store.watch("/pods/", store.version)
    waiting = asyncio.ensure_future(watch.changes(lambda _: False))
    await asyncio.sleep(0)
    await written(store, "a/1")
    await written(store, "a/2")
    first = await waiting
    assert [change.key for change in first] == ["/pods/a/1"]
    assert watch.version == first[-1].version
    assert [change.key for change in await watch.changes()] == ["/pods/a/2"]
    await store.close()


async def test_an_exception_in_a_push_loses_no_change(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "store")
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    watch, other = store.watch("/pods/", store.version), store.watch("/pods/", store.version)
    seen: list[str] = []

    def fails(_: list[Change]) -> bool:
        raise KeyError("x")

    def takes(changes: list[Change]) -> bool:
        seen.extend(change.key for change in changes)
        return True

    waiting, follower = (asyncio.ensure_future(each) for each in (watch.changes(fails), other.changes(takes)))
    await asyncio.sleep(0)
    await written(store, "a/1")
    assert [change.key for change in await waiting] == ["/pods/a/1"]
    assert (seen, [type(each) for each in reported]) == (["/pods/a/1"], [KeyError])
    follower.cancel()
    await store.close()


async def test_a_wait_that_ends_meanwhile_loses_nothing(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "store")
    watch = store.watch("/pods/", store.version)
    waiting = asyncio.ensure_future(watch.changes(lambda _: True))
    await asyncio.sleep(0)
    change = asyncio.ensure_future(store.change("/pods/a/1", put("x")))
    change.add_done_callback(lambda _: waiting.cancel())
    await change
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await written(store, "a/2")
    rest = [each.key for each in await watch.changes()]
    assert rest in (["/pods/a/1", "/pods/a/2"], ["/pods/a/2"])  # taken before the end, or after it; never neither
    await store.close()
