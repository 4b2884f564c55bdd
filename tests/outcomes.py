"""Runs pytest in a process of its own and returns the outcome of each test: for proofs that are runs of tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Outcomes = dict[str, dict[str, Any]]


def outcomes(
    *words: str, environment: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> tuple[Outcomes, list[str]]:
    """Test → outcome and seconds; and what failed, pytest itself included. `before`: words in front of the command."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-prove-") as directory:
        report = Path(directory) / "report.xml"
        command = [*before, sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *words]
        code = subprocess.run(command, env={**os.environ, **(environment or {})}, check=False).returncode
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    found = {each.attrib["name"]: {"outcome": _outcome(each), "seconds": _seconds(each)} for each in cases}
    failed = sorted(name for name, each in found.items() if each["outcome"] == "failed")
    return found, failed or ([f"pytest ended with {code}"] if code or not found else [])


def _seconds(case: ElementTree.Element) -> float:
    return round(float(case.attrib["time"]), 1)


def _outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"
