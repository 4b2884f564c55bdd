"""OpenAPI v3 documents generated from the schema (05 B4), one per group version.

kubectl reads three things from them: that PATCH supports `fieldValidation` (so that the server validates), the merge
keys (from which `kubectl apply` computes its patch), and names, types and descriptions for `explain`. Each document
contains the paths of its kinds and every struct that they refer to. A document's hash changes with its content, because
kubectl caches by URL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache

import msgspec

from plimsoll.codec.schema.releases import kind_since, newer_in
from plimsoll.codec.schema.schema import KINDS, Field, SchemaKind, StructType, Type, struct
from plimsoll.rules.admission.custom_resources.extensions import PRESERVE
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import LAST_MINOR

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PACKAGES = {
    "meta": _META,
    "metrics": "io.k8s.metrics.pkg.apis.metrics.v1beta1",
    "autoscaling2": "io.k8s.api.autoscaling.v2",
}
_NAMED_SCALARS: dict[str, tuple[str, JsonObject]] = {
    "Quantity": (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        {"description": "An exact amount, such as 500m or 128Mi.", "oneOf": [{"type": "string"}, {"type": "number"}]},
    ),
    "IntOrString": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {
            "description": "A number or a text.",
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        },
    ),
    "Time": (
        f"{_META}.Time",
        {"description": "A time (RFC 3339).", "type": "string", "format": "date-time"},
    ),
    "MicroTime": (
        f"{_META}.MicroTime",
        {"description": "A time (RFC 3339) with six decimals.", "type": "string", "format": "date-time"},
    ),
    "Duration": (f"{_META}.Duration", {"description": "A duration, such as 20s.", "type": "string"}),
    "JSON": (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        {"description": "Any JSON value.", PRESERVE: True},
    ),
    "FieldsV1": (f"{_META}.FieldsV1", {"description": "A set of fields.", "type": "object"}),
}
_SCALARS: dict[str, JsonObject] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
}
_PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_PATCH_OPTIONS = ("dryRun", "fieldManager", "fieldValidation", "force")
_WRITE_OPTIONS = ("dryRun", "fieldManager", "fieldValidation")
_DESCRIPTIONS = {
    "dryRun": "All: check everything, store nothing.",
    "fieldManager": "Name of the manager that makes the change.",
    "fieldValidation": "Ignore, Warn or Strict: what to do about unknown and duplicate fields.",
    "force": "Take fields over from other managers (apply only).",
}


def openapi_index(custom: Mapping[str, bytes] | None = None, release: int = LAST_MINOR) -> bytes:
    """The answer to GET /openapi/v3 of 1.N; `custom`: the documents of custom kinds by their path."""
    hashes = {path: openapi_hash(path, release) for path in openapi_paths(release)}
    hashes |= {path: document_hash(document) for path, document in (custom or {}).items()}
    paths = {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={hashes[path]}"} for path in sorted(hashes)}
    return msgspec.json.encode({"paths": paths})


def document_hash(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest().upper()


def openapi_paths(release: int = LAST_MINOR) -> tuple[str, ...]:
    """The paths of all documents."""
    return tuple(_kinds_by_path(release))


def openapi_document(path: str, release: int = LAST_MINOR) -> bytes | None:
    """The answer to GET /openapi/v3/{path} (`api/v1`, `apis/apps/v1`), or None."""
    return _document(path, release) if path in _kinds_by_path(release) else None


@cache
def openapi_hash(path: str, release: int = LAST_MINOR) -> str:
    """The content hash of that document (ETag, `?hash=`), or empty."""
    document = openapi_document(path, release)
    return "" if document is None else document_hash(document)


@cache
def _kinds_by_path(release: int) -> dict[str, tuple[SchemaKind, ...]]:
    found: dict[str, tuple[SchemaKind, ...]] = {}
    for kind in KINDS:
        if kind_since(kind.group, kind.version, kind.plural) > release:
            continue
        if kind.version != "v1" and kind.group == "policy":
            continue  # the old eviction, read but not served
        path = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
        found[path] = (*found.get(path, ()), kind)
    return dict(sorted(found.items()))


@cache
def _document(path: str, release: int) -> bytes:
    schemas: JsonObject = {}
    paths: JsonObject = {}
    kinds = _kinds_by_path(release)[path]
    for kind in kinds:
        add_struct(schemas, kind.root, release)
        if kind.plural:
            paths |= paths_of(path, kind, _reference(kind.table))
    for kind in kinds:
        schemas[struct_name(kind.table)]["x-kubernetes-group-version-kind"] = [group_version_kind(kind)]
    document = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": kinds[0].version},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(schemas.items()))},
    }
    return msgspec.json.encode(document)


def group_version_kind(kind: SchemaKind) -> JsonObject:
    return {"group": kind.group, "kind": kind.name, "version": kind.version}


def paths_of(path: str, kind: SchemaKind, reference: str) -> JsonObject:
    """The operations on one kind; `reference` is its schema."""
    collection = f"/{path}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"/{path}/{kind.plural}"
    # kubectl explain 1.27 finds a kind by the list of all namespaces only.
    everywhere = {f"/{path}/{kind.plural}": {"get": _operation(kind, "list", ())}} if kind.namespaced else {}
    body = {"*/*": {"schema": {"$ref": reference}}}
    types = _PATCH_TYPES if kind.table else _PATCH_TYPES[:-1]
    patch = {type_: {"schema": {"type": "object"}} for type_ in types}
    return {
        **everywhere,
        collection: {
            "get": _operation(kind, "list", ()),
            "post": _operation(kind, "post", _WRITE_OPTIONS, body),
            **({"parameters": _path_parameters("namespace")} if kind.namespaced else {}),
        },
        f"{collection}/{{name}}": {
            "get": _operation(kind, "get", ()),
            "put": _operation(kind, "put", _WRITE_OPTIONS, body),
            "delete": _operation(kind, "delete", ("dryRun",)),
            "patch": _operation(kind, "patch", _PATCH_OPTIONS, patch),
            "parameters": _path_parameters("name", *(("namespace",) if kind.namespaced else ())),
        },
    }


def _path_parameters(*names: str) -> list[JsonObject]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}
        for name in names
    ]


def _operation(kind: SchemaKind, action: str, options: tuple[str, ...], body: JsonObject | None = None) -> JsonObject:
    parameters = [
        {
            "name": name,
            "in": "query",
            "description": _DESCRIPTIONS[name],
            "schema": {"type": "boolean" if name == "force" else "string", "uniqueItems": True},
        }
        for name in options
    ]
    operation: JsonObject = {
        **({"parameters": parameters} if parameters else {}),
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": group_version_kind(kind),
    }
    if body is not None:
        operation["requestBody"] = {"content": body, "required": True}
    return operation


def struct_name(table: str) -> str:
    group, _, name = table.partition(".")
    return f"{_PACKAGES.get(group, f'io.k8s.api.{group}.v1')}.{name}"


def _reference(table: str) -> str:
    return f"#/components/schemas/{struct_name(table)}"


def add_struct(schemas: JsonObject, kind: StructType, release: int = LAST_MINOR) -> None:
    """A struct and all structs that it refers to, with the fields of that release."""
    name = struct_name(kind.name)
    if name in schemas:
        return
    properties: JsonObject = {}
    schemas[name] = {"description": kind.description, "type": "object"}
    if kind.fields:
        schemas[name]["properties"] = properties
    newer = newer_in(kind.name, release)
    fields = [field for field in kind.fields.values() if field.name not in newer]
    required = [field.name for field in fields if field.required]
    if required:
        schemas[name]["required"] = sorted(required)
    if kind.atomic:
        schemas[name]["x-kubernetes-map-type"] = "atomic"
    for field in sorted(fields, key=lambda each: each.name):
        properties[field.name] = _property(schemas, field, release)


def _property(schemas: JsonObject, field: Field, release: int) -> JsonObject:
    result = {"description": field.description, **_schema(schemas, field.type, release)}
    if field.type.form == "list":
        result["x-kubernetes-list-type"] = "map" if field.keys else "set" if field.is_set else "atomic"
        if field.keys:
            result["x-kubernetes-list-map-keys"] = list(field.keys)
    elif field.atomic:
        result["x-kubernetes-map-type"] = "atomic"
    strategies = [
        *(["merge"] if field.merges else []),
        *(["replace"] if field.replaces else []),
        *(["retainKeys"] if field.retain_keys else []),
    ]
    if strategies:
        result["x-kubernetes-patch-strategy"] = ",".join(strategies)
    if field.merge_key:
        result["x-kubernetes-patch-merge-key"] = field.merge_key
    if field.default:
        result["default"] = field.default
    return result


def _schema(schemas: JsonObject, kind: Type, release: int) -> JsonObject:
    if kind.form == "object":
        add_struct(schemas, struct(kind.struct), release)
        return {"allOf": [{"$ref": _reference(kind.struct)}]}
    if kind.item is not None:
        inner = _schema(schemas, kind.item, release)
        return {"type": "array", "items": inner} if kind.form == "list" else _map_schema(inner)
    if kind.form in _NAMED_SCALARS:
        name, described = _NAMED_SCALARS[kind.form]
        schemas[name] = described
        return {"allOf": [{"$ref": f"#/components/schemas/{name}"}]}
    return dict(_SCALARS[kind.form])


def _map_schema(item: JsonObject) -> JsonObject:
    return {"type": "object", "additionalProperties": item}
