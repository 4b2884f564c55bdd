"""The store against a dictionary and a list of changes: any order of writes, lists, watches, restarts and crashes."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plimsoll.store.errors import ExpiredError
from plimsoll.store.feed import Watch
from plimsoll.store.records import Change, Decision, Delete, History, Record
from plimsoll.store.sqlite import backup
from plimsoll.store.store import Store
from tests.examples import examples
from tests.unit.store.bodies import body, crashed, value_of

EVENTS = 24
KEYS = [
    f"{resource}/{namespace}/{name}"
    for resource, namespace, name in itertools.product(
        ["/pods", "apps/pods", "/nodes"], ["", "a", "a-b"], ["x", "x1", "y.z"]
    )
]
keys = st.sampled_from(KEYS)
prefixes = st.sampled_from(
    ["", "/pods/", "/pods/a/", "/pods/a", "/pods/a-b/", "/nodes/", "apps/", "apps/pods/a/x", "none/x/"]
)
values = st.integers(0, 5) | st.text(max_size=3) | st.just("long " * 60)
actions = st.one_of(
    st.tuples(st.just("put"), values),
    st.tuples(st.just("delete"), st.none()),
    st.tuples(st.just("leave"), st.none()),
    st.tuples(st.just("raise"), st.none()),
)
Action = tuple[str, object]


class RefusedError(Exception):
    pass


def decision(action: Action, current: Record | None, version: int) -> Decision:
    verb, value = action
    if verb == "raise":
        raise RefusedError
    if verb == "leave" or (verb == "delete" and current is None):
        return None
    return Delete(body(version, value_of(current))) if verb == "delete" else body(version, value)


class Reader:
    """A client that watches, remembers the last version it has seen, and comes back after a restart."""

    def __init__(self, store: Store, prefix: str, after: int) -> None:
        self.prefix = prefix
        self.after = after
        self.seen: list[Change] = []
        self.expired = False
        self.follow(store)

    def follow(self, store: Store) -> None:
        last = self.seen[-1].version if self.seen else self.after
        try:
            self.task = asyncio.ensure_future(self._read(store.watch(self.prefix, last)))
        except ExpiredError:
            self.expired = True

    async def _read(self, watch: Watch) -> None:
        try:
            async for change in watch:
                self.seen.append(change)
        except ExpiredError:
            self.expired = True


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        # Thousands of commits: in memory where there is such a file system, since this is not about the disk.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = Path(tempfile.mkdtemp(prefix="store-model-", dir=memory))
        self.runs = itertools.count()
        self.runner = asyncio.Runner()
        self.directory = self.root / "store"
        self.model: dict[str, Record] = {}
        self.changes: list[Change] = []
        self.readers: list[Reader] = []
        self.first = 1  # the version before all of `changes`
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.store = await Store.open(self.directory, history=History(events=EVENTS, bytes=20_000))
        for reader in self.readers:
            if not reader.expired:
                reader.follow(self.store)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self._close())
            self.runner.close()
            shutil.rmtree(self.root)

    async def _close(self) -> None:
        await self.store.close()
        await asyncio.gather(*(reader.task for reader in self.readers if not reader.expired))

    # The model

    def state_at(self, version: int) -> dict[str, Record]:
        state = dict(self.model)
        for change in reversed(self.changes):
            if change.version <= version:
                break
            before = change.record_before()
            if before is None:
                del state[change.key]
            else:
                state[change.key] = before
        return state

    def apply(self, key: str, action: Action, result: Record | BaseException | None) -> None:
        current = self.model.get(key)
        if action[0] == "raise":
            assert isinstance(result, RefusedError)
            return
        assert not isinstance(result, BaseException), result
        if result is current or decision(action, current, 1) is None:
            assert result == current
            return
        assert result is not None
        assert result.version > (self.changes[-1].version if self.changes else self.first)
        expected = decision(action, current, result.version)
        assert result.body == (expected.body if isinstance(expected, Delete) else expected)
        before = (current.body, current.version, current.created) if current else (None, 0, result.version)
        kind = "DELETED" if isinstance(expected, Delete) else "MODIFIED" if current else "ADDED"
        self.changes.append(Change(result.version, kind, key, result.body, *before))  # type: ignore[arg-type]
        if kind == "DELETED":
            del self.model[key]
        else:
            self.model[key] = result

    # What clients do

    @rule(burst=st.lists(st.tuples(keys, actions), min_size=1, max_size=12))
    def write(self, burst: list[tuple[str, Action]]) -> None:
        async def together() -> list[Record | BaseException | None]:
            writes = (
                self.store.change(key, lambda current, version, action=action: decision(action, current, version))  # type: ignore[misc]
                for key, action in burst
            )
            return await asyncio.gather(*writes, return_exceptions=True)

        for (key, action), result in zip(burst, self.runner.run(together()), strict=True):
            self.apply(key, action, result)

    @rule(some=st.lists(keys, min_size=1, max_size=4, unique=True), data=st.data())
    def write_many(self, some: list[str], data: st.DataObject) -> None:
        chosen = [data.draw(actions) for _ in some]

        def decide(current: list[Record | None], versions: list[int]) -> Iterable[Decision]:
            assert current == [self.model.get(key) for key in some]
            return [decision(*row) for row in zip(chosen, current, versions, strict=True)]

        try:
            results = self.runner.run(self.store.change_many(some, decide))  # type: ignore[arg-type]
        except RefusedError:
            assert ("raise", None) in chosen
            return
        for key, action, result in zip(some, chosen, results, strict=True):
            self.apply(key, action, result)

    @rule(prefix=prefixes, start_after=st.none() | keys, limit=st.none() | st.integers(1, 5), back=st.integers(0, 40))
    def list_some(self, prefix: str, start_after: str | None, limit: int | None, back: int) -> None:
        def expected(state: dict[str, Record]) -> list[Record]:
            found = sorted(
                key for key in state if key.startswith(prefix) and (start_after is None or key > start_after)
            )
            return [state[key] for key in found]

        now = expected(self.model)
        assert self.store.list(prefix, start_after=start_after, limit=limit) == (self.store.version, now[:limit])
        assert self.store.count(prefix, start_after=start_after) == len(now)
        version = self.changes[-back].version if 0 < back <= len(self.changes) else self.store.version
        if version < self.store.oldest:
            with pytest.raises(ExpiredError):
                self.store.list_at(prefix, version)
            return
        then = expected(self.state_at(version))
        page = self.store.list_at(prefix, version, start_after=start_after, limit=limit)
        assert page == (version, then[:limit])
        assert self.store.count(prefix, start_after=start_after, version=version) == len(then)

    @precondition(lambda self: len(self.readers) < 6)
    @rule(prefix=prefixes, back=st.integers(0, 40))
    def watch(self, prefix: str, back: int) -> None:
        async def begin() -> None:
            after = self.changes[-back].version if 0 < back <= len(self.changes) else self.store.version
            reader = Reader(self.store, prefix, after)
            assert reader.expired == (after < self.store.oldest)
            if not reader.expired:
                self.readers.append(reader)

        self.runner.run(begin())

    # What operators and kernels do

    @rule()
    def restart(self) -> None:
        async def again() -> None:
            version, oldest = self.store.version, self.store.oldest
            await self._close()
            await self._open()
            assert self.store.version == version
            assert self.store.oldest >= oldest

        self.runner.run(again())

    @rule()
    def crash(self) -> None:
        async def again() -> None:
            used = self.store.version
            left = crashed(self.directory, self.root / f"crashed-{next(self.runs)}")
            await self._close()
            self.directory = left
            await self._open()
            assert self.store.version > used

        self.runner.run(again())

    @rule()
    def restore(self) -> None:
        async def again() -> None:
            copy = self.root / "copy"
            await self.store.backup(copy)
            await self._close()
            backup.restore(copy, self.directory)
            await self._open()
            assert all(reader.expired for reader in self.readers)
            self.readers.clear()
            self.changes.clear()
            self.first = self.store.oldest

        self.runner.run(again())

    # What always holds

    @invariant()
    def readers_see_each_change_once(self) -> None:
        if not hasattr(self, "store"):
            return

        async def settle() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        self.runner.run(settle())
        for reader in self.readers:
            expected = [c for c in self.changes if c.version > reader.after and c.key.startswith(reader.prefix)]
            # A watcher that must list again has got everything up to some point; no other has missed anything.
            assert reader.seen == (expected[: len(reader.seen)] if reader.expired else expected)
        self.readers = [reader for reader in self.readers if not reader.expired]

    @invariant()
    def history_is_long_enough_and_not_longer(self) -> None:
        if not hasattr(self, "store"):
            return
        kept = [change for change in self.changes if change.version > self.store.oldest]
        assert len(kept) <= EVENTS + max(EVENTS // 16, 12)
        history_bytes = sum(len(c.before or b"") + 300 + len(c.body) for c in self.changes[-EVENTS:])
        if history_bytes < 20_000 * 15 // 16:
            assert len(kept) >= min(EVENTS, len(self.changes)) - 1


StoreMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
TestStoreMachine = StoreMachine.TestCase
