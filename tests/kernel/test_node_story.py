"""A whole node (API server, agent, pods) on each real place: this machine's cgroup v1, and cgroup v2 in a guest, written
by ourselves and by systemd. What it must do there is in `node_story.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import this_host
from tests.kernel.conftest import InGuest
from tests.kernel.guest import PYTHON, ROOT

STORY = ["-m", "tests.kernel.node_story"]


def test_on_this_machine(tmp_path: Path, exercised: Callable[[str, str], None]) -> None:
    if os.geteuid() != 0 or this_host().version != 1:
        pytest.skip("needs root on a cgroup v1 host")
    command = [sys.executable, *STORY, str(tmp_path / "story")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=400, check=False)
    exercised("node agent", "this machine, cgroup v1, cgroupfs")
    _judge(done.returncode, done.stdout, done.stderr)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "driver"), [("uml-v2", "cgroupfs"), ("uml-v2-systemd", "systemd")])
def test_in_a_guest(kind: str, driver: str, in_guest: InGuest, exercised: Callable[[str, str], None]) -> None:
    command = [PYTHON, *STORY, "/tmp/story", "--driver", driver, "--cgroup-root", "/plimsolltest"]
    done = in_guest(kind, command, 500.0, memory_mib=768)
    exercised("node agent", f"user-mode Linux, cgroup v2, {driver}")
    _judge(done.status, done.stdout, done.report())


@pytest.mark.long
@pytest.mark.parametrize(("kind", "driver"), [("uml-v2", "cgroupfs"), ("uml-v2-systemd", "systemd")])
def test_the_dashboard_shows_the_kernel_of_a_guest(
    kind: str, driver: str, in_guest: InGuest, exercised: Callable[[str, str], None]
) -> None:
    command = [PYTHON, "-m", "tests.kernel.live_story", "/tmp/live", "--driver", driver]
    done = in_guest(kind, command, 300.0, memory_mib=768)
    exercised("dashboard", f"user-mode Linux, cgroup v2, {driver}")
    assert done.status == 0 and not json.loads(done.stdout)["faults"], done.report()


def _judge(code: int, said: str, report: str) -> None:
    assert code in (0, 1), report
    answer = json.loads(said)
    assert not answer["faults"], f"{answer['faults']}\n{answer.get('log', '')}"
    assert len(answer["seconds"]) == 7
