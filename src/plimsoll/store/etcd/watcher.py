"""The one watch of a server: all changes below the prefix, in order, into the cache.

It continues where it stopped, on another endpoint if need be. If etcd has compacted that place, all objects are read
again and every watcher of the server gets `ExpiredError`, as at a real API server.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable

import msgspec

from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.codec.protobuf.wire import ProtobufError
from plimsoll.net.grpc.client import GrpcStream
from plimsoll.net.grpc.status import GrpcError
from plimsoll.store.cache import WatchCache
from plimsoll.store.errors import LogRefusedError, StoreError
from plimsoll.store.etcd.client import EtcdClient, refusal_of
from plimsoll.store.etcd.messages import (
    DELETE,
    Event,
    WatchCreateRequest,
    WatchProgressRequest,
    WatchRequest,
    WatchResponse,
)
from plimsoll.store.etcd.opening import Format, Loaded, foreign, load_now
from plimsoll.store.etcd.values import ForeignValueError, Layout, record_and_write, stamped
from plimsoll.store.records import Change, Record
from plimsoll.store.sealing import Sealing

_PAUSE_S, _LONG_PAUSE_S = 0.05, 1.0

log = logging.getLogger("plimsoll.api")


class Watcher:
    def __init__(
        self,
        client: EtcdClient,
        layout: Layout,
        form: Format,
        cache: WatchCache,
        sealing: Sealing,
        loaded: Loaded,
        *,
        has_progress: bool,
    ) -> None:
        self._client, self._layout, self._form, self._cache, self._sealing = client, layout, form, cache, sealing
        self._has_progress = has_progress
        self.passed: Callable[[], None] = lambda: None  # called when the cache has taken changes over
        self.revision = loaded.revision  # every change up to here is in the cache
        self.revisions = loaded.revisions
        self._fault = ""
        self.unreadable: dict[bytes, str] = {}  # keys with values of others, and why they cannot be read
        self.pending: dict[int, int] = {}  # writes of this server on their way: the revision once it was seen, or 0
        self.reloads = 0
        self._stream: GrpcStream | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    @property
    def fault(self) -> str:
        for path, reason in self.unreadable.items():
            return str(foreign(self._client, path, reason))
        return self._fault

    @property
    def offset(self) -> int:
        return self._form.offset

    def revision_of(self, record: Record) -> int:
        """etcd's revision of a record in the cache."""
        return self.revisions.get(record.key, record.version - self._form.offset)

    async def reached(self, revision: int, wait_s: float) -> bool:
        """Wait until the cache has this revision."""
        if self.revision >= revision:
            return True
        self._count += 1
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (revision, self._count, future))
        try:
            async with asyncio.timeout(wait_s):
                await future
        except TimeoutError:
            return False
        return True

    async def request_progress(self) -> bool:
        """Ask for a notification; False if this etcd's cannot be relied on."""
        if not self._has_progress:
            return False
        if self._stream is not None:
            try:
                await self._stream.send(encode(WatchRequest(progress=WatchProgressRequest())))
            except GrpcError:
                pass  # the watch begins again
        return True

    async def run(self) -> None:
        while True:
            switches, seen = self._client.switches, self.revision
            try:
                await self._watch()
                reason = "the watch ended"
            except GrpcError as error:
                refusal = refusal_of(error, self._client.endpoint, self._client.location)
                reason = str(refusal or error)
                if "auth token" in error.message:
                    self._client.renew_token()
                else:
                    self._client.switch(switches)
            except (StoreError, ProtobufError) as error:
                reason = str(error)
                self._client.switch(switches)
            finally:
                self._stream = None
            self._fault = f"the watch of etcd is interrupted: {reason}"
            await asyncio.sleep(_PAUSE_S if self.revision != seen else min(_LONG_PAUSE_S, _PAUSE_S * 4))

    async def _watch(self) -> None:
        stream = await self._client.open_watch()
        try:
            create = WatchCreateRequest(
                self._layout.root, self._layout.end, start_revision=self.revision + 1, progress_notify=True
            )
            await stream.send(encode(WatchRequest(create=create)))
            while (message := await stream.received()) is not None:
                answers = [decode(WatchResponse, each) for each in (message, *stream.received_at_once())]
                for answer in answers:
                    if answer.header is not None:
                        self._client.check_cluster(answer.header)
                    if answer.created:
                        self._stream, self._fault = stream, ""
                    if answer.canceled:
                        if not answer.compact_revision:
                            raise LogRefusedError(self._client.endpoint, answer.cancel_reason, "It is tried again")
                        self._apply([each for before in answers for each in before.events])
                        await self._start_again()
                        return
                self._apply([each for answer in answers for each in answer.events])
                self._note_progress(answers)
        finally:
            stream.leave()

    def _note_progress(self, answers: list[WatchResponse]) -> None:
        last = answers[-1]
        if self._has_progress and not last.events and not last.created and last.header is not None:
            revision = last.header.revision
            if revision > self.revision:
                self.revision = revision
                self._cache.apply((), revision + self._form.offset)
                self._wake()

    async def _start_again(self) -> None:
        log.warning("etcd has compacted what this server has not seen: all objects are read again")
        loaded = await load_now(self._client, self._layout, self._form, self._sealing)
        self.revision, self.revisions = loaded.revision, loaded.revisions
        self.reloads += 1
        self._cache.replace(loaded.records.values(), loaded.revision + self._form.offset)
        self._wake()

    def _apply(self, events: list[Event]) -> None:
        changes: list[Change] = []
        newest: dict[str, Record | None] = {}
        revision = self.revision
        for event in events:
            found = event.kv
            if found is None or found.mod_revision <= self.revision:
                continue
            revision = found.mod_revision
            try:
                change = self._change(event, newest)
            except (ForeignValueError, StoreError) as error:
                self.unreadable[found.key] = str(error)
                log.error("%s", foreign(self._client, found.key, str(error)))
                continue
            self.unreadable.pop(found.key, None)
            if change is not None:
                changes.append(change)
                newest[change.key] = change.record_after()
                self.revisions.pop(change.key, None)
        if revision > self.revision:
            self.revision = revision
            self._cache.apply(changes, revision + self._form.offset)
            self._wake()

    def _change(self, event: Event, newest: dict[str, Record | None]) -> Change | None:
        found = event.kv
        assert found is not None
        key = self._layout.key(found.key)
        if key is None:
            if found.key == self._layout.format and found.value != msgspec.json.encode(self._form):
                self._fault = "the store in etcd was replaced: restart this server"
            return None
        before = newest[key] if key in newest else self._cache.get(key)
        version = found.mod_revision + self._form.offset
        if event.type == DELETE:
            if before is None:
                return None
            body = stamped(before.body, version)
            return Change(version, "DELETED", key, body, before.body, before.version, before.created)
        record, write = record_and_write(key, found, self._form.offset, self._sealing)
        if write in self.pending:
            self.pending[write] = found.mod_revision
        if before is None:
            return Change(version, "ADDED", key, record.body, None, 0, version)
        return Change(version, "MODIFIED", key, record.body, before.body, before.version, before.created)

    def _wake(self) -> None:
        self.passed()
        while self._waiting and self._waiting[0][0] <= self.revision:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
