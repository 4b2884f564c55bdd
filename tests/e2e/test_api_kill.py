"""A few kills of a whole API server; `./dev prove api_kill` makes more of them."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.api_kill import run


def test_nothing_acknowledged_is_lost_and_watchers_miss_nothing(tmp_path: Path) -> None:
    counts, faults = run(tmp_path, seed=1, kills=5)
    assert not faults, "\n".join(faults[:20])
    assert counts["kills"] == 5
    assert counts["acknowledged"] > 200
    assert counts["seen"] > 200
