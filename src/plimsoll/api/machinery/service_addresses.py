"""Which cluster IPs and node ports are in use: read from the stored Services, which are the only record of them.

So a restart needs no repair, and a deletion frees at once. What has been chosen is reserved until its service is
stored (`release`).
"""

from __future__ import annotations

import secrets

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.admission.service_addresses import ServiceRanges, Used, allocated, cluster_ips, node_ports
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.store.records import Record
from plimsoll.store.store import Store


class _Service(msgspec.Struct):
    spec: JsonObject = {}


_SERVICE = msgspec.json.Decoder(_Service)


class ServiceAddresses:
    def __init__(self, store: Store, prefix: str, ranges: ServiceRanges) -> None:
        self._store, self._prefix, self.ranges = store, prefix, ranges
        self._known: dict[str, tuple[Record, tuple[str, ...], tuple[int, ...]]] = {}  # by key
        self._reserved: dict[str | int, str] = {}  # address or port → the service's uid

    def allocate(
        self, service: JsonObject, old: JsonObject | None, *, dry_run: bool
    ) -> tuple[JsonObject, tuple[FieldError, ...]]:
        """The service with its addresses and ports, or what is wrong with those that it requests."""
        uid = service["metadata"]["uid"]
        done = allocated(service, old, self._used(uid, old), self.ranges, secrets.randbelow)
        if not done.errors and not dry_run:
            self._reserved |= dict.fromkeys(cluster_ips(done.service), uid)
            self._reserved |= dict.fromkeys(node_ports(done.service), uid)
        return done.service, done.errors

    def release(self, uid: str) -> None:
        """After the write of this service, whether it succeeded or not."""
        if self._reserved:
            self._reserved = {each: owner for each, owner in self._reserved.items() if owner != uid}

    def _used(self, uid: str, old: JsonObject | None) -> Used:
        _, records = self._store.list(self._prefix)
        known = self._known
        addresses: set[str] = set()
        ports: set[int] = set()
        found = {}
        for record in records:
            entry = known.get(record.key)
            if entry is None or entry[0] is not record:
                service = {"spec": _SERVICE.decode(record.body).spec}
                entry = record, tuple(cluster_ips(service)), tuple(node_ports(service))
            found[record.key] = entry
            addresses.update(entry[1])
            ports.update(entry[2])
        self._known = found
        for each, owner in self._reserved.items():
            if owner == uid:
                continue
            if isinstance(each, str):
                addresses.add(each)
            else:
                ports.add(each)
        if old is not None:
            addresses -= set(cluster_ips(old))
            ports -= set(node_ports(old))
        return Used(addresses, ports)
