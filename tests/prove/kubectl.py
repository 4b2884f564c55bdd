"""The everyday verbs of kubectl 1.27 to 1.37, each against its own profile (`./dev prove kubectl`)."""

from __future__ import annotations

from typing import Any

from tests.outcomes import outcomes


def main(seed: int) -> dict[str, Any]:
    """`seed` is unused: nothing is random."""
    tests, failed = outcomes("-m", "long or not long", "-p", "no:xdist", "tests/e2e/test_kubectl_releases.py")
    return {"tests": tests, "failed": failed, "seed": seed}
