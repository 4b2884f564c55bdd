"""A hundred kills −9 of the agent, forty of the API server, forty of both at once, one of the supervisor."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.e2e.node_kill import run

KILLS = {"agent": 100, "API server": 40, "both": 40, "supervisor": 1}


def main(seed: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as directory:
        counts, _ = run(Path(directory), seed, KILLS)
    return counts
