"""Changes that are pushed: at once, in order, each exactly once, whether or not the receiver takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
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


class Calls:
    """Of followers, by their prefix. On a busy machine they take several rounds of the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: asyncio.Queue[tuple[str, list[str]]] = asyncio.Queue()

    def following(self, prefix: str) -> AbstractContextManager[None]:
        def take(changes: Sequence[Change]) -> None:
            self.note(prefix, [change.key for change in changes])

        def again() -> None:
            self.note(prefix, [f"{len(self._store.list(prefix)[1])} listed"])

        return self._store.following(prefix, take, again)

    def note(self, prefix: str, seen: list[str]) -> None:
        self._queue.put_nowait((prefix, seen))

    async def next(self, count: int) -> dict[str, list[list[str]]]:
        found: dict[str, list[list[str]]] = {}
        async with asyncio.timeout(60):
            for _ in range(count):
                prefix, seen = await self._queue.get()
                found.setdefault(prefix, []).append(seen)
        return found

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()


async def test_followers_get_every_change_of_their_resource(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "store")
    calls = Calls(store)
    await store.change("/pods/a/0", put("x"))
    with ExitStack() as stack:
        for prefix in ("/pods/", "/nodes/", ""):
            stack.enter_context(calls.following(prefix))
        assert await calls.next(3) == {"/pods/": [["1 listed"]], "/nodes/": [["0 listed"]], "": [["1 listed"]]}
        await asyncio.gather(*(store.change(key, put("x")) for key in ("/pods/a/1", "/nodes//n", "/pods/a/2")))
        await store.change("/pods/a/3", put("x"))
        assert await calls.next(5) == {
            "/pods/": [["/pods/a/1", "/pods/a/2"], ["/pods/a/3"]],
            "/nodes/": [["/nodes//n"]],
            "": [["/pods/a/1", "/nodes//n", "/pods/a/2"], ["/pods/a/3"]],
        }
        store.replace([], store.version + 5)  # as where the log was restored
        assert await calls.next(3) == {prefix: [["0 listed"]] for prefix in ("/pods/", "/nodes/", "")}
    with calls.following("/nodes/"):
        await asyncio.gather(store.change("/pods/a/4", put("x")), store.change("/nodes//m", put("x")))
        assert await calls.next(2) == {"/nodes/": [["0 listed"], ["/nodes//m"]]}
        assert calls.is_empty
    await store.close()


async def test_a_follower_that_fails_affects_no_other(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "store")
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    calls = Calls(store)

    def fails(_: Sequence[Change]) -> None:
        raise KeyError("x")

    with store.following("/pods/", fails, lambda: None), calls.following("/pods/"):
        await store.change("/pods/a/1", put("x"))
        assert await calls.next(2) == {"/pods/": [["0 listed"], ["/pods/a/1"]]}
    assert [type(each) for each in reported] == [KeyError]
    await store.close()


async def test_watches_come_before_followers(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "store")
    calls = Calls(store)
    order: list[str] = []

    def push(_: list[Change]) -> bool:
        order.append("watch")
        return True

    with store.following("", lambda _: calls.note("", [*order, "follower"]), lambda: None):
        waiting = asyncio.ensure_future(store.watch("/pods/", store.version).changes(push))
        await asyncio.sleep(0)
        await store.change("/pods/a/1", put("x"))
        assert await calls.next(1) == {"": [["watch", "follower"]]}
    await store.close()
    assert await waiting == []
