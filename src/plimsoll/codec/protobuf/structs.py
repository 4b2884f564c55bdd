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
from msgspec.structs import astuple

from plimsoll.codec.protobuf import wire

Unsigned = NewType("Unsigned", int)
Read = Callable[[int | bytes], Any]
Write = Callable[[list[bytes], Any], None]
M = TypeVar("M", bound=msgspec.Struct)

ONE, REPEATED, PACKED, MAP = range(4)


class _Plan(msgspec.Struct, frozen=True):
    """What a message is made of; writers in the order of the numbers, as protobuf writes them."""

    writers: tuple[tuple[int, Write], ...]  # with the place of the field in the struct
    readers: dict[int, tuple[str, int, Read]]  # by number: name, form
    tuples: tuple[str, ...]


def encode(message: msgspec.Struct) -> bytes:
    parts: list[bytes] = []
    values = astuple(message)
    for place, write in _plan(type(message)).writers:
        value = values[place]
        if value:  # an empty message is written, because it is present
            write(parts, value)
    return b"".join(parts)


def decode(kind: type[M], data: bytes) -> M:
    """Raises ProtobufError if the bytes are not such a message."""
    plan = _plan(kind)
    readers, found = plan.readers, dict[str, Any]()
    for number, value in wire.fields(data):
        reader = readers.get(number)
        if reader is None:
            continue
        name, form, read = reader
        if form == ONE:
            found[name] = read(value)
        elif form == REPEATED:
            found.setdefault(name, []).append(read(value))
        elif form == MAP:
            entry = dict(wire.fields(wire.as_bytes(value)))
            found.setdefault(name, {})[wire.as_text(entry.get(1, b""))] = wire.as_text(entry.get(2, b""))
        else:
            numbers = wire.packed(value) if isinstance(value, bytes) else (read(value),)
            found.setdefault(name, []).extend(numbers)
    for name in plan.tuples:
        if name in found:
            found[name] = tuple(found[name])
    return kind(**found)


@cache
def _plan(kind: type[msgspec.Struct]) -> _Plan:
    writers, readers, tuples = [], {}, []
    hints = get_type_hints(kind, include_extras=True)
    for place, name in enumerate(kind.__struct_fields__):
        hint = hints[name]
        if get_origin(hint) is not Annotated:
            raise TypeError(f"{kind.__name__}.{name} has no field number")
        of, number = get_args(hint)
        if get_origin(of) in (Union, UnionType):
            (of,) = (each for each in get_args(of) if each is not type(None))
        if get_origin(of) is tuple:
            item = get_args(of)[0]
            read, write = _codec(item, number)
            form, write = (PACKED, _packed(number)) if item is int else (REPEATED, _each(write))
            tuples.append(name)
        elif get_origin(of) is dict:
            form, read, write = MAP, wire.as_text, _map(number)
        else:
            form, (read, write) = ONE, _codec(of, number)
        readers[number] = name, form, read
        writers.append((number, place, write))
    in_order = sorted(writers, key=lambda each: each[0])
    return _Plan(tuple((place, write) for _, place, write in in_order), readers, tuple(tuples))


def _codec(of: Any, number: int) -> tuple[Read, Write]:
    if of is str:
        return wire.as_text, _bytes(number, str.encode)
    if of is bytes:
        return wire.as_bytes, _bytes(number, bytes)
    if of in (bool, int, Unsigned):
        return {bool: _read_bool, int: wire.as_signed, Unsigned: wire.as_unsigned}[of], _number(number)
    if isinstance(of, type) and issubclass(of, msgspec.Struct):
        return (lambda value: decode(of, wire.as_bytes(value))), _bytes(number, encode)
    raise TypeError(f"no protobuf for {of}")


def _read_bool(value: int | bytes) -> bool:
    return wire.as_unsigned(value) != 0


# What follows makes writers, each with the key of its field.


def _bytes(number: int, to_bytes: Callable[[Any], bytes]) -> Write:
    key = wire.key(number, wire.BYTES)

    def write(parts: list[bytes], value: Any) -> None:
        data = to_bytes(value)
        parts += key, wire.varint(len(data)), data

    return write


def _number(number: int) -> Write:
    key = wire.key(number, wire.VARINT)

    def write(parts: list[bytes], value: int) -> None:
        parts += key, wire.varint(value)

    return write


def _packed(number: int) -> Write:
    return _bytes(number, lambda values: b"".join(map(wire.varint, values)))


def _each(one: Write) -> Write:
    def write(parts: list[bytes], values: tuple[Any, ...]) -> None:
        for value in values:
            one(parts, value)

    return write


def _map(number: int) -> Write:
    entry = _bytes(number, lambda pair: wire.bytes_field(1, pair[0].encode()) + wire.bytes_field(2, pair[1].encode()))

    def write(parts: list[bytes], values: dict[str, str]) -> None:
        for pair in values.items():
            entry(parts, pair)

    return write
