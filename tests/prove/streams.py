"""exec, attach, cp, port-forward and debug with every kubectl from 1.27 on, with both runtimes (`./dev prove streams`)."""

from __future__ import annotations

from typing import Any

from tests.outcomes import outcomes


def main(seed: int) -> dict[str, Any]:
    """`seed` is unused: nothing is random."""
    tests, failed = outcomes("-m", "long or not long", "-p", "no:xdist", "tests/e2e/test_streams.py")
    return {"tests": tests, "failed": failed, "seed": seed}
