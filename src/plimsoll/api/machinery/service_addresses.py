"""Which cluster IPs and node ports are in use: read from the stored Services, which are the only record of them.

So a restart needs no repair, and a deletion frees at once. What has been chosen is reserved until its service is
stored (`release`). Several servers on one store also claim it: an object for each address and port, named after it and
created only where there is none, as IPAddress objects are in Kubernetes. A claim goes with its service; what a server
leaves behind that is killed in between, the leader removes (`surplus`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Collection, Sequence

import msgspec

from plimsoll.api.machinery.metadata import body_of
from plimsoll.errors import FieldError
from plimsoll.rules.admission.service_addresses import ServiceRanges, Used, allocated, cluster_ips, node_ports
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.store.errors import StoreError
from plimsoll.store.records import Decision, Delete, Record
from plimsoll.store.store import Store

CLAIMS = "plimsoll.dev/serviceaddresses/"
CLAIM_S = 120.0  # from a claim to its service, at most: webhooks are asked in between
_WAIT_S = 2.0  # for a claim whose service has just been deleted

log = logging.getLogger("plimsoll.api")


class _Named(msgspec.Struct):
    uid: str = ""


class _Service(msgspec.Struct):
    metadata: _Named
    spec: JsonObject = {}


class _Owner(msgspec.Struct):
    uid: str


class _Claim(msgspec.Struct):
    spec: _Owner


_SERVICE = msgspec.json.Decoder(_Service)
_CLAIM = msgspec.json.Decoder(_Claim)


class UnclaimedError(Exception):
    """What was chosen has to be claimed before it is used: see `ServiceAddresses.claim`."""

    def __init__(self, uid: str, names: Sequence[str]) -> None:
        super().__init__(f"{', '.join(names)} for {uid}")
        self.uid, self.names = uid, names


class _Known(msgspec.Struct, frozen=True):
    """A stored service."""

    record: Record
    uid: str
    addresses: tuple[str, ...]
    ports: tuple[int, ...]


def names_of(service: JsonObject) -> list[str]:
    """Of the claims of a service."""
    return [*cluster_ips(service), *map(str, node_ports(service))]


class ServiceAddresses:
    def __init__(self, store: Store, prefix: str, ranges: ServiceRanges) -> None:
        self._store, self._prefix, self.ranges = store, prefix, ranges
        self._known: dict[str, _Known] = {}  # by key
        self._claims: dict[str, tuple[Record, str]] = {}  # by key: with the service's uid
        self._since: dict[str, tuple[int, float, bool]] = {}  # a claim's version, since when; whether it was in use
        self._reserved: dict[str | int, str] = {}  # address or port → the service's uid

    def allocate(
        self, service: JsonObject, old: JsonObject | None, *, dry_run: bool
    ) -> tuple[JsonObject, tuple[FieldError, ...]]:
        """The service with its addresses and ports, or what is wrong with those that it requests.

        Raises UnclaimedError; after `claim` the same choice is made again, unless another server was faster.
        """
        uid = service["metadata"]["uid"]
        choose = random.Random(uid).randrange if self._store.is_shared else secrets.randbelow
        done = allocated(service, old, self._used(uid, old), self.ranges, choose)
        if not done.errors and not dry_run:
            self._reserved |= dict.fromkeys(cluster_ips(done.service), uid)
            self._reserved |= dict.fromkeys(node_ports(done.service), uid)
            if self._store.is_shared and (names := self._unclaimed(uid, done.service, old)):
                raise UnclaimedError(uid, names)
        return done.service, done.errors

    def release(self, uid: str) -> None:
        """After the write of this service, whether it succeeded or not."""
        if self._reserved:
            self._reserved = {each: owner for each, owner in self._reserved.items() if owner != uid}

    async def claim(self, wanted: UnclaimedError) -> None:
        """Claim what was chosen. Where another server was faster, the next `allocate` knows it."""
        for name in wanted.names:
            end = time.monotonic() + _WAIT_S
            while await self._owner_after_claim(name, wanted.uid) not in self._stored_uids(wanted.uid):
                if time.monotonic() >= end:
                    break
                await asyncio.sleep(_WAIT_S / 20)  # its service is deleted, or on its way

    async def give_back(self, uid: str, names: Collection[str]) -> None:
        """After a service was deleted or refused, or no longer needs these. What fails here, the leader does later."""
        if not self._store.is_shared:
            return
        for name in names:
            try:
                await self._store.change(f"{CLAIMS}/{name}", lambda record, version: _removed(record, version, uid))
            except StoreError as error:
                log.warning("the claim of %s is not removed: %s", name, error)

    def surplus(self) -> tuple[list[tuple[str, str]], bool]:
        """Claims whose service is gone, as name and uid; and whether there are others that may become so."""
        self._refresh()
        used = {(known.uid, name) for known in self._known.values() for name in _names(known)}
        now, since, found = time.monotonic(), dict[str, tuple[int, float, bool]](), list[tuple[str, str]]()
        for key, (record, uid) in self._claims.items():
            name = key.rpartition("/")[2]
            before = self._since.get(key)
            began, was_used = (before[1], before[2]) if before and before[0] == record.version else (now, False)
            is_used = (uid, name) in used
            since[key] = record.version, began, was_used or is_used
            if not is_used and (was_used or now - began >= CLAIM_S):
                found.append((name, uid))
        self._since = since
        return found, any(not was_used for _, _, was_used in since.values())

    async def _owner_after_claim(self, name: str, uid: str) -> str:
        def decide(record: Record | None, version: int) -> Decision:
            return body_of({"metadata": {"name": name}, "spec": {"uid": uid}}, version) if record is None else None

        record = await self._store.change(f"{CLAIMS}/{name}", decide)
        return uid if record is None else _CLAIM.decode(record.body).spec.uid

    def _stored_uids(self, own: str) -> set[str]:
        self._refresh()
        return {own, *(known.uid for known in self._known.values())}

    def _unclaimed(self, uid: str, service: JsonObject, old: JsonObject | None) -> list[str]:
        kept = set(names_of(old or {}))
        claimed = {key.rpartition("/")[2] for key, (_, owner) in self._claims.items() if owner == uid}
        return [name for name in dict.fromkeys(names_of(service)) if name not in kept and name not in claimed]

    def _refresh(self) -> None:
        """Read what has changed in the store."""
        known, claims = self._known, self._claims
        self._known, self._claims = {}, {}
        for record in self._store.list(self._prefix)[1]:
            entry = known.get(record.key)
            if entry is None or entry.record is not record:
                found = _SERVICE.decode(record.body)
                service = {"spec": found.spec}
                entry = _Known(record, found.metadata.uid, tuple(cluster_ips(service)), tuple(node_ports(service)))
            self._known[record.key] = entry
        if self._store.is_shared:
            for record in self._store.list(CLAIMS)[1]:
                claim = claims.get(record.key)
                if claim is None or claim[0] is not record:
                    claim = record, _CLAIM.decode(record.body).spec.uid
                self._claims[record.key] = claim

    def _used(self, uid: str, old: JsonObject | None) -> Used:
        self._refresh()
        addresses = {address for known in self._known.values() for address in known.addresses}
        ports = {port for known in self._known.values() for port in known.ports}
        taken: list[str | int] = [each for each, owner in self._reserved.items() if owner != uid]
        for key, (_, owner) in self._claims.items():
            name = key.rpartition("/")[2]
            if owner != uid:
                taken.append(int(name) if name.isdecimal() else name)
        addresses.update(each for each in taken if isinstance(each, str))
        ports.update(each for each in taken if isinstance(each, int))
        if old is not None:
            addresses -= set(cluster_ips(old))
            ports -= set(node_ports(old))
        return Used(addresses, ports)


def _names(known: _Known) -> list[str]:
    return [*known.addresses, *map(str, known.ports)]


def _removed(record: Record | None, version: int, uid: str) -> Decision:
    """Where it is still this service's."""
    if record is None or _CLAIM.decode(record.body).spec.uid != uid:
        return None
    return Delete(body_of(msgspec.json.decode(record.body), version))
