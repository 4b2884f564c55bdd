"""Custom kinds: documents by the structural schema of a CustomResourceDefinition.

A schema is the JSON document of `openAPIV3Schema`. Fields that it does not specify are pruned, unless
`x-kubernetes-preserve-unknown-fields` keeps them; metadata has the fields of every object; missing fields with a
default get it, and a null where null is not allowed counts as missing there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.codec.schema.schema import SchemaKind
from plimsoll.rules.admission.custom_resources.extensions import EMBEDDED, PRESERVE
from plimsoll.rules.model.json_object import JsonObject

OF_EVERY_RESOURCE = ("apiVersion", "kind", "metadata")
MAX_PROBLEMS = 100
METADATA = SchemaKind("", "v1", "PartialObjectMetadata", "", True, "meta.PartialObject")


class CustomKind(SchemaKind, frozen=True, eq=False):
    """One version of a custom kind. `schema` is never changed."""

    schema: JsonObject = {}
    has_status: bool = False
    known: dict[str, Any] = msgspec.field(default_factory=dict)  # what others compute from the schema once

    @property
    def has_defaults(self) -> bool:
        found = self.known.get("has_defaults")
        if found is None:
            found = self.known["has_defaults"] = _any_default(self.schema)
        return bool(found)


def _any_default(schema: Any) -> bool:
    if isinstance(schema, dict):
        return "default" in schema or any(map(_any_default, schema.values()))
    return isinstance(schema, list) and any(map(_any_default, schema))


def is_preserved(schema: JsonObject) -> bool:
    return bool(schema.get(PRESERVE))


def item_schema(schema: JsonObject) -> JsonObject | None:
    """Of the members of a map; an empty schema where any value is allowed."""
    found = schema.get("additionalProperties")
    if found is True:
        return {PRESERVE: True}
    return found if isinstance(found, dict) else None


def pruned(schema: JsonObject, value: JsonObject) -> tuple[JsonObject, tuple[str, ...]]:
    """An object without the fields that the schema does not specify, and their paths."""
    unknown: list[str] = []
    result = _pruned_object(schema, value, "", unknown, is_resource=True)
    return result, tuple(unknown[:MAX_PROBLEMS])


def _pruned(schema: JsonObject, value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict):
        return _pruned_object(schema, value, path, unknown, is_resource=bool(schema.get(EMBEDDED)))
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, dict):
            if is_preserved(schema):
                return _kept(value)
            items = {}
        return [_pruned(items, member, f"{path}[{index}]", unknown) for index, member in enumerate(value)]
    return _kept(value)


def _pruned_object(
    schema: JsonObject, value: JsonObject, path: str, unknown: list[str], *, is_resource: bool
) -> JsonObject:
    properties, items = schema.get("properties") or {}, item_schema(schema)
    keeps = is_preserved(schema)
    result: JsonObject = {}
    for name, member in value.items():
        here = f"{path}.{name}" if path else name
        if is_resource and name in OF_EVERY_RESOURCE:
            result[name] = member if not path or name != "metadata" else _embedded_metadata(member, here, unknown)
        elif name in properties:
            result[name] = _pruned(properties[name], member, here, unknown)
        elif items is not None:
            result[name] = _pruned(items, member, here, unknown)
        elif keeps:
            result[name] = _kept(member)
        else:
            unknown.append(here)
    return result


def _kept(value: Any) -> Any:
    """Everything, with numbers as in Go: an integer of more than 64 bits is a float."""
    if isinstance(value, dict):
        return {name: _kept(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_kept(member) for member in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value) if abs(value) < 10**300 else None
    return value


def _embedded_metadata(value: Any, path: str, unknown: list[str]) -> Any:
    from plimsoll.codec.schema.decode import DecodeError, decode_document

    try:
        found = decode_document(METADATA, {"metadata": value})
    except DecodeError:
        return value  # validation reports it
    own = METADATA.root.fields["metadata"].type.struct
    unknown += _unknown_names(found.problems, path)
    return {name: each for name, each in found.document["metadata"].items() if name in metadata_fields(own)}


def metadata_fields(struct_name: str = "meta.ObjectMeta") -> frozenset[str]:
    from plimsoll.codec.schema.schema import struct

    return frozenset(struct(struct_name).fields)


def _unknown_names(problems: tuple[str, ...], path: str) -> list[str]:
    """`unknown field "metadata.x"` → the path of x in the whole object."""
    names = [problem.removeprefix('unknown field "').removesuffix('"') for problem in problems]
    return [f"{path}{name.removeprefix('metadata')}" for name in names]


def with_defaults(schema: JsonObject, value: Any) -> Any:
    """The value with the schema's defaults; does not change its argument."""
    if isinstance(value, dict):
        return _object_with_defaults(schema, value)
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        return [with_defaults(items, member) for member in value]
    return value


def _object_with_defaults(schema: JsonObject, value: JsonObject) -> JsonObject:
    properties = schema.get("properties") or {}
    items = item_schema(schema)
    result: JsonObject = {}
    for name, member in value.items():
        inner = properties.get(name, items)
        if inner is None:
            result[name] = member
        elif member is None and "default" in inner and not inner.get("nullable"):
            continue
        else:
            result[name] = with_defaults(inner, member)
    for name, inner in properties.items():
        if name not in result and "default" in inner:
            default = msgspec.json.decode(msgspec.json.encode(inner["default"]))
            result[name] = with_defaults(inner, default)
    return result


def served(kind: CustomKind, stored: JsonObject) -> JsonObject:
    """A stored object by the current schema: pruned, and with its defaults."""
    result, _ = pruned(kind.schema, stored)
    return _object_with_defaults(kind.schema, result) if kind.has_defaults else result
