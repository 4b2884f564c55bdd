"""JSONSchemaProps, the schema of a custom resource, from protobuf.

Typed clients send CustomResourceDefinitions as protobuf. The numbers are those of apiextensions.k8s.io/v1. Go writes
the zero of a field that is not a pointer; where JSON omits it, it is dropped here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec

from plimsoll.codec.protobuf.wire import ProtobufError, as_bytes, as_signed, as_text, fields
from plimsoll.rules.model.json_object import JsonObject

MAX_DEPTH = 150  # schemas within schemas

Reader = Callable[[int | bytes, int], Any]


def schema_from_protobuf(data: bytes, depth: int = 0) -> JsonObject:
    """Raises ProtobufError."""
    if depth > MAX_DEPTH:
        raise ProtobufError(f"a schema may have at most {MAX_DEPTH} levels")
    schema: JsonObject = {}
    for number, value in fields(data):
        if number in _SINGLE:
            name, read = _SINGLE[number]
            schema[name] = read(value, depth)
        elif number in _OMITTED_IF_ZERO:
            name, read = _OMITTED_IF_ZERO[number]
            if found := read(value, depth):
                schema[name] = found
        elif number in _LISTS:
            name, read = _LISTS[number]
            schema.setdefault(name, []).append(read(value, depth))
        elif number in _MAPS:
            name, read = _MAPS[number]
            entry = dict(fields(as_bytes(value)))
            schema.setdefault(name, {})[as_text(entry.get(1, b""))] = read(entry.get(2, b""), depth)
    return schema


def _text(value: int | bytes, _depth: int) -> str:
    return as_text(value)


def _number(value: int | bytes, _depth: int) -> int:
    return as_signed(value)


def _bool(value: int | bytes, _depth: int) -> bool:
    return as_signed(value) != 0


def _double(value: int | bytes, _depth: int) -> int | float:
    data = as_bytes(value)
    if len(data) != 8:
        raise ProtobufError("proto: wrong wireType = 2 for a double")
    number: float = struct.unpack("<d", data)[0]
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _json(value: int | bytes, _depth: int) -> Any:
    raw = as_bytes(dict(fields(as_bytes(value))).get(1, b"null"))
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise ProtobufError(f"a value inside the schema is not JSON: {error}") from None


def _schema(value: int | bytes, depth: int) -> JsonObject:
    return schema_from_protobuf(as_bytes(value), depth + 1)


def _schema_or_list(value: int | bytes, depth: int) -> JsonObject | list[JsonObject]:
    members = list(fields(as_bytes(value)))
    for number, member in members:
        if number == 1:
            return _schema(member, depth)
    return [_schema(member, depth) for number, member in members if number == 2]


def _schema_or_bool(value: int | bytes, depth: int) -> JsonObject | bool:
    members = dict(fields(as_bytes(value)))
    return _schema(members[2], depth) if 2 in members else _bool(members.get(1, 0), depth)


def _schema_or_names(value: int | bytes, depth: int) -> JsonObject | list[str]:
    members = list(fields(as_bytes(value)))
    for number, member in members:
        if number == 1:
            return _schema(member, depth)
    return [as_text(member) for number, member in members if number == 2]


def _members(names: dict[int, tuple[str, Reader]]) -> Reader:
    def read(value: int | bytes, depth: int) -> JsonObject:
        found: JsonObject = {}
        for number, member in fields(as_bytes(value)):
            if number in names:
                name, reader = names[number]
                if text := reader(member, depth):
                    found[name] = text
        return found

    return read


_RULE = _members(
    {
        1: ("rule", _text),
        2: ("message", _text),
        3: ("messageExpression", _text),
        4: ("reason", _text),
        5: ("fieldPath", _text),
        6: ("optionalOldSelf", _bool),
    }
)

_OMITTED_IF_ZERO: dict[int, tuple[str, Reader]] = {
    1: ("id", _text),
    2: ("$schema", _text),
    4: ("description", _text),
    5: ("type", _text),
    6: ("format", _text),
    7: ("title", _text),
    10: ("exclusiveMaximum", _bool),
    12: ("exclusiveMinimum", _bool),
    15: ("pattern", _text),
    18: ("uniqueItems", _bool),
    37: ("nullable", _bool),
    39: ("x-kubernetes-embedded-resource", _bool),
    40: ("x-kubernetes-int-or-string", _bool),
}
_SINGLE: dict[int, tuple[str, Reader]] = {
    3: ("$ref", _text),
    8: ("default", _json),
    9: ("maximum", _double),
    11: ("minimum", _double),
    13: ("maxLength", _number),
    14: ("minLength", _number),
    16: ("maxItems", _number),
    17: ("minItems", _number),
    19: ("multipleOf", _double),
    21: ("maxProperties", _number),
    22: ("minProperties", _number),
    24: ("items", _schema_or_list),
    28: ("not", _schema),
    30: ("additionalProperties", _schema_or_bool),
    33: ("additionalItems", _schema_or_bool),
    35: ("externalDocs", _members({1: ("description", _text), 2: ("url", _text)})),
    36: ("example", _json),
    38: ("x-kubernetes-preserve-unknown-fields", _bool),
    42: ("x-kubernetes-list-type", _text),
    43: ("x-kubernetes-map-type", _text),
}
_LISTS: dict[int, tuple[str, Reader]] = {
    20: ("enum", _json),
    23: ("required", _text),
    25: ("allOf", _schema),
    26: ("oneOf", _schema),
    27: ("anyOf", _schema),
    41: ("x-kubernetes-list-map-keys", _text),
    44: ("x-kubernetes-validations", _RULE),
}
_MAPS: dict[int, tuple[str, Reader]] = {
    29: ("properties", _schema),
    31: ("patternProperties", _schema),
    32: ("dependencies", _schema_or_names),
    34: ("definitions", _schema),
}
