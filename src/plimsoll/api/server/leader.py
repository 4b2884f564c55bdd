"""Parts that run once in a cluster with several API servers: the controllers, the scheduler.

The leader holds a Lease object in kube-system and renews it; another server takes it over when it has not changed for
its duration, by its own monotonic clock, so clocks that differ do no harm. Then it begins a term: a key in etcd that
every write of the leader compares (`store.fence`). A leader that was paused or cut off therefore cannot write any more,
whatever it still believes. Without several servers (SQLite) the parts simply run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from plimsoll.aio import ExponentialBackoff, beside, supervise
from plimsoll.api.machinery.cluster import Cluster, decoded, key
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.metadata import body_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import rfc3339_micro
from plimsoll.store.errors import FencedError, StoreError
from plimsoll.store.fence import FENCE, Fence
from plimsoll.store.records import Decision, Record

NAMESPACE = "kube-system"
LEASE_S, RENEW_S, DEADLINE_S = 3.0, 1.0, 2.0
RESTART_S = 1.0

log = logging.getLogger("plimsoll.api")

Work = Callable[[], AbstractAsyncContextManager[None]]


class _LostError(Exception):
    """The lease is another server's, or could not be renewed in time."""


def new_identity() -> str:
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"


class Leadership:
    def __init__(self, cluster: Cluster, name: str, identity: str) -> None:
        self._cluster, self._name, self._identity = cluster, name, identity
        self._key = key(stored_resource("leases"), NAMESPACE, name)
        self._seen: tuple[int, float] = (-1, 0.0)  # version of the lease, and since when it has been that

    async def run(self, work: Work) -> None:
        """Endless: wait for the lease, work until it is lost, again."""
        while True:
            fence = await self._begun_term()
            if fence is None:
                continue
            log.info("%s: this server leads from now on (%s)", self._name, self._identity)
            token = FENCE.set(fence)
            try:
                async with work():
                    await self._renew()  # under the fence, too: who has lost the term gives the lease up
            except _LostError as error:
                log.warning("%s: this server does not lead any more: %s", self._name, error)
            finally:
                FENCE.reset(token)

    async def _begun_term(self) -> Fence | None:
        """Take the lease and begin a term; None where another server was faster.

        The term that is replaced was read before the lease was written. So a server that was paused in between cannot
        end the term of one that has taken the lease over meanwhile.
        """
        before = await self._acquire()
        fence = await self._cluster.store.begin_term(self._name, before)
        return fence if self._is_mine() else None

    async def release(self) -> None:
        """On shutdown: others need not wait until the lease expires."""

        def decide(record: Record | None, version: int) -> Decision:
            lease = decoded(record) if record is not None else None
            if lease is None or lease["spec"].get("holderIdentity") != self._identity:
                return None
            spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
            return body_of({**lease, "spec": spec}, version)

        if self._is_mine():
            try:
                async with asyncio.timeout(RENEW_S):
                    await self._cluster.store.change(self._key, decide)
            except (StoreError, TimeoutError) as error:
                log.warning("%s: the lease is not released: %s", self._name, error)

    def _now(self) -> str:
        return rfc3339_micro(self._cluster.clock())

    def _is_mine(self) -> bool:
        record = self._cluster.store.get(self._key)
        return record is not None and decoded(record)["spec"].get("holderIdentity") == self._identity

    def _is_free(self, record: Record | None) -> bool:
        """Whether it has no holder, or its holder has not renewed it since this server watches it."""
        if record is None:
            return True
        now = time.monotonic()
        if self._seen[0] != record.version:
            self._seen = (record.version, now)
        spec = decoded(record)["spec"]
        if not spec.get("holderIdentity"):
            return True
        return now - self._seen[1] >= (spec.get("leaseDurationSeconds") or LEASE_S)

    async def _acquire(self) -> int:
        """The revision of the term that was the last one before the lease became ours."""
        while True:
            record = self._cluster.store.get(self._key)
            if self._is_free(record) or self._is_mine():
                try:
                    term = await self._cluster.store.last_term(self._name)
                    if await self._write(None if record is None else record.version):
                        return term
                except StoreError as error:
                    log.warning("%s: the lease cannot be written: %s", self._name, error)
            await asyncio.sleep(RENEW_S / 4)

    async def _renew(self) -> None:
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                async with asyncio.timeout(max(0.1, renewed + DEADLINE_S - time.monotonic())):
                    began = time.monotonic()
                    if not await self._write(None, renews=True):
                        raise _LostError("another server has taken it over")
                    renewed = began
            except FencedError as error:
                raise _LostError(str(error)) from None
            except (StoreError, TimeoutError) as error:
                if time.monotonic() - renewed >= DEADLINE_S:
                    raise _LostError(f"the lease was not renewed for {DEADLINE_S:g} s: {error}") from None

    async def _write(self, expected: int | None, *, renews: bool = False) -> bool:
        """Take the lease where it is still at the expected version, or renew our own; whether it is ours now."""
        is_ours = False

        def decide(record: Record | None, version: int) -> Decision:
            nonlocal is_ours
            lease = decoded(record) if record is not None else None
            spec: JsonObject = dict(lease["spec"]) if lease is not None else {}
            is_holder = spec.get("holderIdentity") == self._identity
            is_ours = is_holder if renews else is_holder or expected == (record.version if record else None)
            if not is_ours:
                return None
            now = self._now()
            if not is_holder:
                spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + (1 if lease is not None else 0)
                spec["acquireTime"] = now
            spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": round(LEASE_S), "renewTime": now}
            metadata = lease["metadata"] if lease is not None else self._new_metadata()
            return body_of({"metadata": metadata, "spec": spec}, version)

        await self._cluster.store.change(self._key, decide)
        return is_ours

    def _new_metadata(self) -> JsonObject:
        return {
            "name": self._name,
            "namespace": NAMESPACE,
            "uid": self._cluster.new_uid(),
            "creationTimestamp": self._cluster.now(),
        }


@asynccontextmanager
async def led(cluster: Cluster, name: str, work: Work) -> AsyncIterator[None]:
    """Run `work` on one server at a time; at once and always where there is only this one."""
    if not cluster.store.is_shared:
        async with work():
            yield
        return
    leadership = Leadership(cluster, name, new_identity())
    backoff = ExponentialBackoff(RESTART_S, RESTART_S)
    try:
        async with beside(supervise(f"leadership of {name}", lambda: leadership.run(work), backoff)):
            yield
    finally:
        await leadership.release()
