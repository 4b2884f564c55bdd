"""Block I/O of pods in guests with a real disk (`./dev prove io`).

A writer is held to its io.max within 10 %, also after a change in place; two readers share by weight with BFQ and with
io.cost; a log rotation storm in system.slice beside a Guaranteed pod, with and without ioControl. With both cgroup
drivers.
"""

from __future__ import annotations

import json
from typing import Any

from tests.kernel.guest import PYTHON
from tests.kernel.kinds import KINDS, run_in

PROGRAM = [PYTHON, "-m", "tests.kernel.in_guest.block_io"]
GUESTS = (("qemu-v2-io", ["cgroupfs", "all"], 420.0), ("qemu-v2-systemd-io", ["systemd"], 300.0))


def main(seed: int) -> dict[str, Any]:
    """`seed` is unused: nothing is random. The disk reads and writes 10 MiB per second."""
    counts: dict[str, Any] = {"failed": 0, "disk MiB/s": KINDS["qemu-v2-io"].disk_bytes_per_s >> 20}
    for kind, arguments, timeout_s in GUESTS:
        done = run_in(kind, [*PROGRAM, *arguments], timeout_s)
        print(done.stdout, flush=True)
        if not done.stdout.endswith("all seen\n"):
            counts["failed"] += 1
            print(done.report(), flush=True)
            continue
        measured = json.loads(done.files["measured.json"])
        counts[arguments[0]] = {"guest": done.described("qemu"), "seconds": round(done.seconds), **measured}
    return counts
