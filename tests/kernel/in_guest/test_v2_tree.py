"""`plimsoll tree` on cgroup v2, in a guest: protection, throttling, OOM kills and tasks of real cgroups."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.console import run

MIB = 1 << 20
ROOT = Path("/sys/fs/cgroup")
UID = "dba294ab-05fe-4314-a6d0-f9e0b3848104"
SLICES = ("kubepods.slice", "kubepods-burstable.slice", f"kubepods-burstable-pod{UID.replace('-', '_')}.slice")
POD = "/" + "/".join(SLICES)
APP, PAUSE = f"{POD}/cri-containerd-{'4a1f' * 16}.scope", f"{POD}/cri-containerd-{'b2c3' * 16}.scope"
BUSY = "while True: pass"
HOG = "m = bytearray(64 << 20)\nfor at in range(0, len(m), 4096): m[at] = 1"


def put(path: str, file: str, value: object) -> None:
    Path(f"{ROOT}{path}/{file}").write_text(str(value))


def started(path: str, *command: str) -> subprocess.Popen[bytes]:
    """In the cgroup before it does anything."""
    process = subprocess.Popen(["/bin/sh", "-c", 'read -r _ && exec "$@"', "sh", *command], stdin=subprocess.PIPE)
    put(path, "cgroup.procs", process.pid)
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.close()
    return process


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    pause = shutil.copy("/bin/sleep", tmp_path_factory.mktemp("node") / "pause")
    put("/", "cgroup.subtree_control", "+memory +cpu +pids")
    above = ""
    for name in SLICES:
        above += f"/{name}"
        Path(f"{ROOT}{above}").mkdir()
        put(above, "cgroup.subtree_control", "+memory +cpu +pids")
    for path in (APP, PAUSE):
        Path(f"{ROOT}{path}").mkdir()
    for file, amount in (("min", 8), ("low", 16), ("high", 24), ("max", 32)):
        put(APP, f"memory.{file}", amount * MIB)
    put(APP, "cpu.max", "20000 100000")
    hog = started(APP, sys.executable, "-S", "-c", HOG)
    put(APP, "memory.high", "max")  # or it would be slowed down for minutes before it meets its limit
    assert hog.wait(60) != 0
    put(APP, "memory.high", 24 * MIB)
    processes = [started(APP, sys.executable, "-S", "-c", BUSY), started(PAUSE, str(pause), "600")]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def tree() -> dict[str, Any]:
    ran = run("tree", "--tasks", "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_the_figures_of_a_container(node: None) -> None:
    deadline = time.monotonic() + 60
    while True:
        found = tree()
        (burstable,) = found["tree"]["children"]
        (pod,) = burstable["children"]
        app, sandbox = pod["children"]
        if app["cpu"].get("throttledPeriods", 0) >= 5 and sandbox["kind"] == "sandbox":
            break
        assert time.monotonic() < deadline, (app, sandbox)
        time.sleep(0.1)
    assert found["cgroupVersion"] == 2
    assert (pod["kind"], pod["podUid"], pod["qosClass"]) == ("pod", UID, "Burstable")
    memory = app["memory"]
    limits = [memory[f"{name}Bytes"] for name in ("min", "low", "high", "max")]
    assert limits == [8 * MIB, 16 * MIB, 24 * MIB, 32 * MIB]
    assert 0 < memory["workingSetBytes"] <= memory["usageBytes"]
    assert app["cpu"]["limitMilli"] == 200
    assert app["cpu"]["throttledPeriods"] <= app["cpu"]["periods"]
    assert app["oomKills"] == pod["oomKills"] == found["tree"]["oomKills"] == 1
    assert app["tasks"]["running"] + app["tasks"]["sleeping"] == 1
    assert (app["runtime"], app["containerId"]) == ("containerd", "4a1f" * 16)


def test_the_picture(node: None) -> None:
    ran = run("tree")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("/kubepods.slice  cgroup v2 · systemd · 1 pod · ")
    for title in ("MIN", "LOW", "HIGH", "THROTTLED", "OOM"):
        assert title in ran.out.splitlines()[1]
    row = next(line for line in ran.out.splitlines() if "4a1f4a1f4a1f" in line)
    assert all(f"{amount}.0 MiB" in row for amount in (8, 16, 24, 32))
    assert any(mark in row for mark in "╋┼")
    assert "not available: memory.pressure, cpu.pressure, io.pressure" in ran.out  # this guest's kernel has no PSI


def test_the_picture_as_svg(node: None) -> None:
    ran = run("tree", "-o", "svg")
    assert (ran.code, ran.err) == (0, "")
    for name, amount in (("min", 8), ("low", 16), ("high", 24), ("max", 32)):
        assert f"memory.{name} {amount}.0 MiB ({amount * MIB} bytes)" in ran.out
    assert "no effect: its ancestors protect nothing" in ran.out  # the slices above have no memory.min
    assert "cpu.max 20000 100000" in ran.out
