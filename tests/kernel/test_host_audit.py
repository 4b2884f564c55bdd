"""`plimsoll audit` on the machine itself, cgroup v1: clean as made, and every bend is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from plimsoll.cgroups.drivers.detect import Hierarchies
from tests.kernel.audit_checks import audited_machine, check_clean_and_bent, check_processes_and_strays
from tests.unit.console import run


def test_a_tree_as_a_kubelet_makes_it(host_v1: Hierarchies, exercised: Callable[[str, str], None]) -> None:
    exercised("kernel", "host, cgroup v1, audit")
    with audited_machine() as (machine, runner):
        check_clean_and_bent(machine, runner)
        check_processes_and_strays(machine, runner)


def test_a_stray_in_one_hierarchy_alone(host_v1: Hierarchies, exercised: Callable[[str, str], None]) -> None:
    exercised("kernel", "host, cgroup v1, a cgroup in one hierarchy")
    with audited_machine() as (machine, _):
        stray = f"{machine.path('class', 'BestEffort')}/pod11111111-2222-3333-4444-555555555555"
        directory = Path(host_v1.v1["pids"].mount_point) / stray.lstrip("/")
        directory.mkdir()
        try:
            (finding,) = machine.found("A12")
        finally:
            directory.rmdir()
        assert (finding.path, finding.severity) == (stray, "warning")
        assert finding.note == "the API has no such pod on this node; of the hierarchies with limits it is only in pids"


HOG = "import mmap\nm = mmap.mmap(-1, 64 << 20)\nfor at in range(0, len(m), 4096): m[at] = 1"


def test_the_story_of_a_kill_without_any_agent(
    host_v1: Hierarchies, exercised: Callable[[str, str], None], tmp_path: Path
) -> None:
    """The kernel's log has the kill; the journal has it after the container is gone."""
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("/dev/kmsg cannot be read")
    exercised("kernel", "host, cgroup v1, an OOM kill from the kernel's log")
    journal, pods = tmp_path / "oom.jsonl", tmp_path / "pods.json"
    with audited_machine() as (machine, runner):
        pods.write_bytes(msgspec.json.encode({"kind": "PodList", "apiVersion": "v1", "items": machine.pods}))
        path = machine.path("container", "web")  # 64Mi, of which 40Mi are left for this
        for file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            runner.run(machine.driver.write(path, file, str(16 << 20)))
        child = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _ && exec "$@"', "sh", sys.executable, "-c", HOG], stdin=subprocess.PIPE
        )
        runner.run(machine.driver.move(path, child.pid))
        child.communicate(b"go\n")
        assert child.returncode == -9
        ran = run("oom", "--here", "--journal", str(journal), "--pods", str(pods), "-o", "json")
        kills = [each for each in json.loads(ran.out)["kills"] if each.get("pid") == child.pid]
        assert [(each["pod"], each["container"], each["level"]) for each in kills] == [("web", "app", "container")]
    later = json.loads(run("oom", "web", "--here", "--journal", str(journal), "-o", "json").out)["kills"]
    assert child.pid in [each.get("pid") for each in later]
