"""Protobuf's wire format, without messages: numbered fields that are varints, fixed numbers or bytes.

Reading yields all fields in order, whether the number is known or not. The caller interprets them.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.errors import StructuredError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class ProtobufError(StructuredError):
    """Invalid protobuf, or not the expected message; `message` is the reason."""

    message: str


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: an unsigned number for varints, else bytes."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if wire == BYTES:
            size, at = read_varint(data, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise ProtobufError(f"proto: illegal wireType {wire}")
        if at + size > len(data):
            raise ProtobufError("unexpected EOF")
        yield number, data[at : at + size]
        at += size


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at this offset, and the offset after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ProtobufError("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
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
    return number - 2**64 if number >= 2**63 else number


def varint(value: int) -> bytes:
    """A number as protobuf writes it; a negative one as 64-bit two's complement."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    if value <= 0x7F:
        return bytes((value,))
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def bytes_field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def varint_field(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)
