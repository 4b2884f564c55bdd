"""Keys below `<prefix>/meta`: what servers share besides objects. Each is written by compare-and-swap."""

from __future__ import annotations

import asyncio
import os
import socket

from plimsoll.store.errors import LogUnreachableError
from plimsoll.store.etcd.client import AmbiguousError, EtcdClient, NotSentError
from plimsoll.store.etcd.messages import (
    COMPACT,
    RANGE,
    TXN,
    CompactionRequest,
    CompactionResponse,
    KeyValue,
    RangeRequest,
    RangeResponse,
    TxnResponse,
)
from plimsoll.store.etcd.shapes import transaction
from plimsoll.store.etcd.values import Layout
from plimsoll.store.fence import Fence

_TRIES = 40
_COMPACTION = "compaction"
_PAUSE_S = 0.05


class Meta:
    def __init__(self, client: EtcdClient, layout: Layout) -> None:
        self._client, self._layout = client, layout
        self._touched = 0  # the revision of this server's own key
        self._name = f"servers/{socket.gethostname()}-{os.getpid()}"

    async def get(self, name: str) -> KeyValue | None:
        read = await self._client.read(RANGE, RangeRequest(self._layout.meta + name.encode()), RangeResponse)
        return read.kvs[0] if read.kvs else None

    async def put(self, name: str, value: bytes, revision: int) -> int:
        """Write it where it is at `revision` (0: absent). Returns the new revision, 0 where it is at another one."""
        path, is_unsure = self._layout.meta + name.encode(), False
        txn = transaction(path, revision, value, None)
        for _ in range(_TRIES):
            try:
                answer = await self._client.write_once(TXN, txn, TxnResponse)
            except (AmbiguousError, NotSentError) as error:
                is_unsure |= isinstance(error, AmbiguousError)
                await asyncio.sleep(_PAUSE_S)
                continue
            assert answer.header is not None
            if answer.succeeded:
                return answer.header.revision
            found = await self.get(name) if is_unsure else None
            return found.mod_revision if found is not None and found.value == value else 0
        raise LogUnreachableError(self._client.where, "a write was not answered")

    async def last_term(self, name: str) -> int:
        """The revision at which the newest term began, 0 where there was none."""
        found = await self.get(f"terms/{name}")
        return 0 if found is None else found.mod_revision

    async def begin_term(self, name: str, last: int) -> Fence | None:
        """From now on writes that compare an older term fail. None where a term has begun since `last`."""
        path = f"terms/{name}"
        revision = await self.put(path, os.urandom(8).hex().encode(), last)
        return Fence(name, self._layout.meta + path.encode(), revision) if revision else None

    async def compact(self, revision: int) -> int:
        """One round of compaction, by one of the servers: what was older than `revision` a round ago is discarded.

        Returns up to which revision; 0 where another server has done this round, or it is the first.
        """
        found = await self.get(_COMPACTION)
        if not await self.put(_COMPACTION, b"%d" % revision, 0 if found is None else found.mod_revision):
            return 0
        before = int(found.value) if found is not None and found.value.isdigit() else 0
        if before:
            await self._client.read(COMPACT, CompactionRequest(before), CompactionResponse)
        return before

    async def touch(self) -> int:
        """A change below the prefix, to see it arrive; its revision."""
        for _ in range(_TRIES):
            value = os.urandom(8).hex().encode()
            if revision := await self.put(self._name, value, self._touched):
                self._touched = revision
                return revision
            found = await self.get(self._name)
            self._touched = 0 if found is None else found.mod_revision
        raise LogUnreachableError(self._client.where, f"other servers keep changing {self._name}")
