"""One eviction where the kernel has pressure stall information and two CPUs (QEMU).

Plain Python, and one check: everything takes its time there.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(PROJECT / "src"), str(PROJECT)]

from tests.kernel import pressure_checks as checks  # noqa: E402
from tests.kernel.pressure_node import pressure_node  # noqa: E402

NOT_ALL_EVENTS = "does not tell of every shortage"


def main() -> None:
    assert os.cpu_count() == 2
    with (
        tempfile.TemporaryDirectory() as directory,
        pressure_node(Path(directory) / "cluster", checks.SETTINGS) as node,
    ):
        assert (node.kubepods / "memory.pressure").exists()
        checks.best_effort_goes_first_and_guaranteed_stays(node)
        assert NOT_ALL_EVENTS not in (node.directory / "node.log").read_text(), "the stall trigger was refused"
    print("all seen")


if __name__ == "__main__":
    main()
