"""The store: what the API server reads, changes and watches.

Everything is called on one event loop. Reads are plain functions over memory and see only what is on disk. `change` is
read-modify-write: `decide` is called at once with the newest state of its key, also one that is still on its way to the
disk, so writers of one key are serialized without a lock and without a conflict. Changes that arrive meanwhile become
one transaction (`writer.py`); when it is durable the index and the feeds take it over, watchers wake, awaits return.

A caller that was given a state that is not durable yet gets no answer before it is: a no-op and an exception from
`decide` wait for the commit as well. If a commit fails, the whole queue behind it was decided on states that were never
stored: all of its writers get `WriteFailedError`, and no reader sees any of it.

    store = await Store.open(directory)
    record = await store.change("/pods/default/web", decide)   # decide(current: Record | None, version: int)
    version, pods = store.list("/pods/default/")
    async for change in store.watch("/pods/", version): ...
    await store.close()
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from plimsoll.store import backup
from plimsoll.store.disk import RESERVE, Batch, Contents, Disk
from plimsoll.store.errors import ExpiredError, StoreClosedError
from plimsoll.store.feed import Feeds, Watch
from plimsoll.store.files import lock, make_directory
from plimsoll.store.index import Index, key_range
from plimsoll.store.records import Change, Decision, Delete, History, Record, StoreMetrics
from plimsoll.store.schema import State
from plimsoll.store.sealing import PLAIN, Sealing
from plimsoll.store.writer import Writer

Records = list[Record]
Decide = Callable[[Record | None, int], Decision]
DecideMany = Callable[[list[Record | None], list[int]], Sequence[Decision]]
_Keys = list[str]  # `list` is a method below
_Changes = list[Change]
_Found = list[Record | None]

DEFAULT_HISTORY = History()
_DIFFERENCE = {"ADDED": 1, "MODIFIED": 0, "DELETED": -1}


class Store:
    def __init__(self, disk: Disk, contents: Contents, lock_fd: int, history: History) -> None:
        """Use `open`."""
        self._path = disk.path
        self._lock_fd = lock_fd
        self._index = Index(contents.records)
        self._feeds = Feeds(history, disk.state.oldest, contents.changes)
        self._lost = disk.lost
        self._gaps = disk.state.gaps
        self._version = disk.state.version  # committed
        self._used = disk.state.version  # handed to some `decide`
        self._ceiling = disk.state.ceiling
        self._undurable: dict[str, Change] = {}  # the newest change of each key that has some on their way
        self._closing = False
        self._writer = Writer(
            disk, state_after=self._state_after, commit=self._commit, discard=self._undurable.clear
        )  # fmt: skip

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        history: History = DEFAULT_HISTORY,
        max_bytes: int | None = None,
        reserve_bytes: int = 0,
        sealing: Sealing = PLAIN,
    ) -> Store:
        """Open the store in the directory `path`, or create it; nothing else may use the directory.

        `max_bytes` bounds the database file; beyond it writes fail with `WriteFailedError`. `reserve_bytes` are kept
        free on the disk, for deletions when nothing else is. `sealing` encrypts what is written. Raises
        `StoreLockedError` while another process has it open, `StoreCorruptError`, `StoreNewerError`, or
        `StoreUnavailableError` (rights, disk full).
        """
        make_directory(path)
        lock_fd = lock(path)
        try:
            disk, contents = await asyncio.to_thread(Disk.open, path, max_bytes, reserve_bytes, sealing)
            return cls(disk, contents, lock_fd, history)
        except BaseException:
            os.close(lock_fd)
            raise

    # --- reads ---

    @property
    def version(self) -> int:
        """The newest committed resourceVersion."""
        return self._version

    @property
    def oldest(self) -> int:
        """The oldest version that `watch` and `list_at` still know."""
        return self._feeds.oldest

    @property
    def meter(self) -> StoreMetrics:
        return self._writer.meter

    @property
    def fault(self) -> str:
        """Why writes fail, or what was lost before the start (for /readyz); empty while all is well."""
        return self._writer.fault or self._lost

    def observe_commits(self, observer: Callable[[int, float], None]) -> None:
        """Calls it on the loop after each commit with its number of changes and its seconds (for a histogram)."""
        self._writer.on_commit = observer

    def get(self, key: str) -> Record | None:
        return self._index.records.get(key)

    def list(self, prefix: str, *, start_after: str | None = None, limit: int | None = None) -> tuple[int, Records]:
        """The store's version and the records with this prefix in byte order of keys, from behind `start_after` on."""
        records = self._index.records
        return self._version, [records[key] for key in self._index.keys(prefix, start_after, limit)]

    def list_at(
        self, prefix: str, version: int, *, start_after: str | None = None, limit: int | None = None
    ) -> tuple[int, Records]:
        """The same at `version` (which it returns); `ExpiredError` where the history does not reach back to it.

        A version that does not exist yet is the caller's to wait for or refuse: ValueError.
        """
        undo = self._undo(prefix, version)
        if not undo:
            return version, self.list(prefix, start_after=start_after, limit=limit)[1]
        records = self._index.records
        keys = self._keys_at(prefix, start_after, undo)[:limit]
        then = (undo[key].record_before() if key in undo else records[key] for key in keys)
        return version, [record for record in then if record is not None]

    def count(self, prefix: str = "", *, start_after: str | None = None, version: int | None = None) -> int:
        """How many records `list` (or with `version` `list_at`) would return without a limit."""
        undo = self._undo(prefix, version) if version is not None else {}
        return len(self._keys_at(prefix, start_after, undo)) if undo else self._index.count(prefix, start_after)

    def _undo(self, prefix: str, version: int) -> dict[str, Change]:
        """Of the keys changed since `version`, the first change: it holds the state of that time."""
        if version > self._version:
            raise ValueError(f"version {version} is above the store's newest, {self._version}")
        self._check_known(version)
        undo: dict[str, Change] = {}
        for change in reversed(self._feeds.of(prefix).changes):
            if change.version <= version:
                break
            if change.key.startswith(prefix):
                undo[change.key] = change
        return undo

    def _keys_at(self, prefix: str, start_after: str | None, undo: dict[str, Change]) -> _Keys:
        keys = [key for key in self._index.keys(prefix, start_after) if key not in undo or undo[key].before is not None]
        gone = [key for key, first in undo.items() if key not in self._index.records and first.before is not None]
        if not gone:
            return keys
        keys += gone
        keys.sort()
        low, high = key_range(keys, prefix, start_after)
        return keys[low:high]

    def _check_known(self, version: int) -> None:
        if version < self._feeds.oldest or any(low < version < high for low, high in self._gaps):
            raise ExpiredError(version, self._feeds.oldest)

    # --- watches ---

    def watch(self, prefix: str, after: int) -> Watch:
        """All changes of keys with this prefix after version `after`, those in the history first.

        Between `list` and `watch` from its version nothing is lost. Raises `ExpiredError` at once where the history
        does not reach back; the watch raises it when its reader falls behind. An `after` in the future just waits.
        """
        self._check_known(after)
        return Watch(self._feeds, prefix, after, lambda: None if self._closing else self._version)

    # --- changes ---

    async def change(self, key: str, decide: Decide) -> Record | None:
        """Read-modify-write of one key, durable when it returns.

        `decide(current, version)` is called once, synchronously, with the newest record (None: there is none) and the
        version that its change would get. It returns the new body with that version in it, `Delete(body)`, or None to
        change nothing, which uses no version and emits no event. What it raises passes through.
        Returns the record that was written (for `Delete` the last one), or the current one if nothing was.
        When the caller is cancelled, its change may still succeed.
        """
        (record,) = await self.change_many([key], lambda current, versions: [decide(current[0], versions[0])])
        return record

    async def change_many(self, keys: Sequence[str], decide: DecideMany) -> _Found:
        """The same for several different keys at once: all decisions become durable and visible together, or none.

        A key may be there just to be read: its decision is None, and the answer waits until what was read is durable.
        """
        if self._closing:
            raise StoreClosedError
        pending = [self._undurable.get(key) for key in keys]
        current = [
            self._index.records.get(key) if change is None else change.record_after()
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
            _change(key, before, version, decision)
            for key, before, version, decision in zip(keys, current, versions, decisions, strict=True)
            if decision is not None
        ]
        if not changes:
            if unsure:
                await self._writer.durable([])
            return current
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

    def _state_after(self, changes: _Changes) -> State:
        version = changes[-1].version
        if version + RESERVE // 2 > self._ceiling:
            self._ceiling = version + RESERVE
        gaps = tuple(gap for gap in self._gaps if gap[1] > self._feeds.oldest)
        objects = len(self._index.records) + sum(_DIFFERENCE[change.kind] for change in changes)
        return State(version, self._feeds.oldest, self._ceiling, gaps, objects)

    def _commit(self, batch: Batch) -> None:
        self._version = batch.state.version
        self._gaps = batch.state.gaps
        for change in batch.changes:
            record = change.record_after()
            if record is not None:
                self._index.put(record)
            else:
                self._index.remove(change.key)
            if self._undurable.get(change.key) is change:
                del self._undurable[change.key]
        self._feeds.append(batch.changes)

    # --- backup and close ---

    async def backup(self, file: Path) -> None:
        """A complete, checked copy of the store as it is now, in one file (0600), while it keeps running."""
        await asyncio.to_thread(backup.backup, self._path.parent, file)

    async def close(self) -> None:
        """Waits for what is on its way, ends all watches, and leaves a database without a WAL. May be called twice."""
        if self._closing:
            return
        self._closing = True
        try:
            await self._writer.close(self._used)
        finally:
            self._feeds.end_watches()
            os.close(self._lock_fd)


def _change(key: str, before: Record | None, version: int, decision: bytes | Delete) -> Change:
    if key.count("/") != 3 or not key.isprintable():  # what SQLite could not take would fail all others in the batch
        raise ValueError(f"not a key: {key!r}")
    if before is None:
        if isinstance(decision, Delete):
            raise ValueError(f"there is no {key} to delete")
        return Change(version, "ADDED", key, bytes(decision), None, 0, version)
    if isinstance(decision, Delete):
        return Change(version, "DELETED", key, bytes(decision.body), before.body, before.version, before.created)
    return Change(version, "MODIFIED", key, bytes(decision), before.body, before.version, before.created)
