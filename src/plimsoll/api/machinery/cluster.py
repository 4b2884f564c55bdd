"""What every handler works with: the store, the profile and its gates, the clock; and where objects lie in the store.

A key is `<group>/<resource>/<namespace>/<name>` in the words of the resource that the shelf belongs to, so both views
of an event have the same key.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Mapping
from functools import cache

import msgspec

from plimsoll.api.machinery.kinds import ApiResource, stored_resource
from plimsoll.codec.schema.schema import SchemaKind, schema
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.gates import resolved_gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import Profile
from plimsoll.rules.timestamps import Clock, rfc3339
from plimsoll.store.records import Record
from plimsoll.store.store import Store

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_POLICIES = 1024  # decoded ones that are kept
_decode = msgspec.json.Decoder().decode


class Limits(msgspec.Struct, frozen=True):
    """What one server takes on; beyond it clients are told to come back or to ask for less."""

    body_bytes: int = 3 * 1024 * 1024
    objects: int = 200_000
    watchers: int = 10_000
    requests_per_s: float = 5_000.0
    burst: int = 10_000
    in_flight: int = 800  # requests that are not watches
    connections: int = 12_000  # each watcher is one


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
    ) -> None:
        self.store = store
        self.profile = profile
        feature_gates = gates if gates is not None else default_config(profile).feature_gates
        self.clock = clock
        self._policies: dict[str, tuple[Record, JsonObject]] = {}  # by key
        self.limits = limits
        self.in_place = feature_gates["InPlacePodVerticalScaling"]
        self.gates = resolved_gates(feature_gates)

    def now(self) -> str:
        return rfc3339(self.clock())

    def new_uid(self) -> str:
        return str(uuid.uuid4())

    def generated_name(self, prefix: str) -> str:
        """`prefix` and five letters; a long prefix is cut so that the whole is a name."""
        suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
        return prefix[: 63 - _SUFFIX_LENGTH] + suffix

    def policies(self, storage: str, namespace: str = "") -> list[JsonObject]:
        """Committed objects as `documents`, of a kind that is few and asked for with every write. Not to be changed:
        who asks next gets the same."""
        _, records = self.store.list(prefix(stored_resource(storage), namespace))
        return [self._policy(record) for record in records]

    def _policy(self, record: Record) -> JsonObject:
        found = self._policies.get(record.key)
        if found is None or found[0] is not record:
            if len(self._policies) >= _POLICIES:
                self._policies.clear()
            found = self._policies[record.key] = record, decoded(record)
        return found[1]

    def document(self, storage: str, namespace: str, name: str) -> JsonObject | None:
        """A committed object, decoded."""
        record = self.store.get(key(stored_resource(storage), namespace, name))
        return None if record is None else decoded(record)

    def documents(self, storage: str, namespace: str = "") -> list[JsonObject]:
        """Committed objects of one namespace, or of all."""
        _, records = self.store.list(prefix(stored_resource(storage), namespace))
        return [decoded(record) for record in records]


def decoded(record: Record) -> JsonObject:
    document: JsonObject = _decode(record.body)
    return document


@cache
def _shelf(resource: ApiResource) -> str:
    owner = stored_resource(resource.storage)
    return f"{owner.group}/{owner.plural}/"


def key(resource: ApiResource, namespace: str, name: str) -> str:
    return f"{_shelf(resource)}{namespace}/{name}"


def prefix(resource: ApiResource, namespace: str = "") -> str:
    """Of all objects, or of those in one namespace."""
    return f"{_shelf(resource)}{namespace}/" if namespace else _shelf(resource)


@cache
def kind_of(resource: ApiResource) -> SchemaKind:
    """The schema of what this resource sends and takes."""
    return schema(resource.group_version, resource.kind)
