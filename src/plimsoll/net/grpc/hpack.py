"""HPACK (RFC 7541): lists of fields ↔ bytes. We send no dynamic table and no Huffman code; a peer may use both."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from plimsoll.net.grpc.frames import COMPRESSION_ERROR, ConnectionFaultError

NO_TABLE = b"\x20"  # a dynamic table of size 0 (section 6.3)
TABLE_BYTES = 4_096  # of the peer's dynamic table
FIELD_BYTES = 32  # that a field counts beside its name and value (section 4.1)
_LONGEST_INTEGER = 5  # bytes after the prefix

_STATIC = [  # appendix A, from 1
    *((b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html")),
    *((b":scheme", b"http"), (b":scheme", b"https")),
    *((b":status", each) for each in b"200 204 206 304 400 404 500".split()),
    *((b"accept-charset", b""), (b"accept-encoding", b"gzip, deflate")),
    *(
        (each, b"")
        for each in b"""
        accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control
        content-disposition content-encoding content-language content-length content-location content-range content-type
        cookie date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
        last-modified link location max-forwards proxy-authenticate proxy-authorization range referer refresh
        retry-after server set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate
        """.split()
    ),
]
_INDEX = {field: index for index, field in enumerate(_STATIC, 1)}
_NAME_INDEX = {name: index for index, (name, _) in reversed([*enumerate(_STATIC, 1)])}

# Appendix B. Codes ascend with their length, and with the symbol among those of one length.
_SYMBOLS_BY_BITS = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\0$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: bytes.fromhex("808283a2b8c2e0e2"),
    21: bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6"),
    22: bytes.fromhex("81848586 88929a9c a0a3a4a9 aaadb2b5 b9babbbd bec4c6e4 e8e9"),
    23: bytes.fromhex("0187898a 8b8c8d8f 93959697 989b9d9e a5a6a8ae afb4b6b7 bcbfc5e7 ef"),
    24: bytes.fromhex("098e9091949fabced7e1eced"),
    25: bytes.fromhex("c7cfeaeb"),
    26: bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff"),
    27: bytes.fromhex("cbccd3d4 d6dddedf f1f4f5f6 f7f8fafb fcfdfe"),
    28: bytes.fromhex("02030405 0607080b 0c0e0f10 11121314 15171819 1a1b1c1d 1e1f7fdc f9"),
    30: b"\n\r\x16",  # and the end of the string, which must not occur
}
_MOST_BITS = 30


def _first_codes() -> list[int]:
    """The first code of each length, followed by zeros up to _MOST_BITS."""
    found, code = [], 0
    for bits, symbols in _SYMBOLS_BY_BITS.items():
        found.append(code)
        code += len(symbols) << (_MOST_BITS - bits)
    return found


_ROWS, _FIRST_CODES = [*_SYMBOLS_BY_BITS.items()], _first_codes()


class Decoder:
    """Of one connection, because the dynamic table is the state of all its blocks."""

    def __init__(self, max_list_bytes: int) -> None:
        self._max_list_bytes = max_list_bytes
        self._table: deque[tuple[bytes, bytes]] = deque()  # the newest first
        self._table_bytes, self._table_limit = 0, TABLE_BYTES

    def decoded(self, block: bytes) -> list[tuple[bytes, bytes]]:
        """Raises ConnectionFaultError."""
        fields: list[tuple[bytes, bytes]] = []
        at, size = 0, 0
        try:
            while at < len(block):
                first = block[at]
                if first >= 0x80:
                    index, at = _read_integer(block, at, 7)
                    field = self._at(index)
                elif first & 0xE0 == 0x20:
                    limit, at = _read_integer(block, at, 5)
                    if fields or limit > TABLE_BYTES:
                        raise _fault(f"a table of {limit} bytes after {len(fields)} fields")
                    self._resize(limit)
                    continue
                else:
                    index, at = _read_integer(block, at, 6 if first >= 0x40 else 4)
                    name, at = (self._at(index)[0], at) if index else _read_text(block, at)
                    value, at = _read_text(block, at)
                    field = name, value
                    if first >= 0x40:
                        self._insert(field)
                fields.append(field)
                size += len(field[0]) + len(field[1]) + FIELD_BYTES
                if size > self._max_list_bytes:
                    raise _fault(f"more than {self._max_list_bytes} bytes")
        except IndexError:
            raise _fault("cut") from None
        return fields

    def _at(self, index: int) -> tuple[bytes, bytes]:
        if 0 < index <= len(_STATIC):
            return _STATIC[index - 1]
        if not 0 < index <= len(_STATIC) + len(self._table):
            raise _fault(f"the index {index}")
        return self._table[index - len(_STATIC) - 1]

    def _insert(self, field: tuple[bytes, bytes]) -> None:
        """A field that is larger than the table empties it (section 4.4)."""
        self._table.appendleft(field)
        self._table_bytes += len(field[0]) + len(field[1]) + FIELD_BYTES
        self._resize(self._table_limit)

    def _resize(self, limit: int) -> None:
        self._table_limit = limit
        while self._table_bytes > limit:
            name, value = self._table.pop()
            self._table_bytes -= len(name) + len(value) + FIELD_BYTES


def encoded(fields: Iterable[tuple[str, str]]) -> bytes:
    """Indexed where the static table has the field, else a literal without indexing (section 6.2.2)."""
    parts = []
    for name, value in fields:
        field = name.encode(), value.encode()
        if index := _INDEX.get(field):
            parts.append(_integer(index, 7, 0x80))
        elif index := _NAME_INDEX.get(field[0]):
            parts += _integer(index, 4), _text(field[1])
        else:
            parts += b"\0", _text(field[0]), _text(field[1])
    return b"".join(parts)


def _text(data: bytes) -> bytes:
    return _integer(len(data), 7) + data


def _integer(value: int, prefix_bits: int, first: int = 0) -> bytes:
    """Section 5.1: 1337 with a prefix of 5 bits is 31, 154, 10."""
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes((first | value,))
    found, left = bytearray((first | most,)), value - most
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _read_integer(block: bytes, at: int, prefix_bits: int) -> tuple[int, int]:
    """The number, and the place after it."""
    most = (1 << prefix_bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    for shift in range(0, 7 * _LONGEST_INTEGER, 7):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _fault("a number without an end")


def _read_text(block: bytes, at: int) -> tuple[bytes, int]:
    is_coded = block[at] >= 0x80
    size, at = _read_integer(block, at, 7)
    data = block[at : at + size]
    if len(data) < size:
        raise _fault("cut")
    return huffman_decoded(data) if is_coded else data, at + size


def huffman_decoded(coded: bytes) -> bytes:
    """Bits are taken from the left. What is left of the last byte begins the longest code (section 5.2)."""
    found = bytearray()
    bits, count = 0, 0
    for byte in coded:
        bits, count = bits << 8 | byte, count + 8
        while count:
            code = bits << (_MOST_BITS - count) if count < _MOST_BITS else bits >> (count - _MOST_BITS)
            row = bisect_right(_FIRST_CODES, code) - 1
            size, symbols = _ROWS[row]
            if size > count:
                break
            place = (code - _FIRST_CODES[row]) >> (_MOST_BITS - size)
            if place >= len(symbols):
                raise _fault("the end of a string in it")
            found.append(symbols[place])
            count -= size
            bits &= (1 << count) - 1
    if count > 7 or bits != (1 << count) - 1:
        raise _fault("a string with other bits at its end")
    return bytes(found)


def _fault(what: str) -> ConnectionFaultError:
    """The table is lost (section 2.2 of RFC 7541, section 4.3 of RFC 9113)."""
    return ConnectionFaultError(COMPRESSION_ERROR, f"a header block cannot be decoded: {what}")
