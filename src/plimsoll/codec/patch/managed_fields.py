"""Field ownership: metadata.managedFields, and how it follows writes that are not server-side apply.

A manager is identified by its name, the operation (Apply or Update), the subresource and, for updates, the API version.
The manager of an update owns what it changes or adds, alone; what it removes has no owner. Identity and bookkeeping of
the object (name, uid, resourceVersion …) have no owner, nor have fields that a write cannot change: status through the
main resource, spec through /status (`_written`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from plimsoll.codec.patch import field_sets
from plimsoll.codec.patch.list_types import root_shape
from plimsoll.codec.patch.merge import Comparison, compare, set_fields
from plimsoll.codec.schema.custom import CustomKind
from plimsoll.codec.schema.decode import decode_document
from plimsoll.codec.schema.schema import SchemaKind
from plimsoll.rules.model.json_object import JsonObject

APPLY, UPDATE = "Apply", "Update"
BEFORE_FIRST_APPLY = "before-first-apply"
MAX_UPDATE_ENTRIES = 10
_ANCIENT = "ancient-changes"
_BOOKKEEPING = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
)  # fmt: skip
_NEVER_OWNED = field_sets.from_paths(
    ("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in _BOOKKEEPING)
)
_STATUS = ("f:status",)
_SPEC = ("f:spec",)
_NOT_BY_STATUS: dict[str, tuple[field_sets.Path, ...]] = {
    "Pod": (("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")),
    "Deployment": (("f:metadata", "f:labels"),),
}
_RESIZED = frozenset({"f:name", "f:resources", "f:resizePolicy"})


class Manager(msgspec.Struct, frozen=True, order=True):
    operation: str
    name: str
    api_version: str = ""  # of an update; an applier is the same for every version
    subresource: str = ""


class FieldOwner(msgspec.Struct, frozen=True):
    """The fields of a manager. `api_version` is that of its last write."""

    fields: field_sets.FieldSet
    api_version: str
    time: str = ""


Owners = dict[Manager, FieldOwner]


def read_owners(entries: Any) -> Owners:
    """The entries of metadata.managedFields; invalid entries are ignored."""
    owners: Owners = {}
    for entry in entries or ():
        if not isinstance(entry, dict) or entry.get("operation") not in (APPLY, UPDATE):
            continue
        fields = entry.get("fieldsV1")
        if not isinstance(fields, dict):
            continue
        version = str(entry.get("apiVersion") or "")
        operation = entry["operation"]
        manager = Manager(
            operation,
            str(entry.get("manager") or ""),
            version if operation == UPDATE else "",
            str(entry.get("subresource") or ""),
        )
        owners[manager] = FieldOwner(fields, version, str(entry.get("time") or ""))
    return owners


def write_owners(owners: Owners) -> list[JsonObject]:
    """Entries in Kubernetes' order: appliers first, then by time and name."""

    def rank(item: tuple[Manager, FieldOwner]) -> tuple[str, ...]:
        manager, owner = item
        return manager.operation, owner.time, manager.name, owner.api_version, manager.subresource

    entries = []
    for manager, owner in sorted(owners.items(), key=rank):
        entry: JsonObject = {"manager": manager.name, "operation": manager.operation, "apiVersion": owner.api_version}
        if owner.time:
            entry["time"] = owner.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": owner.fields}
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return entries


def track_update(
    kind: SchemaKind, before: JsonObject | None, after: JsonObject, manager: str, subresource: str, now: str
) -> JsonObject:
    """`after` with updated managedFields for a write that is not apply. `before` is the stored object (None on create);
    `now` is RFC 3339 UTC. Call it on the defaulted object, before admission adds its own fields (E2)."""
    sent = (after.get("metadata") or {}).get("managedFields")
    if before is None and not subresource:
        return with_owners(after, _creator(kind, after, manager, now))
    owners = _sent_or_live(sent, before, subresource)
    if owners or before is None:
        changes = changed_fields(kind, before, after, subresource)
        owners = updated(owners, changes, Manager(UPDATE, manager, kind.api_version, subresource), now)
    return with_owners(after, owners)


def _creator(kind: SchemaKind, after: JsonObject, manager: str, now: str) -> Owners:
    """The creator of an object owns all fields that it sets; the same as `updated` from an empty object, in one
    walk."""
    sent = {name: value for name, value in after.items() if name not in ("kind", "apiVersion", "metadata")}
    if not _may_write_status(kind):
        sent.pop("status", None)
    metadata = after.get("metadata") or {}
    sent["metadata"] = {name: value for name, value in metadata.items() if name not in _BOOKKEEPING}
    own = set_fields(root_shape(kind), empty_object(kind), sent)
    return {Manager(UPDATE, manager, kind.api_version): FieldOwner(own, kind.api_version, now)} if own else {}


def _sent_or_live(sent: Any, before: JsonObject | None, subresource: str) -> Owners:
    """An update may rewrite the owners, except through a subresource; `[]` and `[{}]` clear them."""
    live = ((before or {}).get("metadata") or {}).get("managedFields")
    if before is None or (subresource and sent is not None):
        return read_owners(live)
    if sent in ([], [{}]):
        return {}
    return read_owners(sent) or read_owners(live)


def updated(owners: Owners, changes: Comparison, manager: Manager, now: str) -> Owners:
    """The owners after an update with these changes."""
    taken = field_sets.union(changes.modified, changes.added)
    gone = field_sets.union(taken, changes.removed)
    if not gone:
        return owners
    result = lose(owners, gone)
    own = field_sets.difference(taken, _NEVER_OWNED)
    if own:
        owned = result[manager].fields if manager in result else field_sets.EMPTY
        result[manager] = FieldOwner(field_sets.in_order(field_sets.union(owned, own)), manager.api_version, now)
    return _capped(result)


def lose(owners: Owners, fields: field_sets.FieldSet) -> Owners:
    """Owners without these fields; an owner without fields is dropped."""
    result: Owners = {}
    for manager, owner in owners.items():
        remaining = field_sets.difference(owner.fields, fields)
        if remaining is owner.fields:
            result[manager] = owner
        elif remaining:
            result[manager] = FieldOwner(remaining, owner.api_version, owner.time)
    return result


def _capped(owners: Owners) -> Owners:
    """At most ten updaters have entries of their own; the oldest are merged into one."""
    updaters = sorted((owner.time, manager) for manager, owner in owners.items() if manager.operation == UPDATE)
    excess = len(updaters) - MAX_UPDATE_ENTRIES
    if excess <= 0:
        return owners
    result = dict(owners)
    oldest: dict[str, list[FieldOwner]] = {}  # by API version, in the order of their times
    for _, manager in updaters[: excess + 1]:
        owner = result.pop(manager)
        oldest.setdefault(owner.api_version, []).append(owner)
    for version, some in oldest.items():
        ancient = Manager(UPDATE, _ANCIENT, version)
        parts = [*([result[ancient]] if ancient in result else []), *some]
        fields = field_sets.in_order(field_sets.union(*(owner.fields for owner in parts)))
        result[ancient] = FieldOwner(fields, version, some[-1].time)
    return result


def with_owners(document: JsonObject, owners: Owners) -> JsonObject:
    metadata = {name: value for name, value in (document.get("metadata") or {}).items() if name != "managedFields"}
    if owners:
        metadata["managedFields"] = write_owners(owners)
    return {**document, "metadata": metadata}


def without_owners(document: JsonObject) -> JsonObject:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return document
    return {**document, "metadata": {name: each for name, each in metadata.items() if name != "managedFields"}}


def same_but_times(before: JsonObject, after: JsonObject) -> bool:
    """Whether only the times in managedFields differ: then the stored object stays."""

    def timeless(document: JsonObject) -> JsonObject:
        entries = (document.get("metadata") or {}).get("managedFields") or ()
        bare = [{name: value for name, value in entry.items() if name != "time"} for entry in entries]
        return {**document, "metadata": {**(document.get("metadata") or {}), "managedFields": bare}}

    return timeless(before) == timeless(after)


def changed_fields(kind: SchemaKind, before: JsonObject | None, after: JsonObject, subresource: str) -> Comparison:
    """What a write changed, without what it cannot change."""
    if before is not None and subresource == "resize":
        # This endpoint writes only the spec.
        old, new = ({"spec": each.get("spec")} for each in (before, after))
    else:
        old, new = empty_object(kind) if before is None else without_owners(before), without_owners(after)
    return within(kind, subresource, compare(root_shape(kind), old, new))


def empty_object(kind: SchemaKind) -> JsonObject:
    """The object that a create starts from: fields that are always printed exist already, so they have no owner."""
    return decode_document(kind, {}).document if isinstance(kind, CustomKind) else _empty_object(kind)


@cache
def _empty_object(kind: SchemaKind) -> JsonObject:
    return decode_document(kind, {}).document


def _may_write_status(kind: SchemaKind) -> bool:
    """Through the object itself: only where /status is not served."""
    return isinstance(kind, CustomKind) and not kind.has_status


def within(kind: SchemaKind, subresource: str, changes: Comparison) -> Comparison:
    return Comparison(
        *(_written(kind, subresource, each) for each in (changes.removed, changes.modified, changes.added))
    )


def owned_within(kind: SchemaKind, subresource: str, fields: field_sets.FieldSet) -> field_sets.FieldSet:
    """The part of an applied set that this endpoint writes, without fields that have no owner."""
    return field_sets.in_order(_written(kind, subresource, field_sets.difference(fields, _NEVER_OWNED)))


def _written(kind: SchemaKind, subresource: str, fields: field_sets.FieldSet) -> field_sets.FieldSet:
    """The fields that a write to this endpoint can change."""
    if not fields:
        return fields
    if subresource == "resize":
        return field_sets.filtered(fields, _is_resized)
    if subresource == "status":
        fields = field_sets.without_branch(fields, _SPEC)
        for path in _NOT_BY_STATUS.get(kind.name, ()):
            fields = field_sets.without_branch(fields, path)
        return fields
    return fields if subresource or _may_write_status(kind) else field_sets.without_branch(fields, _STATUS)


def _is_resized(path: field_sets.Path) -> bool:
    """Resources and resize policies of containers, and of the pod."""
    if path[:2] == ("f:spec", "f:resources"):
        return True
    if path[:2] not in (("f:spec", "f:containers"), ("f:spec", "f:initContainers")):
        return False
    return len(path) == 3 or (len(path) > 3 and path[3] in _RESIZED)
