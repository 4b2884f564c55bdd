"""Documents → Kubernetes' protobuf messages, the inverse of `kube`.

Fields are written in the order of their numbers. Zeros, which Go's encoder writes too, are left out: a reader takes an
absent field for its zero. A member that the tables do not have has no number and is left out as well.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import msgspec

from plimsoll.codec.protobuf.wire import ProtobufError, bytes_field, varint, varint_field
from plimsoll.codec.schema.schema import Field, Type, schema, struct
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import unix_nanos

_STRING = Type("string", "string")
_BILLION = 10**9


def to_protobuf(api_version: str, kind: str, document: JsonObject) -> bytes:
    """The object alone, as Go's `Marshal` of its type: no envelope, no apiVersion and kind. Raises ProtobufError."""
    return _message(schema(api_version, kind).table, document)


Numbered = tuple[tuple[int, "Field | Numbered"], ...]


@cache
def _by_number(name: str) -> Numbered:
    """Fields with their numbers, ascending; the members of an embedded message together."""
    return _grouped([(field.number, field) for field in struct(name).fields.values() if field.number])


def _grouped(numbered: list[tuple[tuple[int, ...], Field]]) -> Numbered:
    found: dict[int, Any] = {}
    for (first, *rest), field in numbered:
        if rest:
            found.setdefault(first, []).append((tuple(rest), field))
        else:
            found[first] = field
    return tuple((number, _grouped(each) if isinstance(each, list) else each) for number, each in sorted(found.items()))


def _message(name: str, document: JsonObject) -> bytes:
    return _members(_by_number(name), document)


def _members(numbered: Numbered, document: JsonObject) -> bytes:
    parts = []
    for number, field in numbered:
        if isinstance(field, tuple):
            if embedded := _members(field, document):
                parts.append(bytes_field(number, embedded))
        else:
            parts.append(_field(number, field, document.get(field.name)))
    return b"".join(parts)


def _field(number: int, field: Field, value: Any) -> bytes:
    if value is None:
        return b""
    kind = field.type
    if kind.form == "list":
        return b"".join(_value(number, kind.item or _STRING, each) for each in value)
    if kind.form == "map":
        item = kind.item or _STRING
        return b"".join(
            bytes_field(number, bytes_field(1, key.encode()) + _value(2, item, each)) for key, each in value.items()
        )
    return _value(number, kind, value)


def _value(number: int, kind: Type, value: Any) -> bytes:
    form = kind.form
    if form == "string":
        return bytes_field(number, str(value).encode())
    if form == "object":
        return bytes_field(number, _message(kind.struct, value))
    if form in ("int32", "int64", "bool"):
        return varint_field(number, int(value))
    if form == "bytes":
        return bytes_field(number, base64.b64decode(value))
    return bytes_field(number, _special(kind, value))


def _special(kind: Type, value: Any) -> bytes:
    """Types that are messages in protobuf and scalars in JSON."""
    form = kind.form
    if form == "list":  # a list as a map value is a message with the elements
        return b"".join(_value(1, kind.item or _STRING, each) for each in value)
    if form == "Quantity":
        return bytes_field(1, str(value).encode())
    if form == "IntOrString":
        if isinstance(value, str):
            return varint_field(1, 1) + bytes_field(3, value.encode())
        return varint_field(2, value)
    if form == "FieldsV1":
        return bytes_field(1, msgspec.json.encode(value))
    if form in ("Time", "MicroTime") and (nanos := unix_nanos(str(value))) is not None:
        seconds, fraction = divmod(nanos, _BILLION)
        return varint_field(1, seconds) + (b"\x10" + varint(fraction) if fraction else b"")
    raise ProtobufError(f"{kind.go}: {value!r} cannot be written as protobuf")
