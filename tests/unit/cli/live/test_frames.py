"""Frames without a terminal. The oracle is a small terminal of the test's own that understands the codes used."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plimsoll.cli.live.frames import BLANK, CONTINUED, Frame, changes, fitted, frame, row

_CODES = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")
WIDE = "漢"


class Emulator:
    """Cursor position, colours, clear. Anything else is an error."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.cells = [[("#", "dirt")] * width for _ in range(height)]
        self.x = self.y = 0
        self.style = ""
        self.written = 0

    def write(self, text: str) -> None:
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                code = _CODES.match(text, at)
                assert code, f"unknown sequence {text[at : at + 8]!r}"
                self._code(code[1], code[2])
                at = code.end()
                continue
            self.cells[self.y][self.x] = (text[at], self.style)
            self.written += 1
            self.x += 1
            if text[at] == WIDE:
                self.cells[self.y][self.x] = CONTINUED
                self.x += 1
            at += 1

    def _code(self, parameters: str, letter: str) -> None:
        if letter == "H":
            line, column = map(int, parameters.split(";"))
            self.y, self.x = line - 1, column - 1
        elif letter == "m":
            assert parameters == "0" or parameters.startswith("0;")
            self.style = parameters[2:]
        else:
            assert (letter, parameters) == ("J", "2")
            self.cells = [[BLANK] * self.width for _ in range(self.height)]

    def frame(self) -> Frame:
        return tuple(map(tuple, self.cells))


_pieces = st.builds(
    lambda text, style: f"\x1b[{style}m{text}\x1b[0m" if style else text,
    st.text("ab ━" + WIDE, max_size=8),
    st.sampled_from(["", "1", "31", "1;33"]),
)
_lines = st.lists(st.lists(_pieces, max_size=4).map("".join), max_size=6)


@example([], ["a  a"], 4, 1)
@given(_lines, _lines, st.integers(1, 20), st.integers(1, 5))
def test_the_terminal_shows_the_new_frame(first: list[str], second: list[str], width: int, height: int) -> None:
    terminal = Emulator(width, height)
    before, after = frame(first, width, height), frame(second, width, height)
    terminal.write(changes(None, before))
    assert terminal.frame() == before
    terminal.write(changes(before, after))
    assert terminal.frame() == after
    assert changes(after, after) == ""


def test_only_what_changed_is_written() -> None:
    before = frame(["used 10 MiB of 64 MiB", "same", "same too"], 30, 3)
    after = frame(["used 11 MiB of 64 MiB", "same", "same too"], 30, 3)
    assert changes(before, after) == "\x1b[1;7H\x1b[0m1\x1b[0m"


def test_another_size_repaints_everything() -> None:
    before, after = frame(["abc"], 10, 2), frame(["abc"], 12, 2)
    text = changes(before, after)
    assert text.startswith("\x1b[0m\x1b[2J") and "abc" in text


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 3, "abc"),
        ("\x1b[1mab\x1b[0mc", 4, "abc "),
        (f"a{WIDE}b", 4, f"a{WIDE}b"),
        (f"ab{WIDE}", 3, "ab "),  # half a character does not fit
        ("a\tb\x07\x1b]0;title\x07", 14, "a?b??]0;title?"),
        ("e\u0301", 2, "e "),
    ],
    ids=["padded", "cut", "colours take no room", "wide", "half wide", "control characters", "combining"],
)
def test_rows(line: str, width: int, expected: str) -> None:
    cells = row(line, width)
    assert len(cells) == width
    assert "".join(text for text, _ in cells) == expected


def test_without_utf8() -> None:
    text = "".join(cell for cell, _ in row("├─ ━━╸╌┼┳ … 漢 1·2", 18, utf8=False))
    assert text.isascii()
    assert text == "+- ===-mh ~ ? 1-2 "


def test_head_and_foot_stay() -> None:
    body = [f"row {index}" for index in range(10)]
    assert fitted(["head"], body, ["foot"], 5, 4) == ["head", "row 4", "row 5", "row 6", "foot"]
    assert fitted(["head"], body[:1], ["foot"], 4, 0) == ["head", "row 0", "", "foot"]
    assert len(fitted(["a", "b", "c"], body, ["d"], 2, 0)) == 2  # a very low terminal
