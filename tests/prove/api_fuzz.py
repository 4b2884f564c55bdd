"""Fifty thousand odd requests at a whole control plane, half of them in each profile, and a slice of them over TLS."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from tests.e2e.api_fuzz import fuzz, report, scratch
from tests.e2e.api_fuzz_tls import fuzz_over_tls

CASES_PER_PROFILE, CASES_OVER_TLS = 25_000, 2_000


def main(seed: int) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for profile in ("documents", "1.36"):
        with tempfile.TemporaryDirectory(dir=scratch()) as directory:
            outcome = fuzz(seed, CASES_PER_PROFILE, Path(directory) / "state", profile)
        print(report(seed, outcome.failures))
        counts["failed"] += len(outcome.failures)
        counts.update({f"{profile}: {name}": count for name, count in outcome.counts.items()})
    with tempfile.TemporaryDirectory(dir=scratch()) as directory:
        outcome = fuzz_over_tls(seed, CASES_OVER_TLS, Path(directory))
    print(report(seed, outcome.failures))
    counts["failed"] += len(outcome.failures)
    counts.update({f"TLS: {name}": count for name, count in outcome.counts.items()})
    return dict(sorted(counts.items()))
