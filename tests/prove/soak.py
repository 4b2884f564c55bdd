"""Two thousand pods made and deleted, ten in a second: memory, descriptors, cgroups and the store stay bounded."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.e2e.soak import run

PODS, PER_S = 2_000, 10.0


def main(seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        counts, faults = run(Path(directory), PODS, PER_S)
    print("\n".join(faults))
    return counts
