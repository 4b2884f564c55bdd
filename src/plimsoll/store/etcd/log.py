"""Changes to a store in etcd: decided on what the cache knows, written if etcd still has it, else decided again.

An answer waits until the server's own watch has passed its revision, so a client reads what it wrote. An error and a
change of nothing are answers, too: they are confirmed by a read of etcd's revision, because the cache may be old.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence

import msgspec

from plimsoll.store.cache import WatchCache
from plimsoll.store.errors import (
    FencedError,
    LogRefusedError,
    LogUnreachableError,
    OutcomeUnknownError,
    StoreClosedError,
    StoreError,
    WriteFailedError,
)
from plimsoll.store.etcd.client import CompactedError, EtcdClient
from plimsoll.store.etcd.messages import RANGE, KeyValue, RangeRequest, RangeResponse
from plimsoll.store.etcd.meta import Meta
from plimsoll.store.etcd.opening import Format, foreign
from plimsoll.store.etcd.transactions import Found, Transactions, deadline
from plimsoll.store.etcd.values import UNSTAMPED, Layout, record_of, stamped
from plimsoll.store.etcd.watcher import Watcher
from plimsoll.store.fence import Fence
from plimsoll.store.log import DecideMany
from plimsoll.store.records import Change, Record, StoreMetrics, change_of
from plimsoll.store.sealing import Sealing

FRESH_S = 3.0
_TRIES = 1000  # decisions on one change; each one that was lost means that another writer has won
_EVENT_S = 0.01  # for the event of the newest revision to arrive, before progress is asked for
_PROGRESS_S = 0.1
_HEARTBEAT_S = 1.0
_RECOVERY_S = 0.2  # between two questions while etcd does not answer


log = logging.getLogger("plimsoll.api")


class _Known(msgspec.Struct, frozen=True):
    """A state of a key and its revision in etcd, 0 if there is none; `at` is a revision at which that was so."""

    record: Record | None
    revision: int
    at: int


class _ConflictError(Exception):
    """Another server was faster."""


class EtcdLog:
    """Implements `store.log.Log`."""

    is_shared = True

    def __init__(
        self, client: EtcdClient, layout: Layout, form: Format, cache: WatchCache, sealing: Sealing, watcher: Watcher
    ) -> None:
        self._client, self._layout, self._form, self._cache, self._sealing = client, layout, form, cache, sealing
        self._watcher = watcher
        self._transactions = Transactions(client, cache, watcher)
        self.meta = Meta(client, layout)
        self.meter = StoreMetrics()
        self._on_commit: Callable[[int, float], None] | None = None
        self._ahead: dict[str, _Known] = {}  # states that are newer than the cache's
        self._writing: dict[str, asyncio.Future[None]] = {}  # keys that this server is writing now
        self._fault = ""
        self._last_answer = time.monotonic()
        self._is_closing = False
        self._next_read: asyncio.Task[bool] | None = None
        self._last_read: asyncio.Task[bool] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to watch, and wait until the cache is as new as etcd."""
        self._tasks = [asyncio.create_task(self._watcher.run()), asyncio.create_task(self._check_regularly())]
        if every_s := self._client.location.compact_s:
            self._tasks.append(asyncio.create_task(self._compact_regularly(every_s)))
        try:
            if not await self._read_revision():
                raise LogUnreachableError(self._client.where, self.fault or "the watch did not start")
            for path, reason in self._watcher.unreadable.items():
                raise foreign(self._client, path, reason)
        except BaseException:
            await self.close()
            raise

    @property
    def fault(self) -> str:
        return self._fault or self._watcher.fault

    @property
    def client(self) -> EtcdClient:
        return self._client

    @property
    def form(self) -> Format:
        return self._form

    def observe_commits(self, observer: Callable[[int, float], None]) -> None:
        self._on_commit = observer

    def passed(self) -> None:
        """The cache has taken changes over."""
        if self._ahead:
            revision = self._watcher.revision
            for key in [key for key, known in self._ahead.items() if known.at <= revision]:
                del self._ahead[key]

    # --- freshness ---

    async def fresh(self) -> bool:
        if self._fault:
            return False  # the regular check notices when it is over
        if self._next_read is None:
            self._next_read = asyncio.create_task(self._read_after(self._last_read))
        return await asyncio.shield(self._next_read)

    async def _read_after(self, previous: asyncio.Task[bool] | None) -> bool:
        """One read serves all who ask before it is sent."""
        if previous is not None:
            await asyncio.wait((previous,))
        self._last_read, self._next_read = self._next_read, None
        return await self._read_revision()

    async def _read_revision(self) -> bool:
        end = time.monotonic() + FRESH_S
        try:
            read = await self._client.read(RANGE, RangeRequest(self._layout.format), RangeResponse, FRESH_S)
        except StoreError as error:
            self._fault = str(error)
            return False
        self._fault = ""
        self._last_answer = time.monotonic()
        assert read.header is not None
        revision = read.header.revision
        if await self._watcher.reached(revision, _EVENT_S):
            return True
        # The newest revision may be of a key that is not ours: then no event comes.
        while time.monotonic() < end:
            if not await self._watcher.request_progress():
                try:
                    revision = max(revision, await self.meta.touch())
                except StoreError as error:
                    self._fault = str(error)
                    return False
            if await self._watcher.reached(revision, _PROGRESS_S):
                return True
        return False

    async def _check_regularly(self) -> None:
        """A member that was cut off says nothing: ask, and use another endpoint if there is no answer."""
        while True:
            await asyncio.sleep(_RECOVERY_S if self._fault else _HEARTBEAT_S)
            if self._fault or time.monotonic() - self._last_answer >= _HEARTBEAT_S:
                await self._read_revision()

    async def _compact_regularly(self, every_s: float) -> None:
        """etcd keeps every old state until it is compacted. With several servers one of them does it each time."""
        while True:
            await asyncio.sleep(every_s * random.uniform(1.0, 1.1))
            try:
                done = await self.meta.compact(self._watcher.revision)
            except (CompactedError, LogUnreachableError):
                continue
            except StoreError as error:
                log.warning("etcd is not compacted by this server: %s", error)
                continue
            if done:
                log.debug("etcd is compacted up to revision %d", done)

    async def last_term(self, name: str) -> int:
        return await self.meta.last_term(name)

    async def begin_term(self, name: str, last: int) -> Fence | None:
        return await self.meta.begin_term(name, last)

    # --- changes ---

    async def change_many(self, keys: Sequence[str], decide: DecideMany) -> list[Record | None]:
        mine: dict[str, tuple[_Known, int]] = {}  # written before the first key: the state before, the new revision
        try:
            for _ in range(_TRIES):
                if self._is_closing:
                    raise StoreClosedError
                try:
                    return await self._attempt(keys, decide, mine)
                except _ConflictError:
                    continue
            raise WriteFailedError(self._client.where, f"other servers keep changing {keys[0]}", lasting=False)
        except BaseException:
            await self._take_back(mine)
            raise

    async def _attempt(
        self, keys: Sequence[str], decide: DecideMany, mine: dict[str, tuple[_Known, int]]
    ) -> list[Record | None]:
        while busy := [self._writing[key] for key in keys if key in self._writing]:
            await asyncio.wait(busy)
        known = [self._known(key, mine) for key in keys]
        current = [each.record for each in known]
        try:
            decisions = decide(current, [UNSTAMPED] * len(keys))
        except Exception:  # its reason may be a state that etcd no longer has
            await self._confirm(keys, known, mine)
            raise
        changes = {
            key: change_of(key, state.record, UNSTAMPED, decision)
            for key, state, decision in zip(keys, known, decisions, strict=True)
            if decision is not None
        }
        if len(changes) != sum(decision is not None for decision in decisions):
            raise ValueError(f"duplicate key: {keys}")
        if not changes:
            await self._confirm(keys, known, mine)
            await self._take_back(mine)
            return current
        states = dict(zip(keys, known, strict=True))
        written = await self._write_all(keys[0], changes, states, mine)
        for key in changes:
            mine.pop(key, None)
        await self._take_back(mine)
        return [written.get(key, record) for key, record in zip(keys, current, strict=True)]

    def _known(self, key: str, mine: dict[str, tuple[_Known, int]]) -> _Known:
        """The newest state of a key; of one that this change has written already, the state before."""
        state = self._ahead.get(key)
        if state is None:
            record = self._cache.get(key)
            revision = 0 if record is None else self._watcher.revision_of(record)
            state = _Known(record, revision, self._watcher.revision)
        if key in mine and mine[key][1] == state.revision:
            return _Known(mine[key][0].record, state.revision, state.at)
        return state

    async def _confirm(self, keys: Sequence[str], known: Sequence[_Known], mine: dict[str, tuple[_Known, int]]) -> None:
        """Raises _ConflictError where etcd has newer states than those that were decided on."""
        if not await self.fresh():
            raise WriteFailedError(self._client.where, self.fault or "its newest revision is not known", lasting=False)
        if any(self._known(key, mine).revision != state.revision for key, state in zip(keys, known, strict=True)):
            raise _ConflictError

    async def _write_all(
        self,
        first: str,
        changes: dict[str, Change],
        states: dict[str, _Known],
        mine: dict[str, tuple[_Known, int]],
    ) -> dict[str, Record]:
        """One key after the other: charges to existing objects, the object itself, new objects that belong to it."""
        order = sorted(changes, key=lambda key: 1 if key == first else 0 if changes[key].kind == "MODIFIED" else 2)
        done = asyncio.get_running_loop().create_future()
        self._writing |= dict.fromkeys(changes, done)
        written: dict[str, Record] = {}
        self.meter.waiting += len(changes)
        revision, end = 0, deadline()
        try:
            for key in order:
                began = time.perf_counter()
                try:
                    revision = await self._write(changes[key], states[key], end)
                except _ConflictError:
                    if first in written and changes[key].kind == "ADDED":
                        continue  # another server has created it: that is what was wanted
                    raise
                version, change = revision + self._form.offset, changes[key]
                created = version if change.kind == "ADDED" else change.created
                written[key] = Record(key, version, stamped(change.body, version), created)
                if first not in written:
                    mine[key] = (states[key], revision)
                self._count(time.perf_counter() - began)
        finally:
            self.meter.waiting -= len(changes)
            for key in changes:
                del self._writing[key]
            done.set_result(None)
        await self._watcher.reached(revision, FRESH_S)
        return written

    async def _write(self, change: Change, state: _Known, end: float) -> int:
        key = change.key
        try:
            path = self._layout.path(key)
            outcome = await self._transactions.write(path, state.revision, change, self._sealing, end)
        except (LogRefusedError, WriteFailedError, OutcomeUnknownError, FencedError):
            self.meter.failed_commits += 1
            raise
        self._last_answer = time.monotonic()
        if isinstance(outcome, Found):
            self._learn(key, outcome.value, outcome.at)
            raise _ConflictError
        if self._watcher.revision < outcome:
            version = outcome + self._form.offset
            created = version if change.kind == "ADDED" else change.created
            record = None if change.kind == "DELETED" else Record(key, version, stamped(change.body, version), created)
            self._ahead[key] = _Known(record, 0 if record is None else outcome, outcome)
        return outcome

    def _learn(self, key: str, found: KeyValue | None, at: int) -> None:
        if at <= self._watcher.revision:
            return
        record = None if found is None else record_of(key, found, self._form.offset, self._sealing)
        self._ahead[key] = _Known(record, 0 if found is None else found.mod_revision, at)

    async def _take_back(self, mine: dict[str, tuple[_Known, int]]) -> None:
        """What was written for a change that did not happen; where others have written since, it stays."""
        while mine:
            key, (before, revision) = mine.popitem()
            if before.record is not None:
                current = Record(key, revision + self._form.offset, before.record.body, before.record.created)
                change = change_of(key, current, UNSTAMPED, before.record.body)
                try:
                    await self._write(change, _Known(current, revision, revision), deadline())
                except (_ConflictError, StoreError):
                    continue

    def _count(self, seconds: float) -> None:
        self.meter.commits += 1
        self.meter.committed_changes += 1
        self.meter.largest_batch = 1
        if self._on_commit is not None:
            self._on_commit(1, seconds)

    async def close(self) -> None:
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._client.close()
