"""Structs as protobuf messages: the field's number is in its annotation, `name: Annotated[str, 3] = ""`.

As in proto3, a field with its default value is not written, an absent one is read as the default, and unknown numbers
are skipped. So a struct may declare only the fields that its reader needs. Repeated fields are tuples, maps of text to
text are dicts, messages are `Other | None`; a repeated message may be `tuple[bytes, ...]`, to be decoded later.
`Unsigned` is for numbers that may be 2^63 or more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Annotated, Any, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from plimsoll.codec.protobuf import wire

Unsigned = NewType("Unsigned", int)
Read = Callable[[int | bytes], Any]
FieldWriter = Callable[[int, Any], bytes]
M = TypeVar("M", bound=msgspec.Struct)


class _Field(msgspec.Struct, frozen=True):
    name: str
    number: int
    form: str  # one, repeated, packed or map
    read: Read
    write: FieldWriter


def encode(message: msgspec.Struct) -> bytes:
    parts = []
    for field in _plan(type(message)):
        value = getattr(message, field.name)
        if value is None:
            continue
        if field.form == "repeated":
            parts += [field.write(field.number, each) for each in value]
        elif field.form == "map":
            parts += [
                wire.bytes_field(field.number, wire.bytes_field(1, key.encode()) + wire.bytes_field(2, text.encode()))
                for key, text in value.items()
            ]
        elif field.form == "packed":
            if value:
                parts.append(wire.bytes_field(field.number, b"".join(map(wire.varint, value))))
        elif isinstance(value, msgspec.Struct) or value:  # an empty message is written, because it is present
            parts.append(field.write(field.number, value))
    return b"".join(parts)


def decode(kind: type[M], data: bytes) -> M:
    """Raises ProtobufError if the bytes are not such a message."""
    numbers = _by_number(kind)
    found: dict[str, Any] = {}
    for number, value in wire.fields(data):
        field = numbers.get(number)
        if field is None:
            continue
        name, form = field.name, field.form
        if form == "one":
            found[name] = field.read(value)
        elif form == "repeated":
            found.setdefault(name, []).append(field.read(value))
        elif form == "map":
            entry = dict(wire.fields(wire.as_bytes(value)))
            found.setdefault(name, {})[wire.as_text(entry.get(1, b""))] = wire.as_text(entry.get(2, b""))
        else:
            numbers_here = wire.packed(value) if isinstance(value, bytes) else (wire.as_signed(value),)
            found.setdefault(name, []).extend(numbers_here)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


@cache
def _by_number(kind: type[msgspec.Struct]) -> dict[int, _Field]:
    return {field.number: field for field in _plan(kind)}


@cache
def _plan(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    """In the order of the numbers, as protobuf writes them."""
    plan = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            raise TypeError(f"{kind.__name__}.{name} has no field number")
        of, number = get_args(hint)
        if get_origin(of) in (Union, UnionType):
            (of,) = (each for each in get_args(of) if each is not type(None))
        if get_origin(of) is tuple:
            item = get_args(of)[0]
            form = "packed" if item is int else "repeated"
            plan.append(_Field(name, number, form, *_codec(item)))
        elif get_origin(of) is dict:
            plan.append(_Field(name, number, "map", wire.as_text, _write_text))
        else:
            plan.append(_Field(name, number, "one", *_codec(of)))
    return tuple(sorted(plan, key=lambda field: field.number))


def _codec(of: Any) -> tuple[Read, FieldWriter]:
    if of is str:
        return wire.as_text, _write_text
    if of is bytes:
        return wire.as_bytes, wire.bytes_field
    if of is bool:
        return _read_bool, wire.varint_field
    if of is Unsigned:
        return wire.as_unsigned, wire.varint_field
    if of is int:
        return wire.as_signed, wire.varint_field
    if isinstance(of, type) and issubclass(of, msgspec.Struct):
        return (lambda value: decode(of, wire.as_bytes(value))), _write_message
    raise TypeError(f"no protobuf for {of}")


def _read_bool(value: int | bytes) -> bool:
    return wire.as_unsigned(value) != 0


def _write_text(number: int, text: str) -> bytes:
    return wire.bytes_field(number, text.encode())


def _write_message(number: int, message: msgspec.Struct) -> bytes:
    return wire.bytes_field(number, encode(message))
