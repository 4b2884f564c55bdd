"""CustomResourceDefinitions that are accepted and refused; definitions.json has what kube-apiserver's own code answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.api_client import api
from tests.unit.api.widgets import DEFINITIONS, WIDGETS, definition, served

ANSWERS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "definitions.json").read_text())


async def test_answers_of_kube_apiserver(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        for answer in ANSWERS:
            body = {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": answer["name"]},
                "spec": answer["spec"],
            }
            said = await ask("POST", DEFINITIONS, body)
            assert said.code == 422, body
            causes = sorted(f"{each['field']}: {each['message']}" for each in said.json["details"]["causes"])
            assert causes == answer["errors"]


TEXT = {"type": "string"}


def inside(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "object", **schema}}}


NOT_STRUCTURAL = [
    ({"properties": {"a": {"type": "string"}}}, "openAPIV3Schema.type"),
    ({"type": "object", "properties": {"a": {}}}, "openAPIV3Schema.properties[a].type: Required value"),
    ({"type": "object", "properties": {"a": {"type": "text"}}}, 'Unsupported value: "text"'),
    ({"type": "object", "properties": {"a": {"type": "array"}}}, "properties[a].items: Required value"),
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}, "valid regular expression"),
    ({"type": "object", "properties": {"a": {"type": "string", "default": 1}}}, "must be of type string"),
    ({"type": "object", "properties": {"a": 1}}, "properties[a]: Invalid value"),
    ({"type": "object", "anyOf": [{"properties": {"b": {}}}]}, "because it is defined in"),
    ({"type": "object", "$ref": "#/x"}, "$ref is not supported"),
    # as kube-apiserver answers
    ({"type": "object", "additionalProperties": True}, "additionalProperties: Forbidden: must not be used at the root"),
    (inside({"properties": {"b": TEXT}, "additionalProperties": TEXT}), "properties are mutual exclusive"),
    (
        inside({"not": {"x-kubernetes-int-or-string": True}}),
        "not.x-kubernetes-int-or-string: Forbidden: must be false to",
    ),
    (
        inside({"oneOf": [{"x-kubernetes-map-type": "atomic"}]}),
        "x-kubernetes-map-type: Forbidden: must be undefined to be",
    ),
    (inside({"anyOf": [{"pattern": "("}]}), "anyOf[0].pattern: Invalid value"),
    (inside({"allOf": [{"uniqueItems": True}]}), "allOf[0].uniqueItems: Forbidden: uniqueItems cannot be set"),
    (
        inside({"x-kubernetes-embedded-resource": True, "type": "string"}),
        "must be object if x-kubernetes-embedded-resource",
    ),
    (
        inside({"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True}),
        "must be false if x-kubernetes-int-or-string is true",
    ),
    (
        inside({"type": "array", "x-kubernetes-list-type": "set", "items": {**TEXT, "nullable": True}}),
        "items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
    ),
    (
        inside({"type": "array", "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["k"], "items": TEXT}),
        "must be map if x-kubernetes-list-map-keys is non-empty",
    ),
]


async def test_a_schema_that_is_not_structural_is_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        for schema, message in NOT_STRUCTURAL:
            said = await ask("POST", DEFINITIONS, definition(schema={"openAPIV3Schema": schema}))
            assert said.code == 422, schema
            assert message in said.message


async def test_what_all_versions_share_is_reported_at_the_spec(tmp_path: Path) -> None:
    """kube-apiserver moves it there before it validates."""
    wrong = {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}
    right = {"openAPIV3Schema": {"type": "object"}}
    async with api(tmp_path) as ask:
        body = definition(schema=wrong)
        body["spec"]["versions"].append({"name": "v2", "served": True, "storage": False, "schema": wrong})
        said = await ask("POST", DEFINITIONS, body)
        assert [each["field"] for each in said.json["details"]["causes"]] == [
            "spec.validation.openAPIV3Schema.properties[a].type"
        ]
        body["spec"]["versions"][0]["schema"] = right
        said = await ask("POST", DEFINITIONS, body)
        assert [each["field"] for each in said.json["details"]["causes"]] == [
            "spec.versions[1].schema.openAPIV3Schema.properties[a].type"
        ]


async def test_an_int_or_string_may_name_a_type_and_is_either(tmp_path: Path) -> None:
    """As generated definitions have it; kube-apiserver reads the type as both."""
    port = {"type": "integer", "x-kubernetes-int-or-string": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"port": port}}}
    async with served(tmp_path, definition(schema=schema)) as ask:
        for name, value, code in (("a", 80, 201), ("b", "http", 201), ("c", True, 422)):
            assert (await ask("POST", WIDGETS, {"metadata": {"name": name}, "port": value})).code == code


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"b": TEXT}, "additionalProperties": True},
        {"additionalProperties": False},
        {"type": "integer", "anyOf": [{"type": "integer"}, {"type": "string"}]},
    ],
)
async def test_a_structural_schema(tmp_path: Path, schema: dict[str, Any]) -> None:
    """As kube-apiserver answers."""
    async with api(tmp_path) as ask:
        await ask.ok("POST", DEFINITIONS, definition(schema={"openAPIV3Schema": inside(schema)}))
