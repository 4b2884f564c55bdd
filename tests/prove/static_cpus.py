"""The static CPU policy on eight CPUs, with API server and node as processes that are killed (`./dev prove`)."""

from __future__ import annotations

from typing import Any

from tests.kernel.guest import PYTHON, GuestMissingError
from tests.kernel.kinds import run_in

PROGRAM = "tests.kernel.in_guest.static_cpus"
COMBINATIONS = {"v2-cgroupfs": ("qemu-v2-8", "cgroupfs"), "v2-systemd": ("qemu-v2-systemd-8", "systemd")}


def main(seed: int) -> dict[str, Any]:
    """`seed` is unused: nothing is random."""
    found: dict[str, Any] = {}
    for name, (kind, driver) in COMBINATIONS.items():
        try:
            done = run_in(kind, [PYTHON, "-m", PROGRAM, driver, "processes"], 1200.0)
        except GuestMissingError as problem:
            found[name] = f"not run: {problem}"
            continue
        if done.status or not done.stdout.endswith("all seen\n"):
            raise RuntimeError(done.report())
        found[name] = {"seen": done.stdout.count("seen: "), "seconds": round(done.seconds)}
        print(name, found[name], flush=True)
    return found
