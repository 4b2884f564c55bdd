"""One random life of a real node on this machine's kernel; `./dev prove node_life` has many more, and cgroup v2 too."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from tests.kernel.node_life import run

if os.geteuid() != 0 or this_host().version != 1:
    pytest.skip("needs root on a cgroup v1 host", allow_module_level=True)

LIVES, STEPS = 1, 15


def test_a_random_life(tmp_path: Path, exercised: Callable[[str, str], None]) -> None:
    counts = run(tmp_path, "1.36", LIVES, STEPS)
    assert counts["lives"] >= LIVES and counts["pods"]
    exercised("kernel", f"Linux {platform.release()}, cgroup v1, random lives of a node")
