"""Which API servers run: each has a Lease in kube-system, as kube-apiserver does, with its address in an annotation.

The leader publishes the addresses in the endpoints of default/kubernetes. A server counts as long as its lease changes,
by the reader's own monotonic clock.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from plimsoll.aio import beside
from plimsoll.api.controllers.kubernetes_service import Advertised
from plimsoll.api.machinery.cluster import Cluster, decoded, key, prefix
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.metadata import body_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import rfc3339_micro
from plimsoll.store.errors import StoreError
from plimsoll.store.records import Decision, Delete, Record

NAMESPACE = "kube-system"
LABELS = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
ADDRESS = "plimsoll.dev/advertised-address"
RENEW_S, GONE_S = 5.0, 20.0

log = logging.getLogger("plimsoll.api")


class Presence:
    def __init__(self, cluster: Cluster, at: Advertised, identity: str) -> None:
        self._cluster, self._at, self._identity = cluster, at, identity
        digest = hashlib.sha256(f"{at.ip} {at.port}".encode()).hexdigest()[:24]
        self._name = f"apiserver-{digest}"
        self._key = key(stored_resource("leases"), NAMESPACE, self._name)
        self._seen: dict[str, tuple[int, float]] = {}  # version of each lease, and since when

    def addresses(self) -> tuple[Advertised, ...]:
        """Of all servers that run, this one among them."""
        if not self._cluster.store.is_shared:
            return (self._at,)
        found, now = {self._at}, time.monotonic()
        for record in self._cluster.store.list(prefix(stored_resource("leases"), NAMESPACE))[1]:
            if ADDRESS.encode() not in record.body:
                continue
            if self._seen.get(record.key, (0, 0.0))[0] != record.version:
                self._seen[record.key] = (record.version, now)
            if now - self._seen[record.key][1] < GONE_S:
                ip, _, port = decoded(record)["metadata"]["annotations"][ADDRESS].rpartition(":")
                if port.isdecimal():
                    found.add(Advertised(ip, int(port)))
        return tuple(sorted(found, key=lambda each: (each.ip, each.port)))

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """While the server runs."""
        if not self._cluster.store.is_shared:
            yield
            return
        try:
            async with beside(self._renew()):
                yield
        finally:
            await self._attempt(leaves=True)

    async def _renew(self) -> None:
        while True:
            await self._attempt()
            await asyncio.sleep(RENEW_S)

    async def _attempt(self, *, leaves: bool = False) -> None:
        try:
            async with asyncio.timeout(RENEW_S):
                await self._cluster.store.change(self._key, self._removed if leaves else self._renewed)
        except (StoreError, TimeoutError) as error:
            log.warning("the lease %s of this server is not written: %s", self._name, error)

    def _renewed(self, record: Record | None, version: int) -> Decision:
        lease: JsonObject | None = decoded(record) if record is not None else None
        metadata: JsonObject = (
            lease["metadata"]
            if lease is not None
            else {
                "name": self._name,
                "namespace": NAMESPACE,
                "uid": self._cluster.new_uid(),
                "creationTimestamp": self._cluster.now(),
            }
        )
        metadata |= {"labels": LABELS, "annotations": {ADDRESS: f"{self._at.ip}:{self._at.port}"}}
        now = rfc3339_micro(self._cluster.clock())
        spec = {"holderIdentity": self._identity, "leaseDurationSeconds": round(GONE_S), "renewTime": now}
        return body_of({"metadata": metadata, "spec": spec}, version)

    def _removed(self, record: Record | None, version: int) -> Decision:
        if record is None or decoded(record)["spec"].get("holderIdentity") != self._identity:
            return None
        return Delete(body_of(decoded(record), version))
