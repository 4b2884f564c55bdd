"""Text output: colours on a terminal, plain text elsewhere, no control codes from manifests.

Manifests and clusters are not trusted: `inert` escapes control characters before a text is printed.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from plimsoll.cli import console
from plimsoll.cli.help import columns
from plimsoll.rules.inert import inert

__all__ = [
    "CLASS_COLOURS",
    "Paint",
    "aligned",
    "colourful",
    "display_width",
    "echo_json",
    "fitted",
    "hanging",
    "inert",
    "on_terminal",
    "screen_width",
    "table",
    "width",
]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
WITHOUT_TERMINAL = 100
NARROW_GAP = "  "
LEAST_CELL, LEAST_TEXT = 6, 24  # a shortened cell, a wrapped text
CLASS_COLOURS = {"Guaranteed": "green", "Burstable": "yellow", "BestEffort": "red"}


def colourful(stream: object = None) -> bool:
    """Whether to print colours; respects NO_COLOR, FORCE_COLOR and TERM=dumb."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return on_terminal(stream) and os.environ.get("TERM") != "dumb"


def on_terminal(stream: object = None) -> bool:
    return bool(getattr(stream or sys.stdout, "isatty", lambda: False)())


def width() -> int:
    return columns(WITHOUT_TERMINAL)


class Paint:
    """Adds colour codes to a text if colours are on."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, *styles: str) -> str:
        if not self.colour or not styles or not text:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


def screen_width() -> int:
    """The columns of the terminal; 0 if the output is a pipe or a file."""
    return width() if on_terminal() else 0


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> Iterable[str]:
    """Columns as wide as their widest cell, two blanks apart, as kubectl prints them."""
    lines = [tuple(header), *map(tuple, rows)] if header else [tuple(row) for row in rows]
    if not lines:
        return ()
    widths = [max(display_width(line[column]) for line in lines) for column in range(len(lines[0]))]
    return aligned(lines, widths, NARROW_GAP)


def aligned(lines: Sequence[Sequence[str]], widths: Sequence[int], gap: str) -> Iterator[str]:
    """Cells in columns. On a terminal, lines that are too long have shorter cells, and the last column is wrapped."""
    screen = screen_width()
    if screen and sum(widths) + len(gap) * (len(widths) - 1) > screen:
        gap = NARROW_GAP
        widths = fitted(widths, screen)
    for line in lines:
        cells = [_shortened(cell, size) for cell, size in zip(line[:-1], widths, strict=False)]
        padded = [cell + " " * (size - display_width(cell)) for cell, size in zip(cells, widths, strict=False)]
        size = widths[len(line) - 1]
        for piece in _wrapped(line[-1], size):
            yield gap.join([*padded, piece]).rstrip()
            padded = [" " * width for width in widths[: len(padded)]]


def fitted(widths: Sequence[int], screen: int) -> list[int]:
    """Narrower columns: first the last one, which is wrapped, then always the widest. Unchanged if it is in vain."""
    found = list(widths)
    excess = sum(found) + len(NARROW_GAP) * (len(found) - 1) - screen
    taken = min(max(excess, 0), max(found[-1] - LEAST_TEXT, 0))
    found[-1] -= taken
    excess -= taken
    while excess > 0:
        widest = max(range(len(found)), key=found.__getitem__)
        if found[widest] <= LEAST_CELL:
            return list(widths)
        found[widest] -= 1
        excess -= 1
    return found


def _shortened(cell: str, size: int) -> str:
    """The start and the end: names of pods differ at the end."""
    if display_width(cell) <= size:
        return cell
    start, end = (size + 1) // 2, len(cell) - (size - 1) // 3
    while start + len(cell) - end > 1 and display_width(cell[:start] + cell[end:]) >= size:
        start -= 1
    return f"{cell[:start]}…{cell[end:]}"


def hanging(text: str, indent: int) -> str:
    """On a terminal, a text that begins in column `indent` and is too long continues there in the next line."""
    screen = screen_width()
    if not screen or indent + display_width(text) <= screen:
        return text
    return f"\n{' ' * indent}".join(_wrapped(text, max(screen - indent, LEAST_TEXT)))


def _wrapped(text: str, size: int) -> list[str]:
    """Lines of at most `size` columns, broken at blanks where possible; all have the indentation of the first."""
    if display_width(text) <= size:
        return [text]
    indent = " " * min(len(text) - len(text.lstrip()), size // 2)
    lines: list[str] = []
    line = ""
    for word in text.split():
        joined = f"{line} {word}" if line else indent + word
        if display_width(joined) <= size:
            line = joined
            continue
        if line:
            lines.append(line)
        line = indent + word
        while display_width(line) > size:
            cut = size
            while display_width(line[:cut]) > size:
                cut -= 1
            lines.append(line[: max(cut, 1)])
            line = indent + line[max(cut, 1) :]
    return [*lines, line]


def echo_paragraphs(paragraphs: Iterable[Iterable[str]]) -> None:
    for index, lines in enumerate(paragraphs):
        if index:
            console.echo()
        for line in lines:
            console.echo(line)


def echo_json(value: Any) -> None:
    """Print a value as indented JSON; msgspec escapes control characters."""
    console.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def display_width(text: str) -> int:
    """Columns on a terminal: wide East Asian characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text if not unicodedata.combining(c))
