"""docs/conformance.md names only tests that exist, and has a test or a reason for each behaviour."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| [sig-")]
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE)))
AREAS = ("In-place resize", "Probes", "Downward API", "Secrets", "Config maps", "Projected volumes and sub-paths")
OTHERS = ("Limit ranges", "Quotas", "Jobs and cron jobs", "Deployments", "Daemon sets", "The node: everything else")


@cache
def functions(path: str) -> frozenset[str]:
    module = ast.parse((ROOT / path).read_text())
    return frozenset(
        each.name for each in ast.walk(module) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


@pytest.mark.parametrize("path", sorted({path for path, _ in TESTS}))
def test_every_named_test_exists(path: str) -> None:
    named = {name for where, name in TESTS if where == path}
    assert (ROOT / path).exists() and named <= functions(path), named - functions(path)


def test_every_behaviour_has_a_test_or_a_reason() -> None:
    assert len(ROWS) > 100
    for behaviour, covered in ROWS:
        assert "::test_" in covered or covered.startswith("not covered: "), behaviour


def test_every_area_has_its_own_table() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert set(AREAS + OTHERS) <= set(headings)
