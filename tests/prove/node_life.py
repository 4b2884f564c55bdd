"""Random lives of a real node on real kernels, compared with a fresh one at the end of each (`./dev prove node_life`)."""

from __future__ import annotations

import json
import tempfile
import traceback
from pathlib import Path
from typing import Any

from plimsoll.cgroups.drivers.detect import this_host
from tests.kernel.guest import PYTHON, GuestMissingError
from tests.kernel.kinds import run_in
from tests.kernel.node_life import run

LIVES, LIVES_IN_GUEST, STEPS = 20, 4, 25
PROFILES = ("documents", "1.36")
GUEST_S, GUEST_MIB = 1800.0, 1600


def main(seed: int) -> dict[str, Any]:
    counts: dict[str, Any] = {"steps": STEPS, "seed": seed, "failed": []}
    for profile in PROFILES:
        if this_host().version == 1:
            counts[f"this machine, cgroup v1, {profile}"] = _here(profile, seed, counts["failed"])
        try:
            counts[f"guest, cgroup v2, {profile}"] = _in_guest(profile, seed, counts["failed"])
        except GuestMissingError as problem:
            counts[f"guest, cgroup v2, {profile}"] = str(problem)
    return counts


def _here(profile: str, seed: int, failed: list[str]) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-prove-") as directory:
        try:
            return run(Path(directory), profile, LIVES, STEPS, seed)
        except (AssertionError, OSError, ExceptionGroup):
            failed.append(traceback.format_exc())
            return {}


def _in_guest(profile: str, seed: int, failed: list[str]) -> dict[str, int]:
    argv = [PYTHON, "tests/kernel/in_guest/life.py", profile, str(LIVES_IN_GUEST), str(STEPS), str(seed)]
    done = run_in("uml-v2", argv, GUEST_S, memory_mib=GUEST_MIB)
    if done.status or "life.json" not in done.files:
        failed.append(done.report())
        return {}
    found: dict[str, int] = json.loads(done.files["life.json"])
    return found
