"""The tests that take minutes in a guest and are left out of `./dev test` (`./dev prove guests`): marked `long`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any


def main(seed: int) -> dict[str, Any]:
    """`seed` has nothing to say here: nothing is random."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-prove-") as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "long", "-n", "2", f"--junitxml={report}", "tests/kernel"]
        ended = subprocess.run(command, check=False).returncode
        tests = {
            case.attrib["name"]: {"outcome": _outcome(case), "seconds": round(float(case.attrib["time"]), 1)}
            for case in ElementTree.parse(report).iter("testcase")
        }
    failed = sorted(name for name, each in tests.items() if each["outcome"] == "failed")
    return {"tests": tests, "failed": failed, "exit": ended, "seed": seed}


def _outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"
