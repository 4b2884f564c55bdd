"""5,000 pods move from SQLite to etcd and back below a real node: equal objects, the same containers, no change missed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.e2e.store_move import run

PODS = 5000


def main(seed: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as directory:
        counts, faults = run(Path(directory), PODS)
    print("\n".join(faults[:20]))
    return {**counts, "failed": len(faults)}
