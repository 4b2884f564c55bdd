"""rules/ and codec/ decide and translate; they do not act.

The import contracts in pyproject.toml keep the modules of I/O and time out. What needs no import is looked for here.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "plimsoll"
IMPURE = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}


def impure_calls(source: str) -> list[str]:
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [f"line {name.lineno}: {name.id}()" for name in calls if isinstance(name, ast.Name) and name.id in IMPURE]


@pytest.mark.parametrize("part", ["rules", "codec"])
def test_nothing_is_read_or_written(part: str) -> None:
    found = {path.name: impure_calls(path.read_text()) for path in (PACKAGE / part).rglob("*.py")}
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_the_check_itself_sees_a_call() -> None:
    assert impure_calls("def f(p):\n    return open(p).read()\n") == ["line 2: open()"]
