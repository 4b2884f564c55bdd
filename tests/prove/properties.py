"""Every property of the unit tests with five times the examples, and others with each seed (`./dev prove properties`)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from tests.examples import PROVE

TIMES = 5


def main(seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-prove-") as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", f"--hypothesis-seed={seed}"]
        command += [f"--junitxml={report}", "tests/unit"]
        ended = subprocess.run(command, env={**os.environ, PROVE: str(TIMES)}, check=False).returncode
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        case.attrib["name"] for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    return {"tests": len(cases), "times": TIMES, "failed": failed, "exit": ended, "seed": seed}
