"""Fifty kills −9 of a whole API server with sixteen writing clients and watchers that come back."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.e2e.api_kill import run

KILLS = 50


def main(seed: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as directory:
        counts, faults = run(Path(directory), seed, KILLS)
    print("\n".join(faults[:20]))
    return counts
