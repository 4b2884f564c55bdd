"""One conditional write: sent until etcd has answered, applied at most once.

A write without an answer is sent again as it is. The comparison lets it be applied at most once, and the watch shows
whether an attempt was: every value has a number of its own.
"""

from __future__ import annotations

import asyncio
import logging
import random

import msgspec

from plimsoll.store.cache import WatchCache
from plimsoll.store.errors import FencedError, LogRefusedError, OutcomeUnknownError, WriteFailedError
from plimsoll.store.etcd.client import UNSUPPORTED, AmbiguousError, EtcdClient, NotSentError
from plimsoll.store.etcd.messages import (
    RANGE,
    TXN,
    KeyValue,
    RangeRequest,
    RangeResponse,
    TxnResponse,
)
from plimsoll.store.etcd.shapes import transaction
from plimsoll.store.etcd.values import stored
from plimsoll.store.etcd.watcher import Watcher
from plimsoll.store.fence import FENCE
from plimsoll.store.records import Change
from plimsoll.store.sealing import Sealing

WRITE_S = 8.0  # for all keys of a change, with all attempts
_PAUSE_S = 0.05

log = logging.getLogger("plimsoll.api")


class Found(msgspec.Struct, frozen=True):
    """What a key has in etcd instead of what was expected; `at` is the revision of this answer."""

    value: KeyValue | None
    at: int


def deadline() -> float:
    return asyncio.get_running_loop().time() + WRITE_S


class Transactions:
    def __init__(self, client: EtcdClient, cache: WatchCache, watcher: Watcher) -> None:
        self._client, self._cache, self._watcher = client, cache, watcher
        self._compares_terms = True  # kine does not

    async def write(self, path: bytes, revision: int, change: Change, sealing: Sealing, end: float) -> int | Found:
        """Make the change where `path` is at `revision` (0: absent). Nothing is sent after `end`, by the loop's clock.

        Returns the new revision, or what is there instead. Raises WriteFailedError if it was certainly not written,
        OutcomeUnknownError, FencedError.
        """
        number = random.getrandbits(62)
        value = None if change.kind == "DELETED" else stored(change.key, change.body, number, sealing)
        self._watcher.pending[number] = 0
        try:
            return await self._write(path, revision, value, change, number, end)
        finally:
            del self._watcher.pending[number]

    async def _write(
        self, path: bytes, revision: int, value: bytes | None, change: Change, write: int, end: float
    ) -> int | Found:
        loop = asyncio.get_running_loop()
        is_unsure, reloads = False, self._watcher.reloads
        while True:
            fence = FENCE.get() if self._compares_terms else None
            txn = transaction(path, revision, value, fence)
            try:
                answer = await self._client.write_once(TXN, txn, TxnResponse)
                break
            except LogRefusedError as error:
                if is_unsure:  # of an attempt before
                    raise OutcomeUnknownError(self._client.where, str(error)) from None
                if fence is None or error.reason != UNSUPPORTED:
                    raise
                log.warning(
                    "%s cannot compare a leader's term: a former leader stops writing at its lease's deadline",
                    self._client.endpoint,
                )
                self._compares_terms = False
                continue
            except WriteFailedError as error:  # etcd is full
                if is_unsure:
                    raise OutcomeUnknownError(self._client.where, str(error)) from None
                raise
            except NotSentError as error:
                reason = str(error)
            except AmbiguousError as error:
                reason, is_unsure = str(error), True
            if loop.time() >= end:
                if is_unsure:
                    raise OutcomeUnknownError(self._client.where, reason)
                raise WriteFailedError(self._client.where, reason, lasting=False)
            await asyncio.sleep(_PAUSE_S)
        assert answer.header is not None
        if answer.succeeded:
            return answer.header.revision
        if is_unsure:
            if not await self._watcher.reached(answer.header.revision, WRITE_S) or self._watcher.reloads != reloads:
                raise OutcomeUnknownError(self._client.where, "the watch did not continue in time")
            if applied := self._applied(change, write):
                return applied
        found = await self._found(path, answer)
        if fence is not None and (0 if found.value is None else found.value.mod_revision) == revision:
            raise FencedError(fence.name)
        return found

    async def _found(self, path: bytes, answer: TxnResponse) -> Found:
        ranges = [each.range for each in answer.responses if each.range is not None]
        assert answer.header is not None
        if ranges:
            return Found(ranges[0].kvs[0] if ranges[0].kvs else None, answer.header.revision)
        read = await self._client.read(RANGE, RangeRequest(path), RangeResponse)
        assert read.header is not None
        return Found(read.kvs[0] if read.kvs else None, read.header.revision)

    def _applied(self, change: Change, write: int) -> int:
        """The revision at which an earlier attempt was applied; 0 if none was. The watch has passed all attempts."""
        if change.kind != "DELETED":
            return self._watcher.pending[write]
        # A deletion has no value with a number: it was the first change after the compared state, or another's was.
        history = self._cache.history_of(change.key, change.before_version)
        if history is None:
            raise OutcomeUnknownError(self._client.where, "the changes since then are no longer in the history")
        is_first = bool(history) and history[0].kind == "DELETED"
        return history[0].version - self._watcher.offset if is_first else 0
