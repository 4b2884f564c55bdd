"""rules/ and codec/ decide and translate; they do not act.

The import contracts in pyproject.toml keep out the modules of I/O and time, and ruff bans the clock of `datetime`. This
file finds the calls that need no import, and proves that the ban covers both packages.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "plimsoll"
IMPURE = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
CLOCKS = {"now", "utcnow", "today"}  # of datetime and date


def impure_calls(source: str) -> list[str]:
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        *(f"line {name.lineno}: {name.id}()" for name in calls if isinstance(name, ast.Name) and name.id in IMPURE),
        *(
            f"line {name.lineno}: .{name.attr}()"
            for name in calls
            if isinstance(name, ast.Attribute) and name.attr in CLOCKS
        ),
    ]


@pytest.mark.parametrize("part", ["rules", "codec"])
def test_no_io_and_no_clock(part: str) -> None:
    calls = {path.name: impure_calls(path.read_text()) for path in (PACKAGE / part).rglob("*.py")}
    assert {name: lines for name, lines in calls.items() if lines} == {}


def test_the_check_itself_finds_a_call() -> None:
    assert impure_calls("def f(p):\n    return open(p).read()\n") == ["line 2: open()"]
    assert impure_calls("from datetime import UTC, datetime\nx = datetime.now(UTC)\n") == ["line 2: .now()"]


def test_ruff_bans_the_clock_in_both_packages() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "TID251" in lint["select"]
    assert [files for files, rules in lint["per-file-ignores"].items() if "TID251" in rules] == [
        "!src/plimsoll/{rules,codec}/**"
    ]
    banned = lint["flake8-tidy-imports"]["banned-api"]
    assert {f"datetime.datetime.{name}" for name in CLOCKS} | {
        "datetime.date.today",
        "time.time",
        "time.monotonic",
    } <= banned.keys()
