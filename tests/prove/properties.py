"""Every property of the unit tests with five times the examples, and others with each seed (`./dev prove properties`)."""

from __future__ import annotations

from typing import Any

from tests.examples import PROVE
from tests.outcomes import outcomes

TIMES = 5


def main(seed: int) -> dict[str, Any]:
    options = ("-n", "2", "-m", "hypothesis", f"--hypothesis-seed={seed}", "tests/unit")
    tests, failed = outcomes(*options, environment={PROVE: str(TIMES)})
    return {"properties": len(tests), "times": TIMES, "failed": failed, "seed": seed}
