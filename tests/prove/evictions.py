"""A hundred evictions under continuous pod creation, with the agent killed at random moments (`./dev prove evictions`)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.kernel.eviction_storm import run

EVICTIONS = 100


def main(seed: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-prove-") as directory:
        counts, faults = run(Path(directory), seed, EVICTIONS)
    print("\n".join(faults[:20]))
    return counts
