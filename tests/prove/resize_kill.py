"""The agent killed −9 at every call by which a resize changes a file or calls the API: of its main thread, and of the
thread that writes memory limits below the usage. In both profiles; `tests/e2e/resize_kill` has the ways to resize."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.e2e.real_node import real_node
from tests.e2e.resize_kill import AT_ONCE, CALLS, ResizeKill, missing

BEYOND = 60


def main(seed: int) -> dict[str, Any]:
    """`seed` is unused: every step comes once. A kind of call that has killed no agent counts as failed."""
    if why := missing():
        raise RuntimeError(why)
    counts: dict[str, Any] = {"seed": seed, "failed": 0}
    for profile in ("documents", "1.36"):
        with tempfile.TemporaryDirectory() as directory, real_node(Path(directory) / "cluster", profile) as node:
            kills = ResizeKill(node)
            try:
                for way, calls in CALLS.items():
                    for call in calls:
                        _every_step(kills, way, call)
            finally:
                kills.close()
        without = [f"{way}, {call}" for way, calls in CALLS.items() for call in calls if not kills.killed[way][call]]
        print("\n".join([*kills.faults[:20], *(f"profile {profile}: no kill: {each}" for each in without)]))
        for way in CALLS:
            counts[f"kills in profile {profile}, {way}"] = dict(kills.killed[way])
        counts["failed"] += len(kills.faults) + len(without)
    return counts


def _every_step(kills: ResizeKill, way: str, call: str) -> None:
    """The last step kills nothing: no resize has so many."""
    for step in range(1, BEYOND + 1):
        down = kills.at(way, call, step)
        up = way == AT_ONCE and kills.at(way, call, step)  # up, where it was down before
        if not (down or up):
            return
    raise AssertionError(f"{way}: a resize has more than {BEYOND} {call}")
