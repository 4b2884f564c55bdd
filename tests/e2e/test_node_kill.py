"""A few kills of a whole node and its API server; `./dev prove node_kill` makes more of them."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.node_kill import run

KILLS = {"agent": 5, "API server": 1, "both": 1, "supervisor": 1}


def test_no_container_is_lost_doubled_restarted_or_outside_its_cgroup(tmp_path: Path) -> None:
    counts, faults = run(tmp_path, 1, KILLS)
    assert not faults, "\n".join(faults[:20])
    assert counts["kills of the agent"] >= 5
    assert counts["kills of the API server"] == counts["kills of both"] == counts["kills of the supervisor"] == 1
    assert counts["processes seen"] > 20
