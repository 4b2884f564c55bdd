"""Twenty pods on each kernel and driver: what `explain` says is what the kernel has (two hundred in `./dev prove`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from tests.kernel.conftest import InGuest
from tests.kernel.guest import PYTHON
from tests.kernel.matrix import write_pods

COMBINATIONS = [
    pytest.param("host", "cgroupfs", "documents", id="host-v1-cgroupfs"),
    pytest.param("uml-v2", "cgroupfs", "documents", id="v2-cgroupfs"),
    pytest.param("uml-v2-systemd", "systemd", "1.36", id="v2-systemd"),
    pytest.param("uml-v1-systemd", "systemd", "documents", id="v1-systemd", marks=pytest.mark.long),
]


@pytest.fixture(scope="session")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("matrix") / "pods.jsonl"
    write_pods(file, 20, seed=7)
    return file


@pytest.mark.parametrize(("kind", "driver", "profile"), COMBINATIONS)
def test_every_file_is_what_explain_says(
    kind: str, driver: str, profile: str, pods: Path, in_guest: InGuest, exercised: Callable[[str, str], None]
) -> None:
    argv = ["-m", "tests.kernel.matrix", str(pods), "--driver", driver, "--profile", profile, "--memory-qos"]
    found = _on_host(argv, exercised) if kind == "host" else _inside(kind, argv, in_guest)
    assert found["pods"] == 20
    assert found["values"] > 150


def _on_host(argv: list[str], exercised: Callable[[str, str], None]) -> dict[str, Any]:
    if os.geteuid() != 0 or this_host().version != 1:
        pytest.skip("host: root on cgroup v1 is needed")
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    exercised("kernel", f"Linux {os.uname().release}, cgroup v1, cgroupfs (this machine)")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _inside(kind: str, argv: list[str], in_guest: InGuest) -> dict[str, Any]:
    done = in_guest(kind, [PYTHON, *argv], 240.0)
    assert done.status == 0, done.report()
    found: dict[str, Any] = json.loads(done.stdout)
    return found
