"""Server-side apply (05 B6): the applied document contains all fields that the applier manages, and the server records
them.

Applied fields are merged over the live object. Fields of the last apply that are missing now are removed, unless
another manager owns them. Then the result is compared with the live object: changes of fields of other managers are
conflicts, unless forced; the applier owns exactly what it applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from plimsoll.codec.golang.fmt import go_syntax
from plimsoll.codec.patch import field_sets, managed_fields
from plimsoll.codec.patch.list_types import Shape, root_shape
from plimsoll.codec.patch.merge import compare, field_set, merged, with_named_fields, without
from plimsoll.codec.schema.releases import NO_NEWER, Newer
from plimsoll.codec.schema.schema import SchemaKind
from plimsoll.errors import StructuredError
from plimsoll.rules.model.json_object import JsonObject

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"


class Conflict(msgspec.Struct, frozen=True):
    field: str  # `.data.y`
    message: str  # `conflict with "kubectl-edit" using v1`
    manager: managed_fields.Manager
    path: field_sets.Path


class ApplyConflictError(StructuredError):
    """409 Conflict; `str()` is the text of the Status, each Conflict one cause FieldManagerConflict."""

    conflicts: tuple[Conflict, ...]

    def __str__(self) -> str:
        return _message(self.conflicts)


class ApplyError(StructuredError):
    """An applied document that does not match the schema: 500 without reason; `message` is the text of the Status."""

    message: str


def apply_server_side(
    kind: SchemaKind,
    live: JsonObject | None,
    applied: JsonObject,
    manager: str,
    *,
    force: bool,
    subresource: str,
    now: str,
    newer: Newer = NO_NEWER,
) -> JsonObject:
    """The merged object with managedFields; `live` None creates; `newer`: fields that the release does not have. The
    caller decodes, defaults and validates the result; if then only times in managedFields differ (`same_but_times`), it
    is not stored. Raises ApplyConflictError, ApplyError."""
    _check(kind, applied, newer)
    shape = root_shape(kind)
    owners = managed_fields.read_owners(((live or {}).get("metadata") or {}).get("managedFields"))
    old = managed_fields.empty_object(kind) if live is None else managed_fields.without_owners(live)
    if live is not None and not owners:
        first = managed_fields.Manager(managed_fields.UPDATE, managed_fields.BEFORE_FIRST_APPLY, kind.api_version)
        owners = managed_fields.updated(owners, managed_fields.changed_fields(kind, None, old, ""), first, now)
    applier = managed_fields.Manager(managed_fields.APPLY, manager, subresource=subresource)
    last = owners[applier].fields if applier in owners else field_sets.EMPTY
    wanted = managed_fields.owned_within(kind, subresource, field_set(shape, applied))
    time = owners[applier].time if applier in owners else ""
    claimed = {**owners, applier: managed_fields.FieldOwner(wanted, kind.api_version, time)}
    new = _pruned(shape, merged(shape, old, applied), claimed, last)
    changes = managed_fields.within(kind, subresource, compare(shape, old, new))
    changed = field_sets.union(changes.modified, changes.added)
    conflicts = _conflicts(claimed, changed, applier)
    if conflicts and not force:
        _refuse(kind, old, manager, conflicts)
    others = {each: owner for each, owner in claimed.items() if each != applier}
    result = managed_fields.lose(others, field_sets.union(changes.removed, changed))
    if changes.removed or changed:
        time = now
    left = field_sets.difference(wanted, changes.removed)
    if left:
        result[applier] = managed_fields.FieldOwner(left, kind.api_version, time)
    return managed_fields.with_owners(_with_last_applied(old, new, applied, manager), result)


def _pruned(shape: Shape, new: Any, owners: managed_fields.Owners, last: field_sets.FieldSet) -> JsonObject:
    """Without the fields that the applier removed, except those of other managers and those it may not remove."""
    if not last:
        result: JsonObject = new
        return result
    removed_fields = with_named_fields(shape, last)
    kept = field_set(shape, without(shape, new, removed_fields) or {})
    everything = with_named_fields(shape, field_set(shape, new))
    retained = field_sets.union(kept, *(owner.fields for owner in owners.values()))
    removable = field_sets.difference(everything, with_named_fields(shape, retained))
    pruned = without(shape, new, removable) or {}
    dangling = field_sets.difference(everything, with_named_fields(shape, field_set(shape, pruned)))
    result = without(shape, new, field_sets.intersection(dangling, removed_fields)) or {}
    return result


def _conflicts(
    owners: managed_fields.Owners, changed: field_sets.FieldSet, applier: managed_fields.Manager
) -> tuple[Conflict, ...]:
    return tuple(
        Conflict(field_sets.written_path(path), f"conflict with {_named(manager)}", manager, path)
        for manager, owner in sorted(owners.items(), key=lambda item: item[0])
        if manager != applier
        for path in field_sets.paths(field_sets.intersection(owner.fields, changed))
    )


def _refuse(kind: SchemaKind, live: JsonObject, manager: str, conflicts: tuple[Conflict, ...]) -> None:
    """Conflicts with the fields of kubectl's own client-side apply do not count."""
    if manager == _KUBECTL:
        allowed = _client_side(kind, live)
        conflicts = tuple(
            each for each in conflicts if field_sets.difference(field_sets.from_paths(each.path), allowed)
        )
    if conflicts:
        raise ApplyConflictError(conflicts)


def _client_side(kind: SchemaKind, live: JsonObject) -> field_sets.FieldSet:
    """The fields that client-side apply set, if they still have that value."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        document = msgspec.json.decode(text or "null", type=dict[str, Any] | None)
    except msgspec.DecodeError:
        return field_sets.EMPTY
    if document is None:
        return field_sets.EMPTY
    shape = root_shape(kind)
    changed = compare(shape, live, document)
    return field_sets.difference(field_set(shape, document), field_sets.union(changed.modified, changed.added))


def _with_last_applied(live: JsonObject, new: JsonObject, applied: JsonObject, manager: str) -> JsonObject:
    """kubectl's own applies update the annotation of client-side apply, if there is one."""
    metadata = new.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    had = LAST_APPLIED in ((live.get("metadata") or {}).get("annotations") or {})
    if manager != _KUBECTL or not had or LAST_APPLIED not in annotations:
        return new
    text = msgspec.json.encode(managed_fields.without_owners(applied), order="sorted").decode() + "\n"
    return {**new, "metadata": {**metadata, "annotations": {**annotations, LAST_APPLIED: text}}}


def _named(manager: managed_fields.Manager) -> str:
    text = msgspec.json.encode(manager.name).decode()
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    return f"{text} using {manager.api_version}" if manager.operation == managed_fields.UPDATE else text


def _message(conflicts: tuple[Conflict, ...]) -> str:
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: {conflicts[0].message}: {conflicts[0].field}"
    lines = []
    for manager, theirs in groupby(sorted(conflicts, key=attrgetter("manager")), attrgetter("manager")):
        lines.append(f"conflicts with {_named(manager)}:")
        lines += (f"- {each.field}" for each in theirs)
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def apply_configuration(kind: SchemaKind, live: JsonObject, applied: JsonObject) -> JsonObject:
    """Merge the fields of a mutating admission policy, without owners. Raises ApplyError."""
    about = {"apiVersion": kind.api_version, "kind": kind.name}
    _check(kind, {**applied, **about})
    shape = root_shape(kind)
    if atomic := list(_atomic(shape, applied, "")):
        which = ", ".join(atomic)
        raise ApplyError(f"invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {which}")
    result: JsonObject = merged(shape, live, applied)
    return result


def _atomic(shape: Shape, value: Any, at: str) -> Iterator[str]:
    """Where a value has a list, map or struct with one owner: setting it would remove what it does not repeat."""
    if not isinstance(value, (dict, list)) or shape.form not in ("map", "list"):
        return
    if shape.atomic:
        yield at or "."
    if isinstance(value, dict):
        for name, member in value.items():
            if (inner := shape.member(name)) is not None:
                yield from _atomic(inner, member, f"{at}.{name}")
        return
    for index, member in enumerate(value):
        yield from _atomic(shape.element(), member, f"{at}[{index}]")


def _check(kind: SchemaKind, applied: JsonObject, newer: Newer = NO_NEWER) -> None:
    problems = list(_problems(root_shape(kind), applied, "", newer))
    if not problems:
        return
    metadata = applied.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    which = f"{names.get('namespace') or ''}/{names.get('name') or ''}; {kind.group}/{kind.version}, Kind={kind.name}"
    text = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
    raise ApplyError(f"failed to create typed patch object ({which}): {text}")


def _problems(shape: Shape, value: Any, at: str, newer: Newer) -> Iterator[str]:
    if value is None or shape.form == "any" or shape.deduced:
        return
    if shape.form == "scalar":
        if not _is_scalar(shape.scalar, value):
            wanted = "numeric (int or float)" if shape.scalar == "numeric" else shape.scalar
            wanted = "scalar" if wanted == "untyped" else wanted
            yield f"{at}: expected {wanted}, got {go_syntax(value)}"
    elif shape.form == "map":
        if not isinstance(value, dict):
            yield f"{at}: expected map, got {go_syntax(value)}"
            return
        for name, member in value.items():
            inner = shape.member(name)
            below = newer.get(name, NO_NEWER)
            if inner is None or below is None:
                yield f"{at}.{name}: field not declared in schema"
            else:
                yield from _problems(inner, member, f"{at}.{name}", below)
    elif not isinstance(value, list):
        yield f"{at}: expected list, got {go_syntax(value)}"
    else:
        yield from _list_problems(shape, value, at, newer)


def _list_problems(shape: Shape, value: list[Any], at: str, newer: Newer) -> Iterator[str]:
    seen: set[str] = set()
    for index, member in enumerate(value):
        place = f"{at}[{index}]"
        if not shape.atomic:
            if member is None:
                yield f"{at}: element {index}: associative list without keys has an element that's a null type"
                continue
            try:
                element = shape.path_element(member)
            except KeyError as missing:
                yield (
                    f"{at}: element {index}: associative list with keys has an element that omits key field "
                    f'"{missing.args[0]}" (and doesn\'t have default value)'
                )
                continue
            place = at + field_sets.written_path((element,))
            if element in seen:
                yield f"{at}: duplicate entries for key {field_sets.written_path((element,))}"
            seen.add(element)
        yield from _problems(shape.element(), member, place, newer)


def _is_scalar(wanted: str, value: Any) -> bool:
    if wanted == "string":
        return isinstance(value, str)
    if wanted == "boolean":
        return isinstance(value, bool)
    if wanted == "numeric":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return not isinstance(value, (dict, list))
