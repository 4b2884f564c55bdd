"""Keys from bytes, whole and in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cli.live.keys import keys


@pytest.mark.parametrize(
    ("data", "expected", "left"),
    [
        (b"q", ["q"], b""),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"], b""),
        (b"\x1b[5~x", ["page up", "x"], b""),
        (b"\x1b", [], b"\x1b"),  # perhaps the begin of a sequence
        (b"\x1b[", [], b"\x1b["),
        (b"\x1b[1;5C", [], b""),  # Ctrl-right: no meaning here
        (b"\x1bq", ["escape", "q"], b""),
        (b"\x03", ["stop"], b""),
        (b"\x7f\r", ["backspace", "enter"], b""),
        ("é".encode(), ["é"], b""),
        ("é".encode()[:1], [], "é".encode()[:1]),
        (b"\x00\x01\xff\xff\xff\xff", [], b""),
    ],
)
def test_keys(data: bytes, expected: list[str], left: bytes) -> None:
    assert keys(data) == (expected, left)


@given(st.binary(max_size=40), st.integers(0, 40))
def test_any_bytes_end(data: bytes, cut: int) -> None:
    """Whatever is pasted, the rest stays short and only names or printable characters come out."""
    first, left = keys(data[:cut])
    second, rest = keys(left + data[cut:])
    assert len(rest) < 16
    assert all(len(name) > 1 or name.isprintable() for name in first + second)
