"""Protobuf's wire format, without messages: numbered fields that are varints, fixed numbers or bytes.

Reading yields all fields in order, whether the number is known or not. The caller interprets them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from plimsoll.errors import StructuredError

_SIGN = 1 << 63
_SHIFTS = range(0, 70, 7)
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class ProtobufError(StructuredError):
    """Invalid protobuf, or not the expected message; `message` is the reason."""

    message: str


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: an unsigned number for varints, else bytes."""
    at, end = 0, len(data)
    while at < end:
        key = data[at]  # nearly all keys and sizes have one byte
        at += 1
        if key >= 0x80:
            key, at = read_varint(data, at - 1)
        wire = key & 7
        if wire == VARINT:
            value, at = read_varint(data, at)
            yield key >> 3, value
            continue
        if wire == BYTES:
            if at < end and data[at] < 0x80:
                size = data[at]
                at += 1
            else:
                size, at = read_varint(data, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise ProtobufError(f"proto: illegal wireType {wire}")
        stop = at + size
        if stop > end:
            raise ProtobufError("unexpected EOF")
        yield key >> 3, data[at:stop]
        at = stop


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at this offset, and the offset after it."""
    value = 0
    try:
        for shift in _SHIFTS:
            byte = data[at]
            at += 1
            if byte < 0x80:
                return (value | byte << shift) & 0xFFFF_FFFF_FFFF_FFFF, at
            value |= (byte & 0x7F) << shift
    except IndexError:
        raise ProtobufError("unexpected EOF") from None
    raise ProtobufError("proto: integer overflow")


def packed(data: bytes) -> Iterator[int]:
    """Signed numbers in one packed field."""
    at = 0
    while at < len(data):
        value, at = read_varint(data, at)
        yield as_signed(value)


def as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ProtobufError("proto: wrong wireType = 0 for a message")
    return value


def as_text(value: int | bytes) -> str:
    try:
        return as_bytes(value).decode()
    except UnicodeDecodeError:
        raise ProtobufError("proto: invalid UTF-8 in a string") from None


def as_unsigned(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ProtobufError("proto: wrong wireType = 2 for a number")
    return value


def as_signed(value: int | bytes) -> int:
    number = as_unsigned(value)
    return number if number < _SIGN else number - 2 * _SIGN


def varint(value: int) -> bytes:
    """A number as protobuf writes it; a negative one as 64-bit two's complement."""
    if 0 <= value <= 0x7F:
        return _ONE_BYTE[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


@cache
def key(number: int, wire: int) -> bytes:
    """What a field begins with."""
    return varint(number << 3 | wire)


def bytes_field(number: int, data: bytes) -> bytes:
    return key(number, BYTES) + varint(len(data)) + data


def varint_field(number: int, value: int) -> bytes:
    return key(number, VARINT) + varint(value)
