"""The `cat` and `ls` examples of the documents, on real kernels: the same files have the same values (documents.md)."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import CgroupsUnusableError, check_required, this_host
from tests.kernel.conftest import InGuest
from tests.kernel.document_commands import ROOT
from tests.kernel.guest import PYTHON

Files = dict[str, str]


def v1(shares: int, quota_us: int | None, memory_bytes: int | None) -> Files:
    return {
        "cpu.shares": str(shares),
        "cpu.cfs_quota_us": str(quota_us or -1),
        "cpu.cfs_period_us": "100000",
        "memory.limit_in_bytes": str(memory_bytes or 9223372036854771712),  # the kernel's word for none
    }


def v2(weight: int, quota_us: int | None, memory_bytes: int | None) -> Files:
    return {
        "cpu.weight": str(weight),
        "cpu.max": f"{quota_us or 'max'} 100000",
        "memory.max": str(memory_bytes or "max"),
    }


# What the documents' own listings or sums say: shares, weight, quota and memory limit of pod and container.
PODS: dict[str, tuple[int, int, int | None, int | None]] = {
    "000-example": (256, 10, 50000, 67108864),
    "002-qos-demo": (256, 10, 50000, 2147483648),
    "002-besteffort": (2, 1, None, None),
    "003-demo-resized-cpu-2": (2048, 79, 200000, 209715200),
    "004-busybox": (256, 10, 50000, 419430400),
}
ALL_PODS = (47104, 1797, None, 265214214144)
LISTING_002 = {
    "cgroup.controllers", "cgroup.events", "misc.current", "misc.max", "pids.current", "pids.events", "pids.max",
    "rdma.current", "rdma.max",
}  # fmt: skip
PATHS = {
    "cgroupfs": {
        "002-qos-demo": "/kubepods/burstable/poddba294ab-05fe-4314-a6d0-f9e0b3848104",
        "003-demo-resized-cpu-2": "/kubepods/podab959cd5-f9e3-4b34-8051-861f7caca04c",
    },
    "systemd": {
        "002-qos-demo": "/kubepods.slice/kubepods-burstable.slice/"
        "kubepods-burstable-poddba294ab_05fe_4314_a6d0_f9e0b3848104.slice",
        "003-demo-resized-cpu-2": "/kubepods.slice/kubepods-podab959cd5_f9e3_4b34_8051_861f7caca04c.slice",
    },
}
KERNELS = [
    pytest.param("host", "cgroupfs", "documents", id="host"),
    pytest.param("host", "cgroupfs", "1.36", id="host-1.36"),
    pytest.param("uml-v2", "cgroupfs", "documents", id="v2-cgroupfs"),
    pytest.param("uml-v2-systemd", "systemd", "documents", id="v2-systemd"),
]


@pytest.mark.parametrize(("kind", "driver", "profile"), KERNELS)
def test_files_are_as_the_documents_show_them(
    kind: str, driver: str, profile: str, in_guest: InGuest, exercised: Callable[[str, str], None]
) -> None:
    argv = ["-m", "tests.kernel.document_commands", "--driver", driver, "--profile", profile]
    root = f"/plimsoll-test-{secrets.token_hex(4)}" if kind == "host" else ""
    found = on_host([*argv, "--root", root], exercised) if kind == "host" else inside(kind, argv, in_guest)
    version: int = found["version"]
    files = v1 if version == 1 else v2

    def wanted(shares: int, weight: int, quota_us: int | None, memory_bytes: int | None) -> Files:
        return files(shares if version == 1 else weight, quota_us, memory_bytes)

    # Node level: kubepods and two classes, and no cgroup for reserved resources that are not configured (004-25, 004-33).
    slices = {"cgroupfs": ("{}", "{}"), "systemd": ("{}.slice", "kubepods-{}.slice")}[driver]
    assert found["top"] == [slices[0].format("kubepods")]
    assert found["classes"] == [slices[1].format(name) for name in ("besteffort", "burstable")]
    assert without_pids(found["pods"]) == wanted(*ALL_PODS)

    for name, values in PODS.items():
        shown = found[name]
        assert without_pids(shown["pod"]) == wanted(*values), name
        assert shown["pod"]["pids.max"] == "100", name
        weight = shown["containers"][0].get("cpu.weight")
        for container in shown["containers"]:
            assert without_pids(container) == wanted(*values) | ({"cpu.weight": weight} if version == 2 else {}), name
        if profile == "documents" and version == 2:
            assert weight == str(values[1]), name

    for name, path in PATHS[driver].items():
        assert found[name]["path"] == root + path

    # The listing of document 002: of its files one is ours to write, and only v1 has `tasks` (002-62, 002-63).
    assert LISTING_002 & set(found["written"]) == {"pids.max"}
    listing = set(found["002-qos-demo"]["listing"])
    assert "cgroup.procs" in listing
    assert ("tasks" in listing) is (version == 1)
    if version == 2:
        assert {"cgroup.controllers", "cgroup.events", "pids.current", "pids.events", "pids.max"} <= listing

    # A process in a container: where it is, its adjustment, and the kernel's own score (002-34, 002-40, 002-45).
    burstable, best_effort = (found[name]["run"] for name in ("002-qos-demo", "002-besteffort"))
    assert (burstable["oom_score_adj"], best_effort["oom_score_adj"]) == (997, 1000)
    assert best_effort["oom_score"] > burstable["oom_score"] > 0
    for name in ("002-qos-demo", "002-besteffort"):
        assert found[name]["run"]["path"].startswith(found[name]["path"] + "/")
        assert found[name]["run"]["listed"] == 1, "cgroup.procs has it"


def without_pids(files: Files) -> Files:
    return {name: value for name, value in files.items() if name != "pids.max"}


def on_host(argv: list[str], exercised: Callable[[str, str], None]) -> dict[str, Any]:
    if os.geteuid() != 0:
        pytest.skip("host: root is needed")
    try:
        check_required(this_host())
    except CgroupsUnusableError as problem:
        pytest.skip(f"host: {problem}")
    if this_host().read_only:
        pytest.skip("host: cgroups are mounted read-only")
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    exercised("kernel", f"Linux {os.uname().release}, cgroup v{this_host().version}, cgroupfs (this machine)")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def inside(kind: str, argv: list[str], in_guest: InGuest) -> dict[str, Any]:
    done = in_guest(kind, [PYTHON, *argv], 240.0)
    assert done.status == 0, done.report()
    found: dict[str, Any] = json.loads(done.stdout)
    return found
