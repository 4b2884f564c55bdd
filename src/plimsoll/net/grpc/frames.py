"""Frames of HTTP/2 (RFC 9113, sections 4 and 6): bytes → frames, values → bytes. No state but an incomplete frame."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from plimsoll.errors import StructuredError

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
NAMES = (
    "DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE",
    "CONTINUATION",
)  # fmt: skip
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20

ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 2, 3, 4, 5, 6

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR = 0x0, 0x1, 0x3, 0x5, 0x6
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 0x7, 0x8, 0x9, 0xB

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DEFAULT_WINDOW, MAX_WINDOW = 65_535, 2**31 - 1
MAX_STREAM = 2**31 - 1
FRAME_BYTES, LARGEST_FRAME_BYTES = 16_384, 2**24 - 1  # a payload that each side accepts; what it may accept
SIZES = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
HEAD = struct.Struct(">HBBBL")  # 24 bits of length in two parts, type, flags, stream
HEAD_BYTES = HEAD.size
_SETTING = struct.Struct(">HL")

Frame = tuple[int, int, int, bytes]  # type, flags, stream, payload


class ConnectionFaultError(StructuredError):
    """The peer has broken the protocol: the connection ends with this code (RFC 9113, section 5.4.1)."""

    code: int
    message: str


class StreamFaultError(StructuredError):
    """The peer has broken the protocol on one stream, which is reset with this code (section 5.4.2)."""

    code: int
    message: str


class FrameReader:
    """Bytes in any pieces → frames of at most FRAME_BYTES, as we do not allow larger ones."""

    def __init__(self) -> None:
        self._left = b""

    def frames(self, data: bytes) -> Iterator[Frame]:
        if self._left:
            data = self._left + data
        at, end = 0, len(data)
        while end - at >= HEAD_BYTES:
            high, low, kind, flags, stream = HEAD.unpack_from(data, at)
            size = high << 8 | low
            if size > FRAME_BYTES:
                raise ConnectionFaultError(FRAME_SIZE_ERROR, f"a frame of {size} bytes, more than {FRAME_BYTES}")
            stop = at + HEAD_BYTES + size
            if stop > end:
                break
            payload = data[at + HEAD_BYTES : stop]
            at = stop
            yield kind, flags, stream & MAX_STREAM, payload
        self._left = data[at:]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def header_frames(stream: int, block: bytes, flags: int) -> bytes:
    """HEADERS, and CONTINUATION for what is larger than one frame."""
    if len(block) <= FRAME_BYTES:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    parts = [block[at : at + FRAME_BYTES] for at in range(0, len(block), FRAME_BYTES)]
    middle = [frame(CONTINUATION, 0, stream, part) for part in parts[1:-1]]
    last = frame(CONTINUATION, END_HEADERS, stream, parts[-1])
    return b"".join([frame(HEADERS, flags, stream, parts[0]), *middle, last])


def settings_frame(values: Iterable[tuple[int, int]]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*each) for each in values))


def settings_of(payload: bytes) -> Iterator[tuple[int, int]]:
    return _SETTING.iter_unpack(payload)


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4))


def rst_stream(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, code.to_bytes(4))


def goaway(last_stream: int, code: int, text: str) -> bytes:
    return frame(GOAWAY, 0, 0, last_stream.to_bytes(4) + code.to_bytes(4) + text.encode()[: FRAME_BYTES - 8])


def unpadded(kind: int, flags: int, payload: bytes) -> bytes:
    """The payload of DATA or HEADERS without padding and priority (sections 6.1 and 6.2)."""
    start, padding = 0, 0
    if flags & PADDED:
        start, padding = 1, payload[0] if payload else 0
    if kind == HEADERS and flags & HAS_PRIORITY:
        start += 5
    if start + padding > len(payload):
        raise ConnectionFaultError(
            PROTOCOL_ERROR, f"{NAMES[kind]} of {len(payload)} bytes with {padding} bytes of padding"
        )
    return payload[start : len(payload) - padding]
