"""Static types of values that an OpenAPI schema describes, and those values as expressions see them.

How long a text, list or map can be follows from its schema, or from the size of the largest request and the shortest
JSON of a member. A list of `{name: string}` with the name required: (3145728 − 2) // (12 + 1) members, because
`{"name": ""}` counts 2 + 4 + 2 + 4.

Source: k8s.io/apiserver pkg/cel/common/schemas.go.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from plimsoll.codec.cel.environment import unescaped
from plimsoll.codec.cel.standard import parsed_duration
from plimsoll.codec.cel.types import BOOL, DOUBLE, DYN, INT, STRING, Type, list_of, map_of
from plimsoll.codec.cel.values import Duration, EvaluationError, Timestamp
from plimsoll.rules.admission.custom_resources.extensions import EMBEDDED, INT_OR_STRING
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import unix_nanos

REQUEST_BYTES = 3 * 1024 * 1024
_METADATA: JsonObject = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
}
_OF_RESOURCES: JsonObject = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _METADATA}
_LEAST = {"string": 2, "integer": 1, "number": 1, "boolean": 4, "array": 2}
_LEAST_OF_FORMAT = {"duration": 3, "date-time": 21, "date": 12}
_MOST_OF_FORMAT = {"duration": 32, "date-time": 32, "date": 12}
_BYTES_OF_CHAR = 4
_TYPE_OF_FORMAT = {"byte": "bytes", "date": "timestamp", "date-time": "timestamp", "duration": "duration"}

Resolve = Callable[[JsonObject], JsonObject]


def no_references(schema: JsonObject) -> JsonObject:
    return schema


def type_of(
    schema: JsonObject, path: str = "self", *, is_resource: bool = False, resolve: Resolve = no_references
) -> Type:
    """`resolve` follows the `$ref` of documents that have some. Fields are typed when they are first asked for."""
    schema = resolve(schema)
    if schema.get(INT_OR_STRING) or schema.get("format") == "int-or-string":
        return Type("dyn", longest=_most_chars(schema))
    kind = schema.get("type")
    if kind == "string":
        return _text_type(schema)
    if kind in ("integer", "number", "boolean"):
        return {"integer": INT, "number": DOUBLE, "boolean": BOOL}[kind]
    if kind == "array":
        items = schema.get("items")
        if not isinstance(items, dict):
            return DYN
        most = schema.get("maxItems")
        if most is None:
            most = (REQUEST_BYTES - 2) // (least_bytes(items, resolve) + 1)
        return list_of(type_of(items, f"{path}.@idx", resolve=resolve), max(0, int(most)))
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        most = schema.get("maxProperties")
        if most is None:
            most = (REQUEST_BYTES - 2) // (least_bytes(others, resolve) + 6)
        return map_of(STRING, type_of(others, f"{path}.@elem", resolve=resolve), max(0, int(most)))
    return _object(path, properties_of(schema, is_resource=is_resource), resolve)


def _is_declared(schema: JsonObject, resolve: Resolve) -> bool:
    """Whether expressions can read a field with this schema: not one of any type."""
    schema = resolve(schema)
    if schema.get(INT_OR_STRING) or schema.get("format") == "int-or-string":
        return True
    inner = schema.get("items") if schema.get("type") == "array" else schema.get("additionalProperties")
    if schema.get("type") == "array" and not isinstance(inner, dict):
        return False
    return bool(schema.get("type")) and (not isinstance(inner, dict) or _is_declared(inner, resolve))


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
            is_there = real in properties and _is_declared(properties[real], resolve)
            known[name] = type_of(properties[real], f"{path}.{real}", resolve=resolve) if is_there else None
        return known[name]

    return Type("object", fields=field, shown=path)


def _text_type(schema: JsonObject) -> Type:
    return Type(_TYPE_OF_FORMAT.get(schema.get("format") or "", "string"), longest=_most_chars(schema))


def _most_chars(schema: JsonObject) -> int:
    form, most = schema.get("format"), schema.get("maxLength")
    if form in _MOST_OF_FORMAT:
        return _MOST_OF_FORMAT[form]
    if most is not None:
        return max(0, int(most)) * (1 if form == "byte" else _BYTES_OF_CHAR)
    if schema.get("enum") and form != "byte":
        return max(len(each.encode()) if isinstance(each, str) else 0 for each in schema["enum"])
    return REQUEST_BYTES - 2


def least_bytes(schema: JsonObject, resolve: Resolve = no_references) -> int:
    """The shortest JSON of a value. Fields with a default may be left out."""
    schema = resolve(schema)
    if schema.get(INT_OR_STRING):
        return 1
    kind = schema.get("type")
    if kind == "string":
        return _LEAST_OF_FORMAT.get(schema.get("format") or "", _LEAST["string"])
    if kind in _LEAST:
        return _LEAST[kind]
    if isinstance(schema.get("additionalProperties"), dict):
        return 2
    inner, required = schema.get("properties") or {}, set(schema.get("required") or ())
    counted = {name: resolve(each) for name, each in inner.items() if name in required and isinstance(each, dict)}
    return 2 + sum(
        len(name) + least_bytes(each, resolve) + 4 for name, each in counted.items() if "default" not in each
    )


def most_members(schema: JsonObject) -> int | None:
    """How often what is inside a list or map can occur; None where the schema does not limit it."""
    if schema.get("type") == "array":
        most = schema.get("maxItems")
    elif schema.get("type") == "object" and schema.get("additionalProperties") is not None:
        most = schema.get("maxProperties")
    else:
        return 1
    return None if most is None else max(0, int(most))


def most_occurrences(schema: JsonObject) -> int:
    """In one request, with a comma behind each."""
    return REQUEST_BYTES // (least_bytes(schema) + 1)


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
