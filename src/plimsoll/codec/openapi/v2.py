"""The OpenAPI v2 document (/openapi/v2) as protobuf: the parts that kubectl reads.

For most kinds kubectl reads version 3 (`codec.openapi.v3`). For a `kind: List` it checks here whether PATCH of a
Namespace supports `fieldValidation`, and refuses the file if not. So each kind has its PATCH and that parameter, and
nothing else; without definitions kubectl computes patches from version 3. Custom kinds have definitions, too, because
older clients explain and validate them by these. The messages are those of openapi.v2.Document (gnostic).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from plimsoll.codec.openapi.v3 import openapi_document, openapi_paths
from plimsoll.rules.admission.custom_resources.extensions import RULES
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import LAST_MINOR

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"  # as requested
CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"  # as sent: `@` is not allowed
_BYTES = 2


@cache
def _built_in_paths(release: int) -> bytes:
    documents = (openapi_document(path, release) for path in openapi_paths(release))
    return b"".join(_paths(msgspec.json.decode(document)) for document in documents if document)


def openapi_v2(custom: Mapping[str, bytes] | None = None, release: int = LAST_MINOR) -> bytes:
    """`custom`: the documents of custom kinds in version 3, by their path."""
    paths, schemas = _built_in_paths(release), dict[str, JsonObject]()
    for body in (custom or {}).values():
        document = msgspec.json.decode(body)
        paths += _paths(document)
        schemas |= document["components"]["schemas"]
    info = _text(1, "Kubernetes") + _text(2, "unversioned")
    found = _text(1, "2.0") + _field(2, info) + _field(8, paths)
    if schemas:
        found += _field(9, b"".join(_named(name, schema) for name, schema in sorted(schemas.items())))
    return found


def _paths(document: JsonObject) -> bytes:
    return b"".join(
        _field(2, _text(1, path) + _field(2, _field(8, _operation(methods["patch"]))))  # Paths.path, PathItem.patch
        for path, methods in document["paths"].items()
        if "patch" in methods
    )


def _named(name: str, schema: JsonObject) -> bytes:
    """NamedSchema, as a member of Definitions or Properties."""
    return _field(1, _text(1, name) + _field(2, _schema(schema)))


def _schema(schema: JsonObject) -> bytes:
    inner = schema.get("allOf") or []
    reference = schema.get("$ref") or (inner[0].get("$ref") if len(inner) == 1 else "")
    parts = [_text(1, str(reference).replace("#/components/schemas/", "#/definitions/"))] if reference else []
    parts += [_text(number, schema[name]) for number, name in ((2, "format"), (4, "description")) if schema.get(name)]
    parts += [_text(19, name) for name in schema.get("required") or ()]
    parts += [_field(20, _any(value)) for value in schema.get("enum") or ()]
    if isinstance(others := schema.get("additionalProperties"), dict):
        parts.append(_field(21, _field(1, _schema(others))))
    if schema.get("type"):
        parts.append(_field(22, _text(1, schema["type"])))
    if isinstance(items := schema.get("items"), dict):
        parts.append(_field(23, _field(1, _schema(items))))
    if schema.get("properties"):
        parts.append(_field(25, b"".join(_named(name, each) for name, each in sorted(schema["properties"].items()))))
    for name in sorted(schema):
        if name.startswith("x-") and name != RULES:
            parts.append(_field(31, _text(1, name) + _field(2, _any(schema[name]))))
    return b"".join(parts)


def _any(value: Any) -> bytes:
    return _field(2, msgspec.json.encode(value))  # JSON is YAML


def _operation(patch: dict[str, object]) -> bytes:
    kind = msgspec.json.encode(patch["x-kubernetes-group-version-kind"])  # JSON is YAML
    extension = _text(1, "x-kubernetes-group-version-kind") + _field(2, _field(2, kind))
    query = _text(2, "query") + _text(4, "fieldValidation") + _text(6, "string")
    # ParametersItem.parameter, Parameter.non_body_parameter, NonBodyParameter.query_parameter_sub_schema
    return _field(8, _field(1, _field(2, _field(3, query)))) + _field(13, extension)


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
