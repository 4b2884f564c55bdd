"""The project's own text, for checks that read all of it: which files there are, and their comments and strings."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "plimsoll"
DECLARED = re.compile(r"\b(?:const|let|var|function|class) (\w+)")  # a name in JavaScript
FSTRING = getattr(tokenize, "FSTRING_MIDDLE", -1)  # from Python 3.12

PYTHON = (".py", "")  # ./dev has no suffix

Line = tuple[int, str]


def python_files() -> list[Path]:
    return [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "tests").rglob("*.py")), ROOT / "dev"]


def dev_module() -> ModuleType:
    """./dev, which has no suffix, as a module."""
    loader = SourceFileLoader("dev", str(ROOT / "dev"))
    spec = spec_from_loader("dev", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def pages() -> list[Path]:
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


def web_files() -> list[Path]:
    """The dashboard's own files, without the vendored ones."""
    static = PACKAGE / "web" / "static"
    return sorted(path for path in static.iterdir() if path.suffix in (".js", ".html", ".css"))


@lru_cache(1)
def tokens(path: Path) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline))


def prose(path: Path) -> Iterator[Line]:
    """The lines of a page or a file of the dashboard; of a Python file only its comments and strings, the latter with
    their quotes unless they are docstrings. Each with its line number."""
    if path.suffix not in PYTHON:
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        return
    for token in tokens(path):
        content = token.string
        if token.type == tokenize.STRING:
            content = content.lstrip("rbfuRBFU").removeprefix('"""')
        elif token.type == FSTRING:
            content = f'"{content}'
        elif token.type != tokenize.COMMENT:
            continue
        yield from enumerate(content.splitlines(), token.start[0])


def names(path: Path) -> Iterator[Line]:
    """The identifiers of a Python file, and those that a JavaScript file declares."""
    if path.suffix in PYTHON:
        for token in tokens(path):
            if token.type == tokenize.NAME:
                yield token.start[0], token.string
    elif path.suffix == ".js":
        for number, line in prose(path):
            yield from ((number, name) for name in DECLARED.findall(line))
