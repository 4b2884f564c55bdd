"""The two framings of an NRI socket, without I/O: the multiplexer's frames, and ttrpc's messages inside them.

    connection id (4) · length (4) · payload                                  the multiplexer
    length (4) · stream id (4) · type (1) · flags (1) · data                  ttrpc

Numbers are big-endian. A ttrpc message may span several frames. The peer reads a frame with one call into a buffer of
4096 bytes, so longer messages must be split.

https://github.com/containerd/ttrpc/blob/main/PROTOCOL.md
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from plimsoll.errors import StructuredError

REQUEST, RESPONSE, DATA = 1, 2, 3
MOST_DATA = 4 << 20  # of one ttrpc message
MOST_FRAME = 4096  # what a peer reads at once
_FRAME = struct.Struct(">II")
_MESSAGE = struct.Struct(">IIBB")
MOST_PAYLOAD = _MESSAGE.size + MOST_DATA


class FramingError(StructuredError):
    """The peer does not speak ttrpc; the connection cannot be used any longer."""

    reason: str
    template = "not a ttrpc connection: {reason}"


class TtrpcMessage(msgspec.Struct, frozen=True):
    stream: int
    type: int
    data: bytes
    flags: int = 0


def _taken(buffer: bytearray, head: int, length: int) -> bytes | None:
    """What follows the head, which are removed both; None until all of it is there."""
    end = head + length
    if len(buffer) < end:
        return None
    found = bytes(buffer[head:end])
    del buffer[:end]
    return found


class FrameReader:
    """Bytes of the socket in, (connection id, payload) out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        self._buffer += data
        while len(self._buffer) >= _FRAME.size:
            connection, length = _FRAME.unpack_from(self._buffer)
            if length > MOST_PAYLOAD:
                raise FramingError(f"a frame of {length} bytes, the most is {MOST_PAYLOAD}")
            payload = _taken(self._buffer, _FRAME.size, length)
            if payload is None:
                return
            yield connection, payload


class MessageReader:
    """Payloads of one connection in, messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, payload: bytes) -> Iterator[TtrpcMessage]:
        self._buffer += payload
        while len(self._buffer) >= _MESSAGE.size:
            length, stream, kind, flags = _MESSAGE.unpack_from(self._buffer)
            if length > MOST_DATA:
                raise FramingError(f"a message of {length} bytes, the most is {MOST_DATA}")
            if kind not in (REQUEST, RESPONSE, DATA):
                raise FramingError(f"a message of type {kind}")
            data = _taken(self._buffer, _MESSAGE.size, length)
            if data is None:
                return
            yield TtrpcMessage(stream, kind, data, flags)


def framed(connection: int, message: TtrpcMessage) -> bytes:
    """One message as frames of the multiplexer. Raises FramingError if it is too long."""
    if len(message.data) > MOST_DATA:
        raise FramingError(f"a message of {len(message.data)} bytes, the most is {MOST_DATA}")
    whole = _MESSAGE.pack(len(message.data), message.stream, message.type, message.flags) + message.data
    parts = []
    for at in range(0, len(whole), MOST_FRAME):
        piece = whole[at : at + MOST_FRAME]
        parts += [_FRAME.pack(connection, len(piece)), piece]
    return b"".join(parts)
