"""A peer that breaks HTTP/2: every violation ends its stream or the connection with the code that RFC 9113 names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.net.grpc import frames as f
from plimsoll.net.grpc.frames import ConnectionFaultError, FrameReader, StreamFaultError
from plimsoll.net.grpc.header_blocks import Block
from plimsoll.net.grpc.hpack import encoded
from plimsoll.net.grpc.http2 import MAX_REPLIES, MAX_RESETS, Http2
from plimsoll.net.grpc.sending import Stream

WINDOW = 65_535


class Seen(Stream):
    """One stream that notes what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[object] = []

    def take_headers(self, block: Block, *, is_end: bool) -> None:
        self.found.append(block.fields)

    def take_data(self, data: bytes) -> None:
        self.found.append(data)

    def take_end(self) -> None:
        self.found.append("end")

    def take_reset(self, code: int, why: str) -> None:
        self.found.append((code, why))


class Played(Http2[Seen]):
    def __init__(self, side: str) -> None:
        super().__init__(is_client=side == "client", settings={}, window=WINDOW, connection_window=2 * WINDOW)
        self.all: list[Seen] = []
        self.last: tuple[int, int, str] | None = None

    def opened(self) -> Seen:
        if len(self.streams) >= 100:
            raise StreamFaultError(f.REFUSED_STREAM, "enough")
        self.all.append(Seen())
        return self.all[-1]

    def going_away(self, last_stream: int, code: int, text: str) -> None:
        self.last = last_stream, code, text

    def sent(self) -> list[f.Frame]:
        """Since the last time."""
        return list(FrameReader().frames(bytes(self.taken()).removeprefix(f.PREFACE)))


def raw(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + number.to_bytes(4) + payload


SETTINGS = raw(4, 0, 0)
REQUEST = encoded([(":method", "POST"), (":scheme", "http"), (":path", "/a")])
RESPONSE, TRAILERS = encoded([(":status", "200")]), encoded([("grpc-status", "0")])


def played(side: str) -> Played:
    """With one open stream, 1; the client has ended it, the server not."""
    peer = Played(side)
    if side == "client":
        stream = Seen()
        peer.all.append(stream)
        peer.receive(SETTINGS)
        peer.begin(stream, REQUEST)
        peer.send(stream, b"request", is_last=True)
    else:
        peer.receive(f.PREFACE + SETTINGS + raw(1, 4, 1, REQUEST))
    peer.taken()
    return peer


ENDS_CONNECTION = [
    pytest.param("client", raw(0, 0, 0, b"x"), 1, "DATA on stream 0", id="6.1 DATA on stream 0"),
    pytest.param("client", raw(0, 0, 3, b"x"), 1, "DATA on stream 3, which was not begun", id="5.1 DATA before a call"),
    pytest.param("client", raw(0, 0, 2, b"x"), 1, "DATA on stream 2", id="5.1 DATA on a stream of the server"),
    pytest.param("client", raw(0, 8, 1, b"\5xx"), 1, "3 bytes with 5 bytes of padding", id="6.1 padding of DATA"),
    pytest.param("server", raw(1, 12, 3, b"\5xx"), 1, "3 bytes with 5 bytes of padding", id="6.2 padding of HEADERS"),
    pytest.param("server", raw(1, 4, 0, REQUEST), 1, "HEADERS on stream 0", id="6.2 HEADERS on stream 0"),
    pytest.param("server", raw(1, 4, 2, REQUEST), 1, "HEADERS on stream 2", id="5.1.1 a client's even stream"),
    pytest.param("client", raw(1, 4, 2, RESPONSE), 1, "HEADERS on stream 2", id="5.1.1 a server begins a stream"),
    pytest.param("server", raw(1, 4, 3, b"\xff\xff\xff"), 9, "cannot be decoded", id="4.3 HPACK"),
    pytest.param("server", raw(3, 0, 0, bytes(4)), 1, "RST_STREAM on stream 0", id="6.4 RST_STREAM on stream 0"),
    pytest.param("server", raw(3, 0, 9, bytes(4)), 1, "RST_STREAM on stream 9", id="6.4 RST_STREAM too early"),
    pytest.param("server", raw(3, 0, 1, bytes(5)), 6, "RST_STREAM of 5 bytes", id="6.4 RST_STREAM's size"),
    pytest.param("client", raw(4, 0, 1), 1, "SETTINGS on stream 1", id="6.5 SETTINGS on a stream"),
    pytest.param("client", raw(4, 0, 0, bytes(7)), 6, "SETTINGS of 7 bytes", id="6.5 SETTINGS' size"),
    pytest.param("client", raw(4, 1, 0, bytes(6)), 6, "acknowledgement of 6 bytes", id="6.5 ACK with settings"),
    pytest.param("client", raw(4, 0, 0, b"\0\2\0\0\0\1"), 1, "ENABLE_PUSH of 1", id="6.5.2 a server pushes"),
    pytest.param("server", raw(4, 0, 0, b"\0\2\0\0\0\2"), 1, "ENABLE_PUSH of 2", id="6.5.2 ENABLE_PUSH"),
    pytest.param("server", raw(4, 0, 0, b"\0\4\x80\0\0\0"), 3, "INITIAL_WINDOW_SIZE of 2147483648", id="6.5.2 window"),
    pytest.param("server", raw(4, 0, 0, b"\0\5\0\0\x3f\xff"), 1, "MAX_FRAME_SIZE of 16383", id="6.5.2 small frames"),
    pytest.param("server", raw(4, 0, 0, b"\0\5\1\0\0\0"), 1, "MAX_FRAME_SIZE of 16777216", id="6.5.2 large frames"),
    pytest.param("client", raw(5, 4, 1, bytes(4) + REQUEST), 1, "PUSH_PROMISE", id="6.6 PUSH_PROMISE"),
    pytest.param("server", raw(5, 4, 1, bytes(4) + REQUEST), 1, "PUSH_PROMISE", id="8.4 a client pushes"),
    pytest.param("client", raw(6, 0, 1, bytes(8)), 1, "PING on stream 1", id="6.7 PING on a stream"),
    pytest.param("client", raw(6, 0, 0, bytes(7)), 6, "PING of 7 bytes", id="6.7 PING's size"),
    pytest.param("client", raw(7, 0, 1, bytes(8)), 1, "GOAWAY on stream 1", id="6.8 GOAWAY on a stream"),
    pytest.param("client", raw(7, 0, 0, bytes(7)), 6, "GOAWAY of 7 bytes", id="6.8 GOAWAY's size"),
    pytest.param("client", raw(8, 0, 0, bytes(4)), 1, "WINDOW_UPDATE of 0", id="6.9 no increment"),
    pytest.param("client", raw(8, 0, 0, bytes(3)), 6, "WINDOW_UPDATE of 3 bytes", id="6.9 WINDOW_UPDATE's size"),
    pytest.param("client", raw(8, 0, 5, b"\0\0\0\1"), 1, "WINDOW_UPDATE on stream 5", id="5.1 WINDOW_UPDATE too early"),
    pytest.param("server", raw(8, 0, 0, b"\x7f\xff\xff\xff"), 3, "a window of 2147549182", id="6.9.1 overflow"),
    pytest.param("server", raw(8, 0, 1, b"\x7f\xff\0\0") + raw(4, 0, 0, b"\0\4\0\2\0\0"), 3, "INITIAL_WINDOW_SIZE of 131072", id="6.9.2 overflow by SETTINGS"),
    pytest.param("server", raw(9, 4, 1), 1, "CONTINUATION on stream 1 without HEADERS", id="6.10 CONTINUATION alone"),
    pytest.param("server", raw(1, 0, 3) + raw(9, 4, 5), 1, "type 9 on stream 5 inside the headers of 3", id="6.10 of another stream"),
    pytest.param("server", raw(1, 0, 3) + raw(6, 0, 0, bytes(8)), 1, "type 6 on stream 0 inside the headers of 3", id="4.3 a frame between"),
    pytest.param("server", raw(1, 0, 3) + raw(9, 0, 3) * 65, 11, "64 CONTINUATION", id="10.5 empty CONTINUATIONs"),
    pytest.param("server", raw(1, 0, 3) + raw(9, 0, 3, bytes(16_384)) * 5, 11, "more than 65536 bytes", id="10.5 long headers"),
    pytest.param("server", b"\0\x40\1" + raw(0, 0, 1)[3:], 6, "16385 bytes, more than 16384", id="4.2 a large frame"),
    pytest.param("client", raw(6, 0, 0, bytes(8)) * (MAX_REPLIES + 1), 11, "1000 frames to be answered", id="10.5 PINGs"),
    pytest.param("server", SETTINGS * (MAX_REPLIES + 1), 11, "1000 frames to be answered", id="10.5 SETTINGS"),
]  # fmt: skip


@pytest.mark.parametrize(("side", "data", "code", "text"), ENDS_CONNECTION)
def test_what_ends_the_connection(side: str, data: bytes, code: int, text: str) -> None:
    peer = played(side)
    with pytest.raises(ConnectionFaultError, match=re.escape(text)) as caught:
        peer.receive(data)
    assert caught.value.code == code
    kind, _, number, payload = peer.sent()[-1]
    assert (kind, number, payload[4:8]) == (f.GOAWAY, 0, code.to_bytes(4))
    assert text in payload[8:].decode()


BEGINS = [
    pytest.param("client", b"HTTP/1.1 400 Bad Request\r\n\r\n", "b'HTTP/1.1 400 Bad Request", id="HTTP/1"),
    pytest.param("client", raw(6, 0, 0, bytes(8)), "in place of SETTINGS", id="3.4 PING first"),
    pytest.param("client", raw(4, 1, 0), "in place of SETTINGS", id="3.4 ACK first"),
    pytest.param("server", b"GET / HTTP/1.1\r\n", "b'GET / HTTP/1.1", id="3.4 no preface"),
    pytest.param("server", f.PREFACE[:20] + b"xxxx", "in place of the preface", id="3.4 half a preface"),
    pytest.param("server", f.PREFACE + raw(1, 4, 1, REQUEST), "type 1 in place of SETTINGS", id="3.4 HEADERS first"),
]


@pytest.mark.parametrize(("side", "data", "text"), BEGINS)
def test_what_a_connection_begins_with(side: str, data: bytes, text: str) -> None:
    with pytest.raises(ConnectionFaultError, match=re.escape(text)) as caught:
        Played(side).receive(data)
    assert caught.value.code == f.PROTOCOL_ERROR


LONG = raw(0, 0, 1, bytes(16_384))
ENDS_STREAM = [
    pytest.param("client", raw(8, 0, 1, bytes(4)), 1, "WINDOW_UPDATE of 0 bytes", id="6.9 no increment"),
    pytest.param("client", raw(8, 0, 1, b"\x7f\xff\xff\xff"), 3, "a window of 2147549175 bytes", id="6.9.1 overflow"),
    pytest.param("client", raw(1, 4, 1, encoded([("A", "b")])), 1, "malformed: the header name 'A'", id="8.2 upper case"),
    pytest.param("server", raw(0, 1, 1) + raw(0, 0, 1, b"x"), 5, "DATA after the end", id="5.1 DATA after the end"),
    pytest.param("server", raw(0, 1, 1) + raw(1, 5, 1, TRAILERS), 5, "HEADERS after the end", id="5.1 HEADERS after the end"),
]  # fmt: skip


@pytest.mark.parametrize(("side", "data", "code", "text"), ENDS_STREAM)
def test_what_ends_one_stream(side: str, data: bytes, code: int, text: str) -> None:
    peer = played(side)
    peer.receive(data)
    assert peer.all[0].found[-1] == (code, text)
    assert peer.sent()[-1] == (f.RST_STREAM, 0, 1, code.to_bytes(4))
    assert not peer.streams
    peer.receive(raw(6, 0, 0, b"12345678"))
    assert peer.sent() == [(f.PING, f.ACK, 0, b"12345678")]


MEANS_NOTHING = [
    pytest.param("client", raw(2, 0, 1, bytes(5)), id="5.3.2 PRIORITY"),
    pytest.param("server", raw(2, 0, 99, bytes(5)), id="5.3.2 PRIORITY of a stream to come"),
    pytest.param("client", raw(77, 255, 5, b"what"), id="5.5 an unknown frame"),
    pytest.param("client", raw(4, 1, 0), id="6.5 ACK"),
    pytest.param("client", raw(6, 1, 0, bytes(8)), id="6.7 an answer to no PING"),
]


@pytest.mark.parametrize(("side", "data"), MEANS_NOTHING)
def test_what_is_passed_over(side: str, data: bytes) -> None:
    peer = played(side)
    before = len(peer.all[0].found)
    peer.receive(data)
    assert peer.sent() == []
    assert (len(peer.all[0].found), len(peer.streams)) == (before, 1)


def test_unknown_settings_are_acknowledged() -> None:
    peer = played("client")
    peer.receive(raw(4, 0, 0, b"\x77\x77\0\0\0\1" + b"\0\3\0\0\0\7"))
    assert peer.sent() == [(f.SETTINGS, f.ACK, 0, b"")]
    assert peer.peer_streams == 7


def test_data_of_a_closed_stream_counts_for_the_connection() -> None:
    peer = played("client")
    peer.reset(peer.all[0], f.CANCEL)
    peer.taken()
    peer.receive(LONG * 3)
    assert peer.sent() == []
    peer.receive(LONG)  # half of 131,070 bytes has gone
    assert peer.sent() == [(f.WINDOW_UPDATE, 0, 0, (4 * 16_384).to_bytes(4))]


def test_a_window_is_given_back_when_half_is_used() -> None:
    peer = played("server")
    peer.receive(LONG)
    assert peer.sent() == []
    peer.receive(LONG)
    assert peer.sent() == [(f.WINDOW_UPDATE, 0, 1, (2 * 16_384).to_bytes(4))]
    peer.receive(LONG)
    assert peer.sent() == []


@pytest.mark.parametrize("how", [raw(3, 0, 1, b"\0\0\0\x08"), raw(8, 0, 1, bytes(4))], ids=["resets", "makes us reset"])
def test_calls_that_are_reset_at_once_are_limited(how: bytes) -> None:
    """CVE-2023-44487 and CVE-2025-8671."""
    peer = played("server")
    with pytest.raises(ConnectionFaultError, match="201 streams were reset") as caught:
        for number in range(3, 4 * MAX_RESETS, 2):
            peer.receive(raw(1, 4, number, REQUEST) + how[:5] + number.to_bytes(4) + how[9:])
    assert caught.value.code == f.ENHANCE_YOUR_CALM
    assert len(peer.all) == MAX_RESETS + 2


def test_complete_calls_allow_resets() -> None:
    peer = played("server")
    for number in range(3, 8 * MAX_RESETS, 4):
        peer.receive(raw(1, 4, number, REQUEST) + raw(3, 0, number, bytes(4)) + raw(1, 5, number + 2, REQUEST))
        peer.send_headers(peer.all[-1], TRAILERS, is_last=True)
    assert len(peer.streams) == 1


def test_a_call_too_many_is_refused_and_the_others_go_on() -> None:
    peer = played("server")
    for number in range(3, 203, 2):
        peer.receive(raw(1, 4, number, REQUEST))
    assert peer.sent() == [(f.RST_STREAM, 0, 201, f.REFUSED_STREAM.to_bytes(4))]
    assert len(peer.streams) == 100


def test_streams_end_when_both_sides_have_ended_them() -> None:
    peer = played("client")
    peer.receive(raw(1, 4, 1, RESPONSE) + raw(0, 0, 1, b"answer") + raw(1, 5, 1, TRAILERS))
    assert peer.all[0].found == [{":status": "200"}, b"answer", {"grpc-status": "0"}, "end"]
    assert not peer.streams


def test_going_away() -> None:
    peer = played("client")
    peer.receive(raw(7, 0, 0, bytes(3) + b"\5" + bytes(4) + "schön".encode()))
    assert peer.last == (5, 0, "schön")


def test_data_waits_for_the_window_and_is_dropped_with_its_stream() -> None:
    peer = played("server")
    stream = peer.all[0]
    peer.send(stream, b"x" * 70_000)
    assert [len(payload) for *_, payload in peer.sent()] == [16_384, 16_384, 16_384, 16_383]
    peer.receive(raw(4, 0, 0, b"\0\4\0\0\0\0"))  # the stream's window is −65,535 now (6.9.2)
    peer.receive(raw(8, 0, 0, b"\0\0\xff\xff") + raw(8, 0, 1, b"\0\0\xff\xff"))
    assert peer.sent() == [(f.SETTINGS, f.ACK, 0, b"")]
    peer.receive(raw(8, 0, 1, b"\0\0\0\3"))
    assert peer.sent() == [(f.DATA, 0, 1, b"xxx")]
    peer.receive(raw(3, 0, 1, bytes(4)) + raw(8, 0, 0, b"\0\0\xff\xff"))
    assert (peer.sent(), bytes(stream.unsent)) == ([], b"")


def test_data_waits_for_the_window_of_the_connection() -> None:
    peer = played("server")
    peer.receive(raw(8, 0, 1, b"\0\1\0\0"))
    peer.send(peer.all[0], b"x" * 60_000)
    peer.send(peer.all[0], b"x" * 10_000)
    assert sum(len(payload) for *_, payload in peer.sent()) == 65_535
    peer.receive(raw(8, 0, 0, b"\0\0\0\1"))
    assert peer.sent() == [(f.DATA, 0, 1, b"x")]


def test_the_first_block_announces_that_there_is_no_table() -> None:
    peer = Played("client")
    peer.receive(SETTINGS)
    peer.taken()
    for _ in range(2):
        peer.begin(Seen(), REQUEST)
    assert [payload for *_, payload in peer.sent()] == [b"\x20" + REQUEST, REQUEST]


def test_data_waits_for_the_socket() -> None:
    peer = played("server")
    peer.is_full = True
    peer.send(peer.all[0], b"answer")
    assert peer.sent() == []
    peer.is_full = False
    peer.pump()
    assert peer.sent() == [(f.DATA, 0, 1, b"answer")]


PAYLOADS = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [REQUEST, RESPONSE, TRAILERS, bytes(4), bytes(8), b"\0\4\0\0\0\0", b"\x7f\xff\xff\xff", bytes(16_384)]
    ),
)
FRAMES = st.lists(
    st.builds(raw, st.integers(0, 11), st.sampled_from([0, 1, 4, 5, 8, 13, 32, 255]), st.integers(0, 6), PAYLOADS),
    max_size=12,
)


@given(st.sampled_from(["client", "server"]), FRAMES)
def test_whatever_comes_ends_in_no_other_error(side: str, frames: list[bytes]) -> None:
    """All streams are as they say, and no frame of ours is larger than allowed."""
    peer = played(side)
    for stream in peer.all:
        peer.send(stream, bytes(100_000))
    try:
        for each in frames:
            peer.receive(each)
    except ConnectionFaultError:
        assert peer.sent()[-1][0] == f.GOAWAY
    for stream in peer.all:
        assert (peer.streams.get(stream.id) is stream) != stream.is_closed
        assert not (stream.is_closed and stream.unsent)
    assert all(len(payload) <= 16_384 for *_, payload in peer.sent())
