"""A few kills of the store's process; `./dev prove` makes more of them."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.store_kill import run


def test_nothing_acknowledged_is_lost_under_kill(tmp_path: Path) -> None:
    counts, faults = run(tmp_path, seed=1, kills=5)
    assert not faults, "\n".join(faults[:20])
    assert counts["kills"] == 5
    assert counts["acknowledged"] > 500
    assert counts["seen"] > 500
    assert counts["listed_again"] > 0
