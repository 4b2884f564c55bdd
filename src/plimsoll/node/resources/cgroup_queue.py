"""Cgroup requests of many workers, applied in few transactions.

`CgroupManager` runs one transaction at a time, and most of it (reading the QoS classes, the journal, the state) costs
the same for one pod as for several. Workers therefore queue a request and wait; all requests in the queue when a
transaction begins share it. If a transaction fails, it is repeated for each pod alone, so that one impossible pod does
not fail the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from plimsoll.aio import Wakeup
from plimsoll.errors import PlimsollError
from plimsoll.rules.model.objects import Pod

BATCH_MAX = 8  # a transaction blocks the event loop for some milliseconds per pod


class CgroupRequest(msgspec.Struct, frozen=True):
    """`pod` None: remove its cgroups. `containers`: name → id of those that run or are about to start."""

    pod: Pod | None
    containers: Mapping[str, str] = {}


Apply = Callable[[Mapping[str, CgroupRequest]], Awaitable[None]]


class CgroupQueue:
    def __init__(self, apply: Apply, applied: Callable[[], None] = lambda: None) -> None:
        """`apply` carries out requests of one kind, by pod uid: all add or all remove. `applied` is called when the
        callers of `submit` have been woken, so that they go on before others hear of the change."""
        self._apply, self._applied = apply, applied
        self._waiting: dict[str, tuple[CgroupRequest, asyncio.Future[None]]] = {}
        self._wake = Wakeup()

    def __contains__(self, uid: str) -> bool:
        return uid in self._waiting

    async def submit(self, uid: str, request: CgroupRequest) -> None:
        """Returns when the request has been applied; raises if it was refused."""
        waiting = self._waiting.get(uid)
        if waiting is not None:  # a newer request of the same worker: the earlier one was abandoned
            waiting[1].cancel()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[uid] = (request, done)
        self._wake.set()
        await done

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            while self._waiting:
                uids = list(self._waiting)[:BATCH_MAX]
                await self._sync({uid: self._waiting.pop(uid) for uid in uids})

    async def _sync(self, batch: Mapping[str, tuple[CgroupRequest, asyncio.Future[None]]]) -> None:
        adds = {uid: request for uid, (request, _) in batch.items() if request.pod is not None}
        removes = {uid: request for uid, (request, _) in batch.items() if request.pod is None}
        for part in (adds, removes):
            if not part:
                continue
            try:
                await self._apply(part)
            except PlimsollError as error:
                if len(part) == 1:
                    _fail(batch[next(iter(part))][1], error)
                    continue
                for uid, request in part.items():
                    try:
                        await self._apply({uid: request})
                    except PlimsollError as own:
                        _fail(batch[uid][1], own)
        for _, done in batch.values():
            if not done.done():
                done.set_result(None)
        self._applied()


def _fail(done: asyncio.Future[None], error: PlimsollError) -> None:
    if not done.done():
        done.set_exception(error)
