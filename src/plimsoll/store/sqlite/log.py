"""Changes to a store on this machine's disk: decided at once, durable with the next transaction.

`decide` is called at once with the newest state of its key, also one that is still on its way to the disk, so writers
of one key are serialized without a lock and without a conflict. Changes that arrive meanwhile become one transaction
(`writer.py`); when it is durable the cache takes it over, watchers wake, awaits return.

A caller that was given a state that is not durable yet gets no answer before it is: a no-op and an exception from
`decide` wait for the commit as well. If a commit fails, the whole queue behind it was decided on states that were never
stored: all of its writers get `WriteFailedError`, and no reader sees any of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from plimsoll.store.cache import WatchCache
from plimsoll.store.errors import StoreClosedError, TooLargeError
from plimsoll.store.fence import Fence
from plimsoll.store.log import DecideMany
from plimsoll.store.records import TOO_LARGE, Change, Record, change_of, is_too_large
from plimsoll.store.sealing import Sealing
from plimsoll.store.sqlite.batch import Batch
from plimsoll.store.sqlite.disk import RESERVE, Contents, Disk
from plimsoll.store.sqlite.files import lock, make_directory
from plimsoll.store.sqlite.schema import State
from plimsoll.store.sqlite.writer import Writer

_DIFFERENCE = {"ADDED": 1, "MODIFIED": 0, "DELETED": -1}


class SqliteLog:
    """Implements `store.log.Log`."""

    is_shared = False

    def __init__(self, disk: Disk, lock_fd: int, cache: WatchCache) -> None:
        self._lock_fd = lock_fd
        self._cache = cache
        self._lost = disk.lost
        self._used = disk.state.version  # handed to some `decide`
        self._ceiling = disk.state.ceiling
        self._undurable: dict[str, Change] = {}  # the newest change of each key that has some on their way
        self._is_closing = False
        self._writer = Writer(
            disk, state_after=self._state_after, commit=self._commit, discard=self._undurable.clear
        )  # fmt: skip
        self.meter = self._writer.meter

    @property
    def fault(self) -> str:
        return self._writer.fault or self._writer.checkpoint_fault or self._lost

    def observe_commits(self, observer: Callable[[int, float], None]) -> None:
        self._writer.on_commit = observer

    async def fresh(self) -> bool:
        return True

    async def last_term(self, name: str) -> int:
        return 0

    async def begin_term(self, name: str, last: int) -> Fence | None:
        return None  # there is no other server

    async def change_many(self, keys: Sequence[str], decide: DecideMany) -> list[Record | None]:
        if self._is_closing:
            raise StoreClosedError
        pending = [self._undurable.get(key) for key in keys]
        current = [
            self._cache.get(key) if change is None else change.record_after()
            for key, change in zip(keys, pending, strict=True)
        ]
        unsure = any(change is not None for change in pending)
        versions = [*range(self._used + 1, self._used + 1 + len(keys))]
        try:
            decisions = decide(current, versions)
        except Exception:
            if unsure:  # its reason may be a state that is never stored
                await self._writer.durable([])
            raise
        changes = [
            change_of(key, before, version, decision)
            for key, before, version, decision in zip(keys, current, versions, decisions, strict=True)
            if decision is not None
        ]
        if not changes:
            if unsure:
                await self._writer.durable([])
            return current
        for change in changes:
            if is_too_large(change):
                raise TooLargeError(len(change.body), TOO_LARGE)
        made = {change.key: change for change in changes}
        if len(made) != len(changes):
            raise ValueError(f"duplicate key: {keys}")
        self._writer.check(changes)
        self._used = changes[-1].version
        self._undurable |= made
        await self._writer.durable(changes)
        return [
            Record(key, made[key].version, made[key].body, made[key].created) if key in made else record
            for key, record in zip(keys, current, strict=True)
        ]

    def _state_after(self, changes: list[Change]) -> State:
        version, oldest = changes[-1].version, self._cache.oldest
        if version + RESERVE // 2 > self._ceiling:
            self._ceiling = version + RESERVE
        gaps = tuple(gap for gap in self._cache.gaps if gap[1] > oldest)
        objects = self._cache.count() + sum(_DIFFERENCE[change.kind] for change in changes)
        return State(version, oldest, self._ceiling, gaps, objects)

    def _commit(self, batch: Batch) -> None:
        self._cache.apply(batch.changes, batch.state.version, batch.state.gaps)
        for change in batch.changes:
            if self._undurable.get(change.key) is change:
                del self._undurable[change.key]

    async def close(self) -> None:
        self._is_closing = True
        try:
            await self._writer.close(self._used)
        finally:
            os.close(self._lock_fd)


async def opened(
    directory: Path, max_bytes: int | None, reserve_bytes: int, sealing: Sealing
) -> tuple[Disk, Contents, int]:
    """The database, all that is in it, and the lock of its directory."""
    make_directory(directory)
    lock_fd = lock(directory)
    try:
        disk, contents = await asyncio.to_thread(Disk.open, directory, max_bytes, reserve_bytes, sealing)
    except BaseException:
        os.close(lock_fd)
        raise
    return disk, contents, lock_fd
