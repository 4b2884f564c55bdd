"""OpenAPI v3: the parts that kubectl reads (05 B4, 06 E8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.codec.openapi.v3 import openapi_document, openapi_hash, openapi_index
from plimsoll.codec.schema.schema import KINDS

Document = dict[str, Any]
PATHS = sorted(json.loads(openapi_index())["paths"])


def document(path: str) -> Document:
    found = openapi_document(path)
    assert found is not None
    loaded: Document = json.loads(found)
    return loaded


def test_the_index_names_each_group_version_with_its_hash() -> None:
    entries = json.loads(openapi_index())["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/metrics.k8s.io/v1beta1", "apis/scheduling.k8s.io/v1"} <= entries.keys()
    for path, entry in entries.items():
        assert entry == {"serverRelativeURL": f"/openapi/v3/{path}?hash={openapi_hash(path)}"}
    assert len({openapi_hash(path) for path in entries}) == len(entries)


def test_no_other_document() -> None:
    assert openapi_document("apis/foo/v1") is None
    assert openapi_hash("apis/foo/v1") == ""


@pytest.mark.parametrize("path", PATHS)
def test_every_reference_resolves(path: str) -> None:
    found = document(path)
    schemas = found["components"]["schemas"]

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].removeprefix("#/components/schemas/") in schemas
            for member in value.values():
                walk(member)
        elif isinstance(value, list):
            for member in value:
                walk(member)

    walk(found)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.plural], ids=lambda kind: f"{kind.group}/{kind.name}")
def test_a_kind_can_be_patched_and_explained(kind: Any) -> None:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    found = document(base[1:])
    middle = "/namespaces/{namespace}" if kind.namespaced else ""
    operation = found["paths"][f"{base}{middle}/{kind.plural}/{{name}}"]["patch"]
    names = {"group": kind.group, "version": kind.version, "kind": kind.name}
    assert operation["x-kubernetes-group-version-kind"] == names
    listed = found["paths"][f"{base}/{kind.plural}"]["get"]  # where kubectl explain 1.27 finds the kind
    assert listed["x-kubernetes-group-version-kind"] == names
    assert "fieldValidation" in [each["name"] for each in operation["parameters"]]
    assert "application/strategic-merge-patch+json" in operation["requestBody"]["content"]
    described = [
        each
        for each in found["components"]["schemas"].values()
        if names in each.get("x-kubernetes-group-version-kind", [])
    ]
    assert len(described) == 1
    assert described[0]["description"]


def test_merge_keys_are_there() -> None:
    schemas = document("api/v1")["components"]["schemas"]
    spec = schemas["io.k8s.api.core.v1.PodSpec"]
    assert spec["required"] == ["containers"]
    containers = spec["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["items"] == {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]}
    assert spec["properties"]["volumes"]["x-kubernetes-patch-strategy"] == "merge,retainKeys"
    assert spec["properties"]["nodeSelector"]["x-kubernetes-map-type"] == "atomic"
    assert spec["properties"]["tolerations"]["x-kubernetes-list-type"] == "atomic"


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_empty(path: str) -> None:
    """Go's types drop an empty list, so that a document with one is not what a client writes again (e2e: OpenAPIV3
    should round trip OpenAPI V3 for all built-in group versions)."""

    def empty(value: Any, at: str) -> list[str]:
        if isinstance(value, dict | list) and not value:
            return [at]
        if isinstance(value, dict):
            return [found for name, each in value.items() for found in empty(each, f"{at}.{name}")]
        return [found for each in value for found in empty(each, at)] if isinstance(value, list) else []

    assert empty(document(path), "") == []
