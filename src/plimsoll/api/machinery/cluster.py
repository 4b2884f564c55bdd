"""What every handler works with: the store, the profile and its gates, the clock; and the keys of objects in the store.

A key is `<group>/<resource>/<namespace>/<name>` of the resource in which the object is stored, so both API groups of
events have the same keys.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from plimsoll.api.machinery.alike import READ, AlikePods
from plimsoll.api.machinery.catalog import Catalog
from plimsoll.api.machinery.kinds import ApiResource, stored_resource
from plimsoll.api.machinery.node_graph import NodeGraph
from plimsoll.api.machinery.role_index import RoleIndex
from plimsoll.api.machinery.rounds import Worker
from plimsoll.api.machinery.service_addresses import ServiceAddresses
from plimsoll.api.machinery.shared_lines import SharedLines
from plimsoll.codec.schema.releases import release_of
from plimsoll.codec.schema.schema import SchemaKind, schema
from plimsoll.rules.admission.pod_security import DEFAULT_POD_SECURITY, PodSecurity
from plimsoll.rules.admission.service_addresses import DEFAULT_RANGES, ServiceRanges
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.gates import resolved_gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import Profile
from plimsoll.rules.timestamps import Clock, rfc3339
from plimsoll.store.cache import Counted
from plimsoll.store.records import Record
from plimsoll.store.store import Store

_SUFFIX_LETTERS = b"bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
# Of a random byte. The last few have none, so that all letters are equally likely.
_LETTER_OF = bytes(_SUFFIX_LETTERS[byte % len(_SUFFIX_LETTERS)] for byte in range(256))
_NO_LETTER = bytes(range(256 - 256 % len(_SUFFIX_LETTERS), 256))
_POLICIES = 1024  # decoded policies in the cache
_UID_BYTES = 16
_RESOURCES = 512  # in caches: those of definitions come and go
_decode = msgspec.json.Decoder().decode


class Limits(msgspec.Struct, frozen=True):
    """The limits of one server; beyond them it answers 429 or refuses the write.

    A limited user is anyone but administrators, nodes and the control plane itself, as in API Priority and Fairness.
    """

    body_bytes: int = 3 * 1024 * 1024
    objects: int = 200_000
    watchers: int = 10_000
    requests_per_s: float = 5_000.0
    burst: int = 10_000
    in_flight: int = 800  # requests of limited users that are not watches
    large_body_bytes: int = 64 * 1024 * 1024  # bodies of long requests of limited users that are in memory
    connections: int = 12_000  # each watcher is one
    # Of one limited user. A request costs 1 of the rate, one that reads many objects more (`fairness`).
    user_per_s: float = 500.0
    user_burst: int = 1_000
    user_seats: int = 4  # long requests at a time
    user_waiting: int = 32  # long requests that wait for a seat
    user_watches: int = 500
    user_connections: int = 600
    review_bytes: int = 64 * 1024  # of a body from a user who may only read
    event_ttl_s: float = 3600.0  # after an event was last observed


DEFAULT_LIMITS = Limits()


class Cluster:
    def __init__(
        self,
        store: Store,
        profile: Profile,
        gates: Mapping[str, bool] | None = None,
        *,
        clock: Clock = time.time,
        limits: Limits = DEFAULT_LIMITS,
        services: ServiceRanges = DEFAULT_RANGES,
        root_ca: str = "",
        pod_security: PodSecurity = DEFAULT_POD_SECURITY,
    ) -> None:
        self.store = store
        self.profile = profile
        self.release = release_of(profile)
        feature_gates = gates if gates is not None else default_config(profile).feature_gates
        self.clock = clock
        self.catalog = Catalog(self.release)
        self._policies: dict[str, tuple[Record, JsonObject]] = {}  # by key
        self._policy_lists: dict[tuple[str, str], tuple[int, list[JsonObject]]] = {}  # by storage and namespace
        self._policy_places: dict[tuple[str, str], tuple[str, Counted]] = {}
        self.limits = limits
        self.root_ca = root_ca
        self.roles = RoleIndex(store)
        self.pod_security = msgspec.structs.replace(pod_security, newest=profile.pod_security_minor)
        self.node_graph = NodeGraph(store, prefix(stored_resource("pods")))
        self.service_addresses = ServiceAddresses(store, prefix(stored_resource("services")), services)
        self.alike_pods = AlikePods([store.changes_of(prefix(stored_resource(each))) for each in READ])
        self.in_place = feature_gates["InPlacePodVerticalScaling"]
        self.gates = resolved_gates(feature_gates, profile)
        self.worker = Worker("large-documents")
        self.expressions = Worker("expressions")  # that take long: of policies, webhooks, custom kinds
        self.shared_lines = SharedLines()
        self._random = b""

    def now(self) -> str:
        return rfc3339(self.clock())

    def new_uid(self) -> str:
        """A random UUID (RFC 4122, version 4)."""
        taken = self._random_bytes(_UID_BYTES)
        text = taken.hex()
        variant = "89ab"[taken[8] >> 6]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"

    def generated_name(self, prefix: str) -> str:
        """`prefix` and five letters; a long prefix is cut so that the result is a valid name."""
        letters = ""
        while len(letters) < _SUFFIX_LENGTH:
            letters += self._random_bytes(_SUFFIX_LENGTH).translate(_LETTER_OF, _NO_LETTER).decode()
        return prefix[: 63 - _SUFFIX_LENGTH] + letters[:_SUFFIX_LENGTH]

    def _random_bytes(self, count: int) -> bytes:
        """The kernel is asked for those of many objects at once."""
        if len(self._random) < count:
            self._random = os.urandom(_UID_BYTES * 64)
        taken, self._random = self._random[:count], self._random[count:]
        return taken

    def policies(self, storage: str, namespace: str = "") -> list[JsonObject]:
        """Committed objects like `documents`, cached, of kinds that are few and read with every write. Do not change
        them: the next caller gets the same."""
        place = (storage, namespace)
        found_at = self._policy_places.get(place)
        if found_at is None:
            if len(self._policy_places) >= _POLICIES:
                self._policy_places.clear()
            where = prefix(stored_resource(storage), namespace)
            found_at = self._policy_places[place] = where, self.store.changes_of(where)
        where, counted = found_at
        changes = counted.end
        cached = self._policy_lists.get(place)
        if cached is None or cached[0] != changes:
            if len(self._policy_lists) >= _POLICIES:
                self._policy_lists.clear()
            found = [self._policy(record) for record in self.store.list(where)[1]]
            cached = self._policy_lists[place] = changes, found
        return cached[1]

    def _policy(self, record: Record) -> JsonObject:
        cached = self._policies.get(record.key)
        if cached is None or cached[0] is not record:
            if len(self._policies) >= _POLICIES:
                self._policies.clear()
            cached = self._policies[record.key] = record, decoded(record)
        return cached[1]

    def document(self, storage: str, namespace: str, name: str) -> JsonObject | None:
        """A committed object, decoded."""
        record = self.store.get(key(stored_resource(storage), namespace, name))
        return None if record is None else decoded(record)

    def documents(self, storage: str, namespace: str = "") -> list[JsonObject]:
        """Committed objects of one namespace, or of all,"""
        _, records = self.store.list(prefix(stored_resource(storage), namespace))
        return [decoded(record) for record in records]


def decoded(record: Record) -> JsonObject:
    document: JsonObject = _decode(record.body)
    return document


@lru_cache(_RESOURCES)
def _storage_path(resource: ApiResource) -> str:
    if resource.custom is not None:
        return f"{resource.group}/{resource.plural}/"
    owner = stored_resource(resource.storage)
    return f"{owner.group}/{owner.plural}/"


def key(resource: ApiResource, namespace: str, name: str) -> str:
    return f"{_storage_path(resource)}{namespace}/{name}"


def prefix(resource: ApiResource, namespace: str = "") -> str:
    """Of all objects, or of those in one namespace."""
    return f"{_storage_path(resource)}{namespace}/" if namespace else _storage_path(resource)


@lru_cache(_RESOURCES)
def kind_of(resource: ApiResource) -> SchemaKind:
    """The schema of what this resource returns and accepts."""
    if resource.custom is not None:
        return resource.custom.kind
    return schema(resource.group_version, resource.kind)
