"""Frames of HTTP/2: the bytes of RFC 9113, in any pieces."""

from __future__ import annotations

import hyperframe.frame as oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.net.grpc import frames as f
from plimsoll.net.grpc.frames import ConnectionFaultError, FrameReader

BUILT = [
    pytest.param(f.frame(f.PING, f.ACK, 0, b"12345678"), "000008 06 01 00000000 3132333435363738", id="6.7 PING"),
    pytest.param(f.rst_stream(3, f.CANCEL), "000004 03 00 00000003 00000008", id="6.4 RST_STREAM"),
    pytest.param(f.window_update(0, 65_536), "000004 08 00 00000000 00010000", id="6.9 WINDOW_UPDATE"),
    pytest.param(f.settings_frame([(4, 1), (2, 0)]), "00000c 04 00 00000000 000400000001 000200000000", id="6.5 SETTINGS"),
    pytest.param(f.goaway(5, 11, "calm"), "00000c 07 00 00000000 00000005 0000000b 63616c6d", id="6.8 GOAWAY"),
    pytest.param(f.header_frames(1, b"\x82", f.END_STREAM), "000001 01 05 00000001 82", id="6.2 HEADERS"),
]  # fmt: skip


@pytest.mark.parametrize(("built", "expected"), BUILT)
def test_the_bytes_of_frames(built: bytes, expected: str) -> None:
    assert built == bytes.fromhex(expected)


@pytest.mark.parametrize(
    ("size", "sizes"), [(16_384, [16_384]), (16_385, [16_384, 1]), (40_000, [16_384, 16_384, 7_232])]
)
def test_headers_that_are_larger_than_a_frame_continue(size: int, sizes: list[int]) -> None:
    parts = list(FrameReader().frames(f.header_frames(7, bytes(size), f.END_STREAM)))
    assert [len(payload) for *_, payload in parts] == sizes
    assert [(kind, number) for kind, _, number, _ in parts] == [(f.HEADERS, 7)] + [(f.CONTINUATION, 7)] * (
        len(sizes) - 1
    )
    assert [bool(flags & f.END_HEADERS) for _, flags, *_ in parts] == [False] * (len(sizes) - 1) + [True]
    assert parts[0][1] & f.END_STREAM


@given(
    st.lists(
        st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=50)),
        max_size=6,
    ),
    st.lists(st.integers(1, 30)),
)
def test_frames_are_read_from_any_pieces(sent: list[tuple[int, int, int, bytes]], pieces: list[int]) -> None:
    data, reader, found = b"".join(f.frame(*each) for each in sent), FrameReader(), []
    for size in [*pieces, len(data) + 1]:
        found += list(reader.frames(data[:size]))
        data = data[size:]
    assert found == sent


@given(st.binary(max_size=300), st.integers(0, 255))
def test_padding_is_that_of_the_oracle(data: bytes, padding: int) -> None:
    theirs = oracle.DataFrame(1, data, pad_length=padding, flags=["PADDED"]).serialize()
    ((kind, flags, _, payload),) = FrameReader().frames(theirs)
    assert f.unpadded(kind, flags, payload) == data


WRONG = [
    pytest.param("0d", "1 bytes with 13 bytes of padding", id="6.1 padding alone"),
    pytest.param("", "0 bytes with 0 bytes of padding", id="6.1 without the length"),
    pytest.param("05 00000000", "5 bytes with 5 bytes of padding", id="6.1 padding of all bytes"),
]


@pytest.mark.parametrize(("payload", "text"), WRONG)
def test_padding_that_is_too_long(payload: str, text: str) -> None:
    with pytest.raises(ConnectionFaultError, match=text):
        f.unpadded(f.DATA, f.PADDED, bytes.fromhex(payload))
