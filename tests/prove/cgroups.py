"""Two hundred pods on each kernel and driver read back, and every fault and kill of every scenario (`./dev prove`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.kernel.guest import PYTHON, GuestMissingError
from tests.kernel.kinds import run_in
from tests.kernel.matrix import write_pods

COMBINATIONS = {
    "host-v1-cgroupfs": ("host", "cgroupfs", "documents"),
    "v2-cgroupfs": ("uml-v2", "cgroupfs", "documents"),
    "v2-systemd": ("uml-v2-systemd", "systemd", "1.36"),
    "v1-systemd": ("uml-v1-systemd", "systemd", "documents"),
}


def main(seed: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="plimsoll-prove-") as directory:
        pods = Path(directory) / "pods.jsonl"
        write_pods(pods, 200, seed)
        for name, (kind, driver, profile) in COMBINATIONS.items():
            matrix = ["-m", "tests.kernel.matrix", str(pods), "--driver", driver, "--profile", profile, "--memory-qos"]
            # Guests are slow: there each operation is refused with one errno, alternately, here with all five.
            faults = ["-m", "tests.kernel.faults", "--driver", driver, "--rounds", "40"]
            faults += ["--codes", "5" if kind == "host" else "1"]
            found[name] = {"matrix": _done(kind, matrix), "faults": _done(kind, faults)}
            print(name, json.dumps(found[name]), flush=True)
    return found


def _done(kind: str, argv: list[str]) -> Any:
    if kind == "host":
        if os.geteuid() != 0:
            return "not run: root is needed"
        done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, timeout=2400, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)
    try:
        inside = run_in(kind, [PYTHON, *argv], 2400.0)
    except GuestMissingError as problem:
        return f"not run: {problem}"
    if inside.status:
        raise RuntimeError(inside.report())
    return json.loads(inside.stdout)
