"""CPUs, memory and devices of one NUMA node, in a guest with two, with the node, the plugin and both killed (−9)."""

from __future__ import annotations

from typing import Any

from tests.kernel.guest import PYTHON
from tests.kernel.kinds import run_in


def main(seed: int) -> dict[str, Any]:
    """`seed` is unused: nothing is random."""
    done = run_in("qemu-v2-numa", [PYTHON, "-m", "tests.kernel.in_guest.numa", "processes"], 1200.0)
    print(done.stdout, flush=True)
    if not done.stdout.endswith("all seen\n"):
        raise RuntimeError(done.report())
    return {"guest": done.described("qemu"), "seen": done.stdout.count("seen: "), "seconds": round(done.seconds)}
