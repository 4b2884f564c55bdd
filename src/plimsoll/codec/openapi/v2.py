"""The OpenAPI v2 document (/openapi/v2) as protobuf: the parts that kubectl reads.

For most kinds kubectl reads version 3 (`codec.openapi.v3`). For a `kind: List` it checks here whether PATCH of a
Namespace supports `fieldValidation`, and refuses the file if not. So each kind has its PATCH and that parameter, and
nothing else; without definitions kubectl computes patches from version 3. The messages are those of openapi.v2.Document
(gnostic).
"""

from __future__ import annotations

from functools import cache

import msgspec

from plimsoll.codec.openapi.v3 import openapi_document, openapi_paths

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"  # as requested
CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"  # as sent: `@` is not allowed
_BYTES = 2


@cache
def openapi_v2() -> bytes:
    paths = b"".join(
        _field(2, _text(1, path) + _field(2, _field(8, _operation(methods["patch"]))))  # Paths.path, PathItem.patch
        for document in map(openapi_document, openapi_paths())
        for path, methods in msgspec.json.decode(document or b'{"paths":{}}')["paths"].items()
        if "patch" in methods
    )
    info = _text(1, "Kubernetes") + _text(2, "unversioned")
    return _text(1, "2.0") + _field(2, info) + _field(8, paths)


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
