"""The agent killed −9 at every single call by which a resize changes a file or tells the API, in both profiles."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.e2e.real_node import real_node
from tests.e2e.resize_kill import CALLS, ResizeKill, missing

BEYOND = 60
IN_A_ROW = 2  # resizes up and down take different steps


def main(seed: int) -> dict[str, Any]:
    """`seed` has nothing to say here: every step comes once."""
    if why := missing():
        raise RuntimeError(why)
    counts: dict[str, Any] = {"seed": seed, "failed": 0}
    for profile in ("1.27", "1.36"):
        with tempfile.TemporaryDirectory() as directory, real_node(Path(directory) / "world", profile) as node:
            kills, killed = ResizeKill(node), 0
            for call in CALLS:
                step = missed = 0
                while missed < IN_A_ROW and step < BEYOND:
                    step += 1
                    was_killed = kills.at(call, step)
                    killed, missed = killed + was_killed, 0 if was_killed else missed + 1
            kills.close()
        print("\n".join(kills.faults[:20]))
        counts[f"kills in profile {profile}"] = killed
        counts["failed"] += len(kills.faults)
    return counts
