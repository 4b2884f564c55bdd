"""The framings, byte by byte, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.net.ttrpc.framing import (
    MOST_FRAME,
    REQUEST,
    RESPONSE,
    FrameReader,
    FramingError,
    MessageReader,
    TtrpcMessage,
    framed,
)


def test_a_message_as_bytes() -> None:
    """mux: id 2, length 13; ttrpc: length 3, stream 5, type request, no flags."""
    wanted = bytes.fromhex("00000002 0000000d 00000003 00000005 01 00") + b"abc"
    assert framed(2, TtrpcMessage(5, REQUEST, b"abc")) == wanted


def test_a_long_message_is_split_for_the_buffer_of_the_peer() -> None:
    whole = framed(1, TtrpcMessage(1, RESPONSE, b"x" * 10_000))
    frames = list(FrameReader().feed(whole))
    assert [len(payload) for _, payload in frames] == [MOST_FRAME, MOST_FRAME, 10_010 - 2 * MOST_FRAME]
    reader = MessageReader()
    messages = [message for _, payload in frames for message in reader.feed(payload)]
    assert messages == [TtrpcMessage(1, RESPONSE, b"x" * 10_000)]


@given(st.lists(st.binary(max_size=9000), max_size=4), st.lists(st.integers(1, 5000), min_size=1))
def test_any_cut_of_the_stream_gives_the_same_messages(bodies: list[bytes], cuts: list[int]) -> None:
    sent = [TtrpcMessage(2 * index + 1, REQUEST, body) for index, body in enumerate(bodies)]
    stream = b"".join(framed(1, message) for message in sent)
    frames, messages, got, at, step = FrameReader(), MessageReader(), [], 0, 0
    while at < len(stream):
        size = cuts[step % len(cuts)]
        for _, payload in frames.feed(stream[at : at + size]):
            got += messages.feed(payload)
        at, step = at + size, step + 1
    assert got == sent


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("00000001 ffffffff"),  # a frame of 4 GiB
        bytes.fromhex("00000001 0000000a 00500000 00000001 01 00"),  # a message of 5 MiB
        bytes.fromhex("00000001 0000000a 00000000 00000001 09 00"),  # no such type
    ],
    ids=["frame", "message", "type"],
)
def test_what_is_not_ttrpc_is_refused_before_it_is_stored(data: bytes) -> None:
    with pytest.raises(FramingError, match="not a ttrpc connection"):
        for _, payload in FrameReader().feed(data):
            list(MessageReader().feed(payload))


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(FramingError):
        framed(1, TtrpcMessage(1, REQUEST, b"x" * (4 << 20) + b"x"))
