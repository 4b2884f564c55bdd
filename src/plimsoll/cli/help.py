"""The layout of help pages. Imports nothing that `plimsoll --help` does not need, because its start is what it costs.

Paragraphs are wrapped. A paragraph that begins with a line `\\b` keeps its lines.
"""

from __future__ import annotations

import os
import sys

WIDEST, NARROWEST, WITHOUT_TERMINAL = 100, 52, 80
TERM_COLUMN = 30  # a longer term has a line of its own
LEAST_TEXT = 10

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Rows = Sequence[tuple[str, str]]


def columns(without_terminal: int) -> int:
    """$COLUMNS, or the columns of the terminal. (`shutil` has this too, and imports archive formats.)"""
    chosen = os.environ.get("COLUMNS", "")
    if chosen.isdecimal() and int(chosen) > 0:
        return int(chosen)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or without_terminal  # type: ignore[union-attr]
    except (OSError, AttributeError, ValueError):
        return without_terminal


def page(program: str, pieces: Sequence[str], text: str, sections: Iterable[tuple[str, Rows]]) -> str:
    """The usage line, the text, then each section with its terms and their definitions."""
    width = max(min(columns(WITHOUT_TERMINAL), WIDEST), NARROWEST) - 2
    start = f"Usage: {program} "
    lines = [*wrapped(" ".join(pieces), width, start, " " * len(start))]
    if text:
        lines.append("")
        lines += [f"  {line}" if line else "" for line in _paragraphs(text, width - 2)]
    for title, rows in sections:
        lines += ["", f"{title}:"]
        lines += _definitions(rows, width)
    return "\n".join(lines)


def unindented(text: str) -> str:
    """A docstring without the indentation of the code."""
    first, *others = text.strip().expandtabs().split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
    return "\n".join([first, *(line[margin:].rstrip() for line in others)])


def first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence, full_stop, _ = paragraph.partition(". ")
    return sentence + full_stop.rstrip()


def wrapped(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """Lines of at most `width` columns, broken at blanks; a longer word has a line of its own."""
    lines, line, bare = [], first, True
    for word in text.split(" "):
        if not bare and len(line) + 1 + len(word) > width:
            lines.append(line.rstrip())
            line, bare = others, True
        line += word if bare else f" {word}"
        bare = bare and not word
    return [*lines, line.rstrip()]


def _paragraphs(text: str, width: int) -> list[str]:
    found: list[str] = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.split("\n")
        if found:
            found.append("")
        if lines[0].strip() == "\b":
            found += lines[1:]
        else:
            found += wrapped(" ".join(map(str.strip, lines)), width)
    return found


def _definitions(rows: Rows, width: int) -> list[str]:
    column = min(max((len(term) for term, _ in rows), default=0), TERM_COLUMN) + 2
    found = []
    for term, text in rows:
        lines = wrapped(text, max(width - column - 2, LEAST_TEXT))
        if len(term) > column - 2 and text:
            found.append(f"  {term}")
            term = ""
        found.append(f"  {term:{column}}{lines[0]}".rstrip())
        found += [f"  {'':{column}}{line}" for line in lines[1:]]
    return found
