"""The older OpenAPI document, read back field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator

from plimsoll.codec.openapi.custom import custom_documents
from plimsoll.codec.openapi.v2 import openapi_v2
from plimsoll.codec.schema.custom import CustomKind


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key, size = varint(), varint()
        assert key & 7 == 2, "this document has texts and messages only"
        yield key >> 3, data[at : at + size]
        at += size


def one(data: bytes, *numbers: int) -> bytes:
    """Along a path of fields that occur once."""
    for number in numbers:
        (data,) = (value for each, value in fields(data) if each == number)
    return data


def test_every_patch_knows_field_validation() -> None:
    document = openapi_v2()
    assert one(document, 1) == b"2.0"
    kinds = {}
    for number, path in fields(one(document, 8)):
        assert number == 2
        operation = one(path, 2, 8)
        assert one(operation, 8, 1, 2, 3, 4) == b"fieldValidation"
        assert one(operation, 13, 1) == b"x-kubernetes-group-version-kind"
        kind = json.loads(one(operation, 13, 2, 2))
        kinds[kind["group"], kind["kind"]] = one(path, 1).decode()
    assert kinds["", "Namespace"] == "/api/v1/namespaces/{name}"
    assert kinds["", "Pod"] == "/api/v1/namespaces/{namespace}/pods/{name}"
    assert kinds["apps", "Deployment"] == "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"


def test_custom_kinds_have_definitions() -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer"}}}},
    }
    kind = CustomKind("example.com", "v1", "Widget", "widgets", True, "", schema=schema)
    document = openapi_v2(custom_documents([kind]))
    named = {one(each, 1).decode(): one(each, 2) for number, each in fields(one(document, 9)) if number == 1}
    widget = named["com.example.v1.Widget"]
    assert one(widget, 22, 1) == b"object"
    (extension,) = (value for number, value in fields(widget) if number == 31)
    assert json.loads(one(extension, 2, 2)) == [{"group": "example.com", "kind": "Widget", "version": "v1"}]
    properties = {one(each, 1).decode(): one(each, 2) for _, each in fields(one(widget, 25))}
    assert one(properties["metadata"], 1).startswith(b"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    assert one(properties["spec"], 19) == b"size"
    assert "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" in named
