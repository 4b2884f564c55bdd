"""The OpenAPI v2 document (/openapi/v2) as JSON, which clients get that do not ask for protobuf.

It has the paths and schemas of version 3 (`codec.openapi.v3`) in the words of version 2: `definitions`, parameters
with types of their own, a body among the parameters. Version 2 has no `nullable`, `oneOf`, `anyOf` and `not`. Where a
schema keeps unknown fields it names none, because clients of version 2 would refuse the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import msgspec

from plimsoll.codec.openapi.v3 import openapi_document, openapi_paths
from plimsoll.rules.admission.custom_resources.extensions import INT_OR_STRING, PRESERVE
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.profile import LAST_MINOR

_V3, _V2 = "#/components/schemas/", "#/definitions/"
_UNKNOWN = ("oneOf", "anyOf", "not", "nullable")
_KIND = "x-kubernetes-group-version-kind"


def openapi_v2_json(custom: Mapping[str, bytes], release: int = LAST_MINOR) -> bytes:
    """`custom`: the documents of custom kinds in version 3, by their path."""
    paths, definitions, known = _built_in(release)
    if custom:
        *more, _ = _members(custom.values(), known)
        paths, definitions = (b",".join(filter(None, each)) for each in zip((paths, definitions), more, strict=True))
    info = b'"swagger":"2.0","info":{"title":"Kubernetes","version":"unversioned"}'
    return b'{%s,"paths":{%s},"definitions":{%s}}' % (info, paths, definitions)


@cache
def _built_in(release: int) -> tuple[bytes, bytes, frozenset[str]]:
    documents = (openapi_document(path, release) for path in openapi_paths(release))
    return _members(document for document in documents if document)


def _members(documents: Iterable[bytes], known: frozenset[str] = frozenset()) -> tuple[bytes, bytes, frozenset[str]]:
    """The members of `paths` and `definitions` as JSON without braces, and the names of these; `known`: not again."""
    paths: JsonObject = {}
    definitions: JsonObject = {}
    for body in documents:
        document = msgspec.json.decode(body)
        paths |= {path: _path(methods) for path, methods in document["paths"].items()}
        for name, schema in document["components"]["schemas"].items():
            # A struct that several groups refer to is described as a kind only in its own group.
            if name in known:
                continue
            if name not in definitions or _KIND in schema:
                definitions[name] = _definition(schema)
    ordered = dict(sorted(definitions.items()))
    return msgspec.json.encode(paths)[1:-1], msgspec.json.encode(ordered)[1:-1], frozenset(ordered)


def _definition(schema: JsonObject) -> JsonObject:
    if schema.get(PRESERVE) and _KIND in schema:
        return {"type": "object", _KIND: schema[_KIND]}
    return _schema(schema)


def _schema(schema: JsonObject) -> JsonObject:
    inner = schema.get("allOf") or []
    found = {name: value for name, value in schema.items() if name not in (*_UNKNOWN, "allOf")}
    reference = inner[0].get("$ref") if len(inner) == 1 else schema.get("$ref")
    if reference:
        found["$ref"] = reference.replace(_V3, _V2)
    if schema.get("nullable") or schema.get(PRESERVE):
        for name in ("type", "items", "properties"):
            found.pop(name, None)
    if "oneOf" in schema and "type" not in schema and INT_OR_STRING not in schema:
        found["type"] = "string"  # quantities, and numbers or texts
    for name in ("properties", "definitions"):
        if isinstance(found.get(name), dict):
            found[name] = {key: _schema(value) for key, value in found[name].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(found.get(name), dict):
            found[name] = _schema(found[name])
    return found


def _path(methods: JsonObject) -> JsonObject:
    parameters = [_parameter(each) for each in methods.get("parameters") or []]
    found = {method: _operation(each) for method, each in methods.items() if method != "parameters"}
    return {**found, "parameters": parameters} if parameters else found


def _parameter(parameter: JsonObject) -> JsonObject:
    return {**{name: value for name, value in parameter.items() if name != "schema"}, **parameter["schema"]}


def _operation(operation: JsonObject) -> JsonObject:
    found = {name: value for name, value in operation.items() if name != "requestBody"}
    found["parameters"] = [_parameter(each) for each in operation.get("parameters") or []]
    body = operation.get("requestBody")
    if body is not None:
        schema = _schema(next(iter(body["content"].values()))["schema"])
        found["consumes"] = list(body["content"])
        found["parameters"].insert(0, {"in": "body", "name": "body", "required": True, "schema": schema})
    return {"produces": ["application/json", "application/yaml"], **found}
