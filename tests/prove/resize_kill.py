"""The agent killed −9 at every call of its main thread by which a resize changes a file or calls the API, and at those
of the thread that writes memory limits: upwards and downwards, in both profiles."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.real_node import real_node
from tests.e2e.resize_kill import CALLS, ResizeKill, missing

BEYOND = 60


def main(seed: int) -> dict[str, Any]:
    """`seed` is unused: every step comes once."""
    if why := missing():
        raise RuntimeError(why)
    counts: dict[str, Any] = {"seed": seed, "failed": 0}
    for profile in ("documents", "1.36"):
        with tempfile.TemporaryDirectory() as directory, real_node(Path(directory) / "cluster", profile) as node:
            kills, killed = ResizeKill(node), Counter[str]()
            try:
                for call in CALLS:
                    step, was_killed = 0, True
                    while was_killed and step < BEYOND:
                        step += 1
                        down, up = kills.at(call, step), kills.at(call, step)
                        was_killed = down or up
                        killed[call] += down + up
            finally:
                kills.close()
        print("\n".join(kills.faults[:20]))
        counts[f"kills in profile {profile}"] = dict(killed)
        counts["failed"] += len(kills.faults) + sum(not killed[call] for call in CALLS)
    return counts
