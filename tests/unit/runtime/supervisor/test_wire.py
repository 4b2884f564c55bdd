"""Messages between agent and supervisor, however they arrive."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.runtime.supervisor import wire

MESSAGES = [{"id": 1, "call": "hello"}, {"text": "é\n\0"}, {}]


@given(st.lists(st.integers(1, 9), max_size=20))
def test_messages_come_whole_however_the_bytes_are_cut(cuts: list[int]) -> None:
    data = b"".join(map(wire.encoded, MESSAGES))
    reader, found = wire.FrameReader(), []
    for cut in cuts:
        found += reader.feed(data[:cut])
        data = data[cut:]
    found += reader.feed(data)
    assert [message for message, _ in found] == MESSAGES


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xff\xff\xff", id="too long"),
        pytest.param(b"\0\0\0\3{{{", id="no json"),
        pytest.param(b"\0\0\0\2[]", id="no object"),
        pytest.param(wire.encoded({"fds": 1}), id="a descriptor that did not come"),
        pytest.param(wire.encoded({"fds": -1}), id="less than none"),
        pytest.param(wire.encoded({"fds": "x"}), id="no number"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(wire.MessageFormatError):
        wire.FrameReader().feed(data)


def test_descriptors_travel_with_their_message() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reading, writing = os.pipe()
        wire.send_some(ours, wire.encoded({"n": 1}), [])
        wire.send_some(ours, wire.encoded({"n": 2, "fds": 1}), [writing])
        os.close(writing)
        reader = wire.FrameReader()
        found: list[tuple[wire.Message, list[int]]] = []
        while len(found) < 2:
            found += reader.feed(*wire.receive(theirs))
        assert [(message["n"], len(fds)) for message, fds in found] == [(1, 0), (2, 1)]
        (arrived,) = found[1][1]
        assert not os.get_inheritable(arrived)
        os.write(arrived, b"through")
        os.close(arrived)
        assert os.read(reading, 99) == b"through"
        os.close(reading)


def test_descriptors_that_no_message_claims_are_closed() -> None:
    reading, writing = os.pipe()
    reader = wire.FrameReader()
    reader.feed(b"\0\0", [writing])
    reader.close()
    assert os.read(reading, 1) == b""
    os.close(reading)
