"""OpenAPI v3 documents of custom kinds, one per group version, from their own schemas."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.codec.openapi.v3 import add_struct, group_version_kind, paths_of, struct_name
from plimsoll.codec.schema.custom import CustomKind
from plimsoll.codec.schema.schema import struct
from plimsoll.rules.admission.custom_resources.extensions import EMBEDDED
from plimsoll.rules.model.json_object import JsonObject

_META = struct_name("meta.ObjectMeta")
_TEXT = {"type": "string"}


def custom_documents(kinds: Iterable[CustomKind]) -> dict[str, bytes]:
    """By path: `apis/example.com/v1`."""
    by_path: dict[str, list[CustomKind]] = {}
    for kind in kinds:
        by_path.setdefault(f"apis/{kind.group}/{kind.version}", []).append(kind)
    return {path: _document(path, own) for path, own in by_path.items()}


def definition_name(kind: CustomKind) -> str:
    """`com.example.v1.Widget`, the group reversed."""
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.name])


def _document(path: str, kinds: list[CustomKind]) -> bytes:
    schemas: JsonObject = {}
    paths: JsonObject = {}
    add_struct(schemas, struct("meta.ObjectMeta"))
    for kind in kinds:
        name = definition_name(kind)
        schemas[name] = {**_resource(kind.schema), "x-kubernetes-group-version-kind": [group_version_kind(kind)]}
        paths |= paths_of(path, kind, f"#/components/schemas/{name}")
    document = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(schemas.items()))},
    }
    return msgspec.json.encode(document)


def _resource(schema: JsonObject) -> JsonObject:
    """With the fields that every object has."""
    own = _published(schema)
    properties = dict(own.get("properties") or {})
    metadata = {
        "description": "Standard object's metadata: name, labels and others.",
        "allOf": [{"$ref": f"#/components/schemas/{_META}"}],
    }
    described = {
        # Kubernetes' suite looks for these first words in `kubectl explain` of custom kinds.
        "apiVersion": {**_TEXT, "description": "APIVersion defines the group and version of this object's kind."},
        "kind": {**_TEXT, "description": "Kind of the object."},
        "metadata": metadata,
    }
    return {**own, "properties": {**properties, **described}}


def _published(schema: JsonObject) -> JsonObject:
    """The schema, in which embedded objects have the fields of every object."""
    result = dict(schema)
    if isinstance(result.get("properties"), dict):
        result["properties"] = {name: _inner(each) for name, each in result["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(result.get(name), dict):
            result[name] = _inner(result[name])
    return result


def _inner(schema: JsonObject) -> JsonObject:
    return _resource(schema) if schema.get(EMBEDDED) else _published(schema)
