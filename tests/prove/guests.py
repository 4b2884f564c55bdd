"""Tests on real kernels, mostly in guests, that take too long for `./dev test` (`./dev prove guests`): marked `long`."""

from __future__ import annotations

from typing import Any

from tests.outcomes import outcomes


def main(seed: int) -> dict[str, Any]:
    """`seed` is unused: nothing is random."""
    tests, failed = outcomes("-m", "long", "-n", "2", "tests/kernel")
    return {"tests": tests, "failed": failed, "seed": seed}
