"""SPDY/3.1: frames to events and back, in whatever pieces the bytes come; broken and hostile input."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.spdy import (
    MAX_CONTROL_BYTES,
    MAX_HEADER_BYTES,
    Event,
    GoneAway,
    PingReceived,
    SpdyConnection,
    SpdyError,
    StreamAccepted,
    StreamData,
    StreamOpened,
    StreamReset,
    _dictionary,
)


def joined(events: list[Event]) -> list[Event]:
    """Pieces of one frame as one."""
    result: list[Event] = []
    for event in events:
        last = result[-1] if result else None
        if (
            isinstance(event, StreamData)
            and isinstance(last, StreamData)
            and last.stream == event.stream
            and not last.is_last
        ):
            result[-1] = StreamData(event.stream, last.data + event.data, event.is_last)
        else:
            result.append(event)
    return result


def test_the_dictionary_is_the_specifications() -> None:
    assert (len(_dictionary()), zlib.adler32(_dictionary())) == (1423, 0xE3C6A7C2)


NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)
FRAMES = st.one_of(
    st.tuples(st.just("open"), st.integers(1, 99), st.dictionaries(NAMES, st.text("abc /=1", max_size=30), max_size=4)),
    st.tuples(st.just("accept"), st.integers(1, 99), st.dictionaries(NAMES, st.text("abc", max_size=9), max_size=2)),
    st.tuples(st.just("data"), st.integers(1, 99), st.binary(max_size=300)),
    st.tuples(st.just("reset"), st.integers(1, 99), st.integers(1, 11)),
)


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(1, 40), max_size=40))
def test_what_is_sent_arrives_in_any_pieces(frames: list[tuple[str, int, object]], cuts: list[int]) -> None:
    sender, receiver = SpdyConnection(), SpdyConnection()
    expected: list[Event] = []
    text = b""
    for kind, stream, value in frames:
        match kind, value:
            case "open", dict():
                text += sender.open(stream, value)
                expected.append(StreamOpened(stream, value, False))
            case "accept", dict():
                text += sender.accept(stream, value)
                expected.append(StreamAccepted(stream, value))
            case "data", bytes():
                text += sender.data(stream, value, is_last=True)
                expected.append(StreamData(stream, value, True))
            case "reset", int():
                text += sender.reset(stream, value)
                expected.append(StreamReset(stream, value))
    events: list[Event] = []
    for size in cuts:
        events += receiver.receive(text[:size])
        text = text[size:]
    events += receiver.receive(text)
    assert joined(events) == expected


def test_pings_and_the_end() -> None:
    connection = SpdyConnection()
    assert list(SpdyConnection().receive(connection.pong(7) + connection.go_away(3))) == [PingReceived(7), GoneAway()]


def test_unknown_control_frames_are_skipped() -> None:
    settings = struct.pack(">HHI", 0x8003, 4, 4) + b"\0\0\0\0"
    update = struct.pack(">HHI", 0x8003, 9, 8) + bytes(8)
    assert list(SpdyConnection().receive(settings + update + SpdyConnection().data(1, b"x"))) == [
        StreamData(1, b"x", False)
    ]


def _headers(plain: bytes) -> bytes:
    pack = zlib.compressobj(zdict=_dictionary())
    body = struct.pack(">IIH", 1, 0, 0) + pack.compress(plain) + pack.flush(zlib.Z_SYNC_FLUSH)
    return struct.pack(">HHI", 0x8003, 1, len(body)) + body


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(struct.pack(">HHI", 0x8002, 1, 0), "version 2", id="version"),
        pytest.param(struct.pack(">HHI", 0x8003, 1, MAX_CONTROL_BYTES + 1), "larger than", id="a huge control frame"),
        pytest.param(struct.pack(">HHI", 0x8003, 1, 2) + b"ab", "too short", id="a short stream frame"),
        pytest.param(struct.pack(">HHI", 0x8003, 1, 14) + bytes(10) + b"junk", "cannot be unpacked", id="no zlib"),
        pytest.param(_headers(struct.pack(">I", 1 << 31)), "too short", id="more headers than there are"),
        pytest.param(_headers(struct.pack(">II", 1, 1 << 31)), "too short", id="a name longer than the frame"),
        pytest.param(_headers(bytes(MAX_HEADER_BYTES + 9)), "larger than", id="a bomb"),
    ],
)
def test_broken_input(text: bytes, message: str) -> None:
    with pytest.raises(SpdyError, match=message):
        list(SpdyConnection().receive(text))
