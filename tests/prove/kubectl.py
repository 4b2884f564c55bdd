"""The everyday verbs of kubectl 1.27 to 1.37, each against its own profile, and all tests with kubectl with every kubectl
from 1.32 on that is here (`./dev prove kubectl`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.outcomes import outcomes


def main(seed: int) -> dict[str, Any]:
    """`seed` is unused: nothing is random."""
    files = sorted(str(path) for path in Path("tests/e2e").glob("test_kubectl_*.py"))
    tests, failed = outcomes("-m", "long or not long", "-p", "no:xdist", *files)
    return {"tests": tests, "failed": failed, "seed": seed}
