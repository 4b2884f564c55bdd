"""Faults and kills on each kernel and driver, a part of the operations (all of them in `./dev prove`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from tests.kernel.conftest import InGuest
from tests.kernel.guest import PYTHON

LONG = pytest.mark.long
COMBINATIONS = [
    pytest.param("host", "cgroupfs", 9, [], id="host-v1-cgroupfs"),
    pytest.param("uml-v2", "cgroupfs", 12, ["first-pods", "teardown"], id="v2-cgroupfs"),
    pytest.param("uml-v2-systemd", "systemd", 16, ["first-pods", "teardown"], id="v2-systemd", marks=LONG),
    pytest.param("uml-v1-systemd", "systemd", 16, ["first-pods", "teardown"], id="v1-systemd", marks=LONG),
]


@pytest.mark.parametrize(("kind", "driver", "every", "scenarios"), COMBINATIONS)
def test_all_old_or_all_new(
    kind: str,
    driver: str,
    every: int,
    scenarios: list[str],
    in_guest: InGuest,
    exercised: Callable[[str, str], None],
) -> None:
    argv = ["-m", "tests.kernel.faults", "--driver", driver, "--every", str(every), "--rounds", "6", *scenarios]
    if kind == "host":
        if os.geteuid() != 0 or this_host().version != 1:
            pytest.skip("host: root on cgroup v1 is needed")
        done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        output = done.stdout
        exercised("kernel", f"Linux {os.uname().release}, cgroup v1, cgroupfs (this machine)")
    else:
        inside = in_guest(kind, [PYTHON, *argv], 400.0)
        assert inside.status == 0, inside.report()
        output = inside.stdout
    found = json.loads(output)
    assert found["undone"] >= 4
    assert found["killed"] >= 4
    assert found["reads"] > 10
