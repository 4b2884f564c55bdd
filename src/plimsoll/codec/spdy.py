"""SPDY/3.1 frames without a socket: what kubectl up to 1.29 speaks for exec, attach and port-forward.

Bytes in, events out; calls return the bytes to send. A connection is one pair of zlib streams for headers, primed with
the dictionary of the specification, and any number of streams. Data comes in the pieces in which it arrives, so that a
client cannot make the server keep a large frame. The clients in question ignore the windows of the specification: they
send no window updates and do not wait for any. `window_update` is for those that do.

https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from plimsoll.errors import PlimsollError

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
FIN: Final = 1
PROTOCOL = "SPDY/3.1"  # of the Upgrade header
VERSION_HEADER = "X-Stream-Protocol-Version"  # of the protocol above the streams
PROTOCOL_ERROR, REFUSED_STREAM, CANCEL = 1, 3, 5
MAX_CONTROL_BYTES = 64 << 10
MAX_HEADER_BYTES = 64 << 10  # unpacked
MAX_DATA_BYTES = (1 << 24) - 1
_VERSION = 3

_WORDS = """
options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow
authorization cache-control connection content-base content-encoding content-language content-length content-location
content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match
if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range
referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get
status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin
"""
_TAIL = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _dictionary() -> bytes:
    words = (word.replace("_", " ").encode() for word in _WORDS.split())
    return b"".join(struct.pack(">I", len(word)) + word for word in words) + _TAIL.encode()


class SpdyError(PlimsollError):
    """The other side broke the protocol; the connection is of no more use."""


class StreamOpened(NamedTuple):
    stream: int
    headers: Mapping[str, str]
    is_last: bool


class StreamAccepted(NamedTuple):
    """The answer to a stream that this side opened."""

    stream: int
    headers: Mapping[str, str]


class StreamData(NamedTuple):
    stream: int
    data: bytes
    is_last: bool


class StreamReset(NamedTuple):
    stream: int
    status: int


class PingReceived(NamedTuple):
    """To be answered with `pong(number)`."""

    number: int


class GoneAway(NamedTuple):
    """The other side opens no more streams."""


Event = StreamOpened | StreamAccepted | StreamData | StreamReset | PingReceived | GoneAway


class SpdyConnection:
    def __init__(self) -> None:
        dictionary = _dictionary()
        self._unpack = zlib.decompressobj(zdict=dictionary)
        self._pack = zlib.compressobj(zdict=dictionary)
        self._buffer = bytearray()
        self._data_left = 0
        self._data_stream = 0
        self._data_is_last = False

    def receive(self, data: bytes) -> Iterator[Event]:
        """The events of these bytes; what is not complete yet is kept. Raises SpdyError."""
        self._buffer += data
        while True:
            if self._data_left:
                if not self._buffer:
                    return
                piece = bytes(self._buffer[: self._data_left])
                del self._buffer[: len(piece)]
                self._data_left -= len(piece)
                yield StreamData(self._data_stream, piece, self._data_is_last and not self._data_left)
                continue
            if len(self._buffer) < 8:
                return
            first, second = struct.unpack_from(">II", self._buffer)
            flags, length = second >> 24, second & 0xFFFFFF
            if not first >> 31:
                del self._buffer[:8]
                if not length:
                    yield StreamData(first, b"", bool(flags & FIN))
                    continue
                self._data_stream, self._data_left, self._data_is_last = first, length, bool(flags & FIN)
                continue
            if first >> 16 & 0x7FFF != _VERSION:
                raise SpdyError(f"SPDY version {first >> 16 & 0x7FFF} is not {_VERSION}")
            if length > MAX_CONTROL_BYTES:
                raise SpdyError(f"a control frame of {length} bytes is larger than {MAX_CONTROL_BYTES}")
            if len(self._buffer) < 8 + length:
                return
            body = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            event = self._control(first & 0xFFFF, flags, body)
            if event is not None:
                yield event

    def open(self, stream: int, headers: Mapping[str, str], *, is_last: bool = False) -> bytes:
        return self._headed(SYN_STREAM, struct.pack(">IIH", stream, 0, 0), headers, FIN if is_last else 0)

    def accept(self, stream: int, headers: Mapping[str, str] | None = None) -> bytes:
        return self._headed(SYN_REPLY, struct.pack(">I", stream), headers or {}, 0)

    def data(self, stream: int, data: bytes, *, is_last: bool = False) -> bytes:
        """One frame; `is_last` ends this side's half of the stream."""
        if len(data) > MAX_DATA_BYTES:
            raise ValueError(f"{len(data)} bytes do not fit into one frame")
        return struct.pack(">II", stream, (FIN if is_last else 0) << 24 | len(data)) + data

    def reset(self, stream: int, status: int = CANCEL) -> bytes:
        return _control(RST_STREAM, struct.pack(">II", stream, status))

    def pong(self, number: int) -> bytes:
        return _control(PING, struct.pack(">I", number))

    def window_update(self, stream: int, size: int) -> bytes:
        """So many more bytes may be sent; stream 0 means the whole connection."""
        return _control(WINDOW_UPDATE, struct.pack(">II", stream, size))

    def go_away(self, last_stream: int = 0) -> bytes:
        return _control(GOAWAY, struct.pack(">II", last_stream, 0))

    def _headed(self, kind: int, start: bytes, headers: Mapping[str, str], flags: int) -> bytes:
        pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        plain = struct.pack(">I", len(pairs)) + b"".join(_counted(name) + _counted(value) for name, value in pairs)
        packed = self._pack.compress(plain) + self._pack.flush(zlib.Z_SYNC_FLUSH)
        return _control(kind, start + packed, flags)

    def _control(self, kind: int, flags: int, body: bytes) -> Event | None:
        try:
            match kind:
                case 1:
                    (stream,) = struct.unpack_from(">I", body)
                    return StreamOpened(stream & 0x7FFFFFFF, self._headers(body[10:]), bool(flags & FIN))
                case 2:
                    (stream,) = struct.unpack_from(">I", body)
                    return StreamAccepted(stream & 0x7FFFFFFF, self._headers(body[4:]))
                case 3:
                    stream, status = struct.unpack_from(">II", body)
                    return StreamReset(stream & 0x7FFFFFFF, status)
                case 6:
                    return PingReceived(struct.unpack_from(">I", body)[0])
                case 7:
                    return GoneAway()
                case 8:
                    self._headers(body[4:])  # of no interest, but the compression has state
        except struct.error:
            raise SpdyError(f"a control frame of type {kind} is too short") from None
        return None  # SETTINGS, WINDOW_UPDATE and types of later versions

    def _headers(self, packed: bytes) -> dict[str, str]:
        try:
            plain = self._unpack.decompress(packed, MAX_HEADER_BYTES)
        except zlib.error as error:
            raise SpdyError(f"headers cannot be unpacked: {error}") from None
        if self._unpack.unconsumed_tail:
            raise SpdyError(f"headers are larger than {MAX_HEADER_BYTES} bytes")
        if len(plain) < 4:
            raise SpdyError("headers are too short")
        (count,) = struct.unpack_from(">I", plain)
        words, at = [], 4
        for _ in range(2 * count):
            if at + 4 > len(plain):
                raise SpdyError("headers are too short")
            (length,) = struct.unpack_from(">I", plain, at)
            if at + 4 + length > len(plain):
                raise SpdyError("headers are too short")
            words.append(plain[at + 4 : at + 4 + length].decode("latin-1"))
            at += 4 + length
        return _paired(words)


def _paired(words: Sequence[str]) -> dict[str, str]:
    return {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=True)}


def _counted(word: bytes) -> bytes:
    return struct.pack(">I", len(word)) + word


def _control(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">HHI", 0x8000 | _VERSION, kind, flags << 24 | len(body)) + body
