"""Half an hour of pods that come and go, with exec, logs, resizes and kills: memory stays flat, nothing is left."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.e2e.churn import run

SECONDS, PER_S = 1_800.0, 2.0


def main(seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        counts, faults = run(Path(directory), SECONDS, PER_S, seed)
    print("\n".join(faults))
    return counts
