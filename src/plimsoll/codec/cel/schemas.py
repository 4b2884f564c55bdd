"""Static types of values that an OpenAPI schema describes, and those values as expressions see them.

How long a text, list or map can be follows from its schema, or from the size of the largest request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from plimsoll.codec.cel.environment import unescaped
from plimsoll.codec.cel.standard import parsed_duration
from plimsoll.codec.cel.types import BOOL, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of
from plimsoll.codec.cel.values import Duration, EvaluationError, Timestamp
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import unix_nanos

REQUEST_BYTES = 3 * 1024 * 1024
EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_METADATA: JsonObject = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
}
_OF_RESOURCES: JsonObject = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _METADATA}
_LEAST = {"string": 2, "integer": 1, "number": 1, "boolean": 4, "array": 2, "object": 2}
_FORMAT_BYTES = {"duration": 32, "date-time": 20, "date": 10, "ipv4": 15, "ipv6": 45, "uuid": 36}

Resolve = Callable[[JsonObject], JsonObject]


def no_references(schema: JsonObject) -> JsonObject:
    return schema


def type_of(
    schema: JsonObject, path: str = "self", *, is_resource: bool = False, resolve: Resolve = no_references
) -> Type:
    """`resolve` follows the `$ref` of documents that have some. Fields are typed when they are first asked for."""
    schema = resolve(schema)
    if schema.get(_INT_OR_STRING) or schema.get("format") == "int-or-string":
        return DYN
    kind = schema.get("type")
    if kind == "string":
        return _text_type(schema)
    if kind in ("integer", "number", "boolean"):
        return {"integer": INT, "number": DOUBLE, "boolean": BOOL}[kind]
    if kind == "array":
        items = schema.get("items")
        if not isinstance(items, dict):
            return DYN
        return list_of(type_of(items, f"{path}.@idx", resolve=resolve), _most_items(schema, resolve))
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        most = schema.get("maxProperties")
        if most is None:
            most = (REQUEST_BYTES - 2) // (_least_bytes(resolve(others)) + 6)
        return map_of(STRING, type_of(others, f"{path}.@elem", resolve=resolve), most)
    properties = properties_of(schema, is_resource=is_resource)
    if not properties:
        return DYN if kind is None or schema.get("x-kubernetes-preserve-unknown-fields") else _object(path, {}, resolve)
    return _object(path, properties, resolve)


def properties_of(schema: JsonObject, *, is_resource: bool = False) -> JsonObject:
    own = schema.get("properties") or {}
    if not (is_resource or schema.get(EMBEDDED)):
        return own
    return {**_OF_RESOURCES, **{name: each for name, each in own.items() if name not in _OF_RESOURCES}}


def _object(path: str, properties: JsonObject, resolve: Resolve) -> Type:
    known: dict[str, Type | None] = {}

    def field(name: str) -> Type | None:
        if name not in known:
            real = name if name in properties else unescaped(name)
            known[name] = type_of(properties[real], f"{path}.{real}", resolve=resolve) if real in properties else None
        return known[name]

    return Type("object", fields=field, shown=path)


def _text_type(schema: JsonObject) -> Type:
    form = schema.get("format")
    if form == "byte":
        return Type("bytes", longest=_most_chars(schema))
    if form in ("date-time", "date"):
        return TIMESTAMP
    if form == "duration":
        return DURATION
    return Type("string", longest=_most_chars(schema))


def _most_chars(schema: JsonObject) -> int:
    if schema.get("enum"):
        return max(len(each) if isinstance(each, str) else 0 for each in schema["enum"])
    if schema.get("format") in _FORMAT_BYTES:
        return _FORMAT_BYTES[schema["format"]]
    most = schema.get("maxLength")
    return REQUEST_BYTES - 2 if most is None else max(0, int(most))


def _most_items(schema: JsonObject, resolve: Resolve) -> int:
    most = schema.get("maxItems")
    if most is not None:
        return max(0, int(most))
    return (REQUEST_BYTES - 2) // (_least_bytes(resolve(schema["items"])) + 1)


def _least_bytes(schema: JsonObject) -> int:
    """The shortest JSON of a value."""
    kind = schema.get("type") or "object"
    if kind == "object":
        names = schema.get("required") or ()
        inner = schema.get("properties") or {}
        return 2 + sum(len(name) + 3 + _least_bytes(inner.get(name) or {"type": "integer"}) for name in names)
    return _LEAST.get(kind, 1)


def most_members(schema: JsonObject) -> int:
    """How often what is inside a list or map can occur."""
    if schema.get("type") == "array":
        return _most_items(schema, no_references) if isinstance(schema.get("items"), dict) else 1
    if isinstance(schema.get("additionalProperties"), dict):
        most = schema.get("maxProperties")
        return (REQUEST_BYTES - 2) // (_least_bytes(schema["additionalProperties"]) + 6) if most is None else int(most)
    return 1


def converted(schema: JsonObject | None, value: Any) -> Any:
    """A value as expressions see it: times, durations and bytes instead of texts, doubles where the schema says so."""
    if schema is None:
        return value
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        inner = others if isinstance(others, dict) else None
        return {name: converted(properties.get(name, inner), each) for name, each in value.items()}
    if isinstance(value, list):
        items = schema.get("items")
        return [converted(items if isinstance(items, dict) else None, each) for each in value]
    if isinstance(value, str):
        return _converted_text(schema.get("format"), value) if schema.get("type") == "string" else value
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if schema.get("type") == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _converted_text(form: str | None, text: str) -> Any:
    if form in ("date-time", "date"):
        nanos = unix_nanos(text if form == "date-time" else f"{text}T00:00:00Z")
        return text if nanos is None else Timestamp(nanos)
    if form == "duration":
        try:
            found: Duration = parsed_duration(text)
        except EvaluationError:
            return text
        return found
    if form == "byte":
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            return text
    return text
