"""Kubernetes' protobuf request bodies → documents.

kubectl's typed clients send them (create namespace, drain, auth can-i …). A body is the four bytes `k8s\\0` and a
message with apiVersion, kind and the object. Its fields are those of the JSON form, by number; the numbers are in the
schema's tables. Go also writes zeros; they are read like zeros in JSON and dropped by `decode_document`. Fields with
unknown numbers are skipped, as in protobuf.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import msgspec

from plimsoll.codec.golang.times import TimeError, from_unix
from plimsoll.codec.protobuf.json_schema import schema_from_protobuf
from plimsoll.codec.protobuf.wire import ProtobufError, as_bytes, as_signed, as_text, fields, packed
from plimsoll.codec.schema.schema import Field, Type, schema, struct
from plimsoll.rules.model.json_object import JsonObject

__all__ = ["MAGIC", "ProtobufError", "from_protobuf", "object_from_protobuf"]


MAGIC = b"k8s\x00"
_STRING = Type("string", "string")


def from_protobuf(data: bytes) -> JsonObject:
    """The document (with apiVersion and kind) inside a `k8s\\0` envelope; raises ProtobufError."""
    if not data.startswith(MAGIC):
        raise ProtobufError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    api_version = kind = ""
    raw = b""
    for number, value in fields(data[len(MAGIC) :]):
        if number == 1:
            names = dict(fields(as_bytes(value)))
            api_version, kind = as_text(names.get(1, b"")), as_text(names.get(2, b""))
        elif number == 2:
            raw = as_bytes(value)
    table = "meta.DeleteOptions" if kind == "DeleteOptions" else _table(api_version, kind)
    return {"kind": kind, "apiVersion": api_version, **_message(table, raw)}


def object_from_protobuf(api_version: str, kind: str, data: bytes) -> JsonObject:
    """The document of a message without envelope, as gRPC APIs of the kubelet send it; raises ProtobufError."""
    return {"kind": kind, "apiVersion": api_version, **_message(_table(api_version, kind), data)}


def _table(api_version: str, kind: str) -> str:
    try:
        return schema(api_version, kind).table
    except KeyError:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"') from None


@cache
def _numbers(name: str) -> dict[int, Any]:
    """Fields by number; an embedded message has numbers of its own, and may embed another."""
    found: dict[int, Any] = {}
    for field in struct(name).fields.values():
        if not field.number:
            continue
        *outer, last = field.number
        members = found
        for number in outer:
            members = members.setdefault(number, {})
        members[last] = field
    return found


def _message(name: str, data: bytes) -> JsonObject:
    result: JsonObject = {}
    _read_into(result, _numbers(name), data)
    return result


def _read_into(result: JsonObject, numbers: dict[int, Any], data: bytes) -> None:
    for number, value in fields(data):
        field = numbers.get(number)
        if isinstance(field, dict):
            _read_into(result, field, as_bytes(value))
        elif field is not None:
            _put(result, field, value)


def _put(result: JsonObject, field: Field, value: int | bytes) -> None:
    kind = field.type
    item = kind.item or kind
    if kind.form == "list":
        elements = result.setdefault(field.name, [])
        if item.form in ("int32", "int64") and isinstance(value, bytes):
            elements += packed(value)
        else:
            elements.append(_value(item, value))
    elif kind.form == "map":
        entry = dict(fields(as_bytes(value)))
        result.setdefault(field.name, {})[as_text(entry.get(1, b""))] = _value(item, entry.get(2, b""))
    else:
        result[field.name] = _value(kind, value)


def _value(kind: Type, value: int | bytes) -> Any:
    form = kind.form
    if form == "string":
        return as_text(value)
    if form == "object":
        return _message(kind.struct, as_bytes(value))
    if form in ("int32", "int64"):
        return as_signed(value)
    if form == "bool":
        return as_signed(value) != 0
    if form == "bytes":
        return base64.b64encode(as_bytes(value)).decode()
    return _special(kind, as_bytes(value))


def _special(kind: Type, data: bytes) -> Any:
    """Types that are messages in protobuf and scalars in JSON."""
    if kind.form == "list":  # a list as a map value is a message with the elements
        return [_value(kind.item or _STRING, value) for number, value in fields(data) if number == 1]
    if not data and kind.form in ("Time", "MicroTime"):
        return None
    if kind.form == "JSON":
        return schema_from_protobuf(data)
    members = dict(fields(data))
    if kind.form == "Quantity":
        return as_text(members.get(1, b"")) or "0"
    if kind.form == "IntOrString":
        is_text = as_signed(members.get(1, 0)) == 1
        return as_text(members.get(3, b"")) if is_text else as_signed(members.get(2, 0))
    if kind.form == "FieldsV1":
        try:
            return msgspec.json.decode(as_bytes(members.get(1, b"{}")))
        except msgspec.DecodeError as error:
            raise ProtobufError(f"fieldsV1 is not JSON: {error}") from None
    if kind.form == "Duration":
        return f"{as_signed(members.get(1, 0)) / 10**9:g}s"
    try:
        seconds = as_signed(members.get(1, 0))
        if kind.form == "Time":
            return from_unix(seconds)
        more, micros = divmod(_micros(as_signed(members.get(2, 0))), 10**6)
        return from_unix(seconds + more, micros)
    except TimeError as error:
        raise ProtobufError(str(error)) from None


def _micros(nanos: int) -> int:
    """As Go reads the nanoseconds of a MicroTime: an int32, towards zero, also negative or more than a second."""
    nanos = (nanos + 2**31) % 2**32 - 2**31
    return nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
