"""Frames without a terminal: painted lines become cells, two frames the text that changes one into the other.

A line may contain the colour codes of `Paint` and nothing else that a terminal acts on; other control characters
become `?`. A cell is a character with its style; a wide character is followed by an empty cell. Only cells that differ
are written, so an unchanged frame costs nothing to show, also over a slow connection.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

Cell = tuple[str, str]  # the character and the parameters of its colour code
Row = tuple[Cell, ...]
Frame = tuple[Row, ...]

BLANK: Cell = (" ", "")
CONTINUED: Cell = ("", "")  # the second column of a wide character
CLEAR = "\x1b[0m\x1b[2J"
NEAR = 4  # unchanged cells between two changes that are cheaper to repeat than to skip

_CODE = re.compile(r"\x1b\[([0-9;]*)m")
_ASCII = str.maketrans(
    {
        **dict.fromkeys("━╸", "="),
        **dict.fromkeys("─╌", "-"),
        **dict.fromkeys("│", "|"),
        **dict.fromkeys("├└┌┐┘┤", "+"),
        **dict.fromkeys("╋┼", "m"),  # memory.min
        **dict.fromkeys("┻┴", "l"),  # memory.low
        **dict.fromkeys("┳┬", "h"),  # memory.high
        "…": "~",
        "·": "-",
        "−": "-",
        "≥": ">",
        "≤": "<",
        "↑": "^",
        "↓": "v",
        "–": "-",
        "→": ">",
    }
)


def ascii_only(text: str) -> str:
    """For terminals without UTF-8: lines and marks as letters and signs, the rest as `?`."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def row(line: str, width: int, *, utf8: bool = True) -> Row:
    """A painted line as exactly `width` cells."""
    cells: list[Cell] = []
    style, at = "", 0
    for code in (*_CODE.finditer(line), None):
        for character in line[at : code.start() if code else len(line)]:
            if len(cells) >= width:
                break
            cells += _cells(character if utf8 else ascii_only(character), style)
        if code:
            style = "" if code[1] in ("", "0") else code[1]
            at = code.end()
    del cells[width:]
    if cells and cells[-1][0] and _wide(cells[-1][0]):  # only half of it fits
        cells[-1] = BLANK
    return (*cells, *[BLANK] * (width - len(cells)))


def _cells(character: str, style: str) -> list[Cell]:
    if unicodedata.combining(character):
        return []
    if not character.isprintable():
        return [("?", style)]
    return [(character, style), CONTINUED] if _wide(character) else [(character, style)]


def _wide(character: str) -> bool:
    return not character.isascii() and unicodedata.east_asian_width(character) in "WF"


def frame(lines: Iterable[str], width: int, height: int, *, utf8: bool = True) -> Frame:
    """Exactly `height` rows."""
    rows = [row(line, width, utf8=utf8) for _, line in zip(range(height), lines, strict=False)]
    return (*rows, *[(BLANK,) * width] * (height - len(rows)))


def fitted(head: Sequence[str], body: Sequence[str], foot: Sequence[str], height: int, first: int) -> list[str]:
    """The lines of a screen: head and foot stay, the body is shown from its line `first`."""
    room = max(0, height - len(head) - len(foot))
    shown = list(body[first : first + room])
    return [*head, *shown, *[""] * (room - len(shown)), *foot][:height]


def changes(before: Frame | None, after: Frame) -> str:
    """The text that makes a terminal with `before` show `after`. None, or another size: everything."""
    if before is None or len(before) != len(after) or (after and len(before[0]) != len(after[0])):
        return CLEAR + changes(tuple((BLANK,) * len(each) for each in after), after)
    parts: list[str] = []
    for line, (old, new) in enumerate(zip(before, after, strict=True), 1):
        if old != new:
            parts += _row_changes(old, new, line)
    if parts:
        parts.append("\x1b[0m")
    return "".join(parts)


def _row_changes(old: Row, new: Row, line: int) -> list[str]:
    parts: list[str] = []
    differing = [index for index, cell in enumerate(new) if cell != old[index]]
    index, style = 0, None
    for target in differing:
        if target < index:
            continue
        start = target - 1 if new[target] == CONTINUED else target  # the whole wide character
        if parts and start - index <= NEAR:
            start = index
        else:
            parts.append(f"\x1b[{line};{start + 1}H")
        index = start
        while index < len(new) and (index <= target or new[index] != old[index] or new[index] == CONTINUED):
            text, wanted = new[index]
            if text:
                if wanted != style:
                    parts.append(f"\x1b[0;{wanted}m" if wanted else "\x1b[0m")
                    style = wanted
                parts.append(text)
            index += 1
    return parts
