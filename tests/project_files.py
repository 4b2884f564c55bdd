"""The project's own text, for checks that read all of it: which files there are, and their comments and strings."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "plimsoll"
FSTRING = getattr(tokenize, "FSTRING_MIDDLE", -1)  # from Python 3.12

Line = tuple[int, str]


def python_files() -> list[Path]:
    return [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "tests").rglob("*.py")), ROOT / "dev"]


def pages() -> list[Path]:
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


def tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source).readline)


def prose(path: Path) -> Iterator[Line]:
    """The lines of a page; of a Python file only its comments and strings, the latter with their quotes unless
    they are docstrings. Each with its line number."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokens(text):
        content = token.string
        if token.type == tokenize.STRING:
            content = content.lstrip("rbfuRBFU").removeprefix('"""')
        elif token.type == FSTRING:
            content = f'"{content}'
        elif token.type != tokenize.COMMENT:
            continue
        yield from enumerate(content.splitlines(), token.start[0])


def names(path: Path) -> Iterator[Line]:
    """The identifiers of a Python file."""
    if path.suffix != ".md":
        for token in tokens(path.read_text(encoding="utf-8")):
            if token.type == tokenize.NAME:
                yield token.start[0], token.string
