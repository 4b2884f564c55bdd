"""Twenty thousand broken and hostile manifests: each is explained or refused within a second or so.

The cases are those of `tests/unit/mutation.py`; a failed one is printed with what it takes to see it again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.unit.mutation import fuzz, report

CASES = 20_000


def main(seed: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as directory:
        outcome = fuzz(seed, CASES, Path(directory), stop_after=CASES)
    if outcome.failures:
        print(report(seed, outcome.failures))
    return {**dict(sorted(outcome.counts.items())), "failed": len(outcome.failures)}
