"""The store: what the API server reads, changes and watches. Reads are those of `WatchCache`, changes go to a log.

`change` is read-modify-write: `decide` is called with the newest state of its key, and what it returns is written if
that is still the newest state.

    store = await Store.open(directory)
    record = await store.change("/pods/default/web", decide)   # decide(current: Record | None, version: int)
    version, pods = store.list("/pods/default/")
    async for change in store.watch("/pods/", version): ...
    await store.close()
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll.store.cache import WatchCache
from plimsoll.store.fence import Fence
from plimsoll.store.log import DecideMany, Log
from plimsoll.store.records import Decision, History, Record, StoreMetrics
from plimsoll.store.sealing import PLAIN, Sealing

if TYPE_CHECKING:
    from plimsoll.store.etcd.location import Location

Decide = Callable[[Record | None, int], Decision]
_Found = list[Record | None]  # `list` is a method below

DEFAULT_HISTORY = History()


class Store(WatchCache):
    """Use `open`."""

    _log: Log
    _back_up: Callable[[Path], None]  # called in a thread

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
        from plimsoll.store.sqlite.backup import backup
        from plimsoll.store.sqlite.log import SqliteLog, opened

        disk, contents, lock_fd = await opened(path, max_bytes, reserve_bytes, sealing)
        state = disk.state
        store = cls(
            contents.records,
            contents.changes,
            history,
            version=state.version,
            oldest=state.oldest,
            gaps=state.gaps,
        )
        store._log = SqliteLog(disk, lock_fd, store)
        store._back_up = partial(backup, path)
        return store

    @classmethod
    async def open_etcd(
        cls, location: Location, *, history: History = DEFAULT_HISTORY, sealing: Sealing = PLAIN
    ) -> Store:
        """Open the store in etcd, or create it where its prefix is empty; other servers may use it at the same time.

        Raises `LogUnreachableError`, `LogRefusedError` (credentials, foreign data, too old), `StoreNewerError`.
        """
        from plimsoll.store.etcd import opening
        from plimsoll.store.etcd.client import EtcdClient
        from plimsoll.store.etcd.log import EtcdLog
        from plimsoll.store.etcd.values import Layout
        from plimsoll.store.etcd.watcher import Watcher
        from plimsoll.store.sqlite import snapshot

        client, layout = EtcdClient(location), Layout(location.prefix)
        try:
            has_progress = opening.notifies_of_progress(await opening.checked_version(client))
            form = await opening.read_format(client, layout)
            loaded = await opening.load(client, layout, form, sealing, history.events)
            version = loaded.revision + form.offset
            store = cls(loaded.records.values(), (), history, version=version, oldest=version)
            watcher = Watcher(client, layout, form, store, sealing, loaded, has_progress=has_progress)
            log = EtcdLog(client, layout, form, store, sealing, watcher)
            watcher.passed = log.passed
            await log.start()
        except BaseException:
            client.close()
            raise
        store._log = log
        store._back_up = lambda file: snapshot.write(file, store.list("")[1], store.version, sealing)
        return store

    @property
    def meter(self) -> StoreMetrics:
        return self._log.meter

    @property
    def fault(self) -> str:
        """Why writes fail or will, or what was lost before the start (for /readyz); empty while all is well."""
        return self._log.fault

    @property
    def is_shared(self) -> bool:
        """Whether other servers write to the same log, so that what is read here may be a little old."""
        return self._log.is_shared

    def observe_commits(self, observer: Callable[[int, float], None]) -> None:
        """Calls it on the loop after each commit with its number of changes and its seconds (for a histogram)."""
        self._log.observe_commits(observer)

    async def fresh(self) -> bool:
        """Wait until reads show all that any server has acknowledged before; False where that cannot be known now."""
        return await self._log.fresh()

    async def last_term(self, name: str) -> int:
        """When the newest term of a leader began. Read it before the lease is taken, and pass it to `begin_term`."""
        return await self._log.last_term(name)

    async def begin_term(self, name: str, last: int) -> Fence | None:
        """For a leader: the fence under which it writes. From now on writes under earlier ones fail.

        None where a term has begun since `last`: then nothing was changed."""
        return await self._log.begin_term(name, last)

    async def change(self, key: str, decide: Decide) -> Record | None:
        """Read-modify-write of one key, durable when it returns.

        `decide(current, version)` is called synchronously with the newest record (None: there is none) and the version
        to put into the body. It returns the new body with that version in it, `Delete(body)`, or None to change
        nothing, which uses no version and emits no event. What it raises passes through. On a shared log it is called
        again if another server has changed the key, and the version is put in when it is known.
        Returns the record that was written (for `Delete` the last one), or the current one if nothing was.
        When the caller is cancelled, its change may still succeed.
        """
        (record,) = await self.change_many([key], lambda current, versions: [decide(current[0], versions[0])])
        return record

    def change_many(self, keys: Sequence[str], decide: DecideMany) -> Awaitable[_Found]:
        """The same for several different keys at once: all decisions become durable and visible together, or none.

        A key may be there just to be read: its decision is None, and the answer waits until what was read is durable.
        A shared log writes one key after the other: first the changes to existing objects other than the first key,
        then the first key, then new objects; if it cannot complete the first key it takes back what came before.
        """
        return self._log.change_many(keys, decide)

    async def backup(self, file: Path) -> None:
        """A complete, checked copy of the store as it is now, in one file (0600), while it keeps running."""
        await asyncio.to_thread(self._back_up, file)

    async def close(self) -> None:
        """Waits for what is on its way, and ends all watches. May be called twice."""
        if self._closing:
            return
        self._closing = True
        try:
            await self._log.close()
        finally:
            self._feeds.end_watches()
