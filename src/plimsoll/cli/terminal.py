"""Text output: colours on a terminal, plain text elsewhere, no control codes from manifests.

Manifests and clusters are not trusted: `inert` escapes control characters before a text is printed.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
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
    """$COLUMNS, or the columns of the terminal, or 100. (`shutil` has this too, and imports archive formats.)"""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 100  # type: ignore[union-attr]
    except (OSError, AttributeError, ValueError):
        return 100


def inert(text: str) -> str:
    """Control characters, bidirectional overrides and lone surrogates become visible escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c.isprintable() and unicodedata.category(c) not in ("Cf", "Cs", "Co") else _escaped(c) for c in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


class Paint:
    """Adds colour codes to a text if colours are on."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, *styles: str) -> str:
        if not self.colour or not styles or not text:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> Iterable[str]:
    """Columns as wide as their widest cell, two blanks apart, as kubectl prints them."""
    lines = [tuple(header), *map(tuple, rows)] if header else [tuple(row) for row in rows]
    if not lines:
        return
    widths = [max(display_width(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        cells = (cell + " " * (size - display_width(cell)) for cell, size in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()


def echo_json(value: Any) -> None:
    """Print a value as indented JSON; msgspec escapes control characters."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def display_width(text: str) -> int:
    """Columns on a terminal: wide East Asian characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text if not unicodedata.combining(c))
