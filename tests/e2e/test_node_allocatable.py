"""Node allocatable is enforced for real: hogs in pods take what is left over, and the system's reserve keeps its share.

A node that declares 2 CPUs and 600 MiB, of which 500m and 200 MiB are the system's, in a cgroup of its own beside
kubepods. Both are on this machine's kernel; who gets how much is read there.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from tests.e2e.kubectl import Kubectl, any_binary
from tests.e2e.real_node import RealNode, running, status_of
from tests.e2e.waiting import until

MIB = 1 << 20
CAPACITY_MIB, RESERVED_MIB = 600, 200
PODS_MIB = CAPACITY_MIB - RESERVED_MIB
HOLDS = """
taken = bytearray({} << 20)
for place in range(0, len(taken), 4096):
    taken[place] = 1
print('taken', flush=True)
import time
time.sleep(1000)
"""
BURNS = "print('burns', flush=True)\nwhile True: pass"


class Place:
    def __init__(self, node: RealNode, kube: Kubectl) -> None:
        self.node, self.kube = node, kube
        self.system = f"{node.cgroup_root}/system"

    def file(self, controller: str, path: str, name: str) -> Path:
        return Path(f"{this_host().v1[controller].mount_point}{path}/{name}")

    def number(self, controller: str, path: str, name: str) -> int:
        return int(self.file(controller, path, name).read_text())

    @property
    def pods(self) -> str:
        return f"{self.node.cgroup_root}/kubepods"

    @contextmanager
    def in_system(self, program: str) -> Iterator[subprocess.Popen[str]]:
        """A process of the system, in its reserve."""
        mounts = [self.file(name, self.system, "cgroup.procs") for name in ("memory", "cpu", "cpuacct")]
        enter = "import os, sys\nfor each in sys.argv[1:]: open(each, 'w').write(str(os.getpid()))\n"
        command = [sys.executable, "-c", enter + program, *map(str, mounts)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def place(tmp_path: Path, exercised: Callable[[str, str], None]) -> Iterator[Place]:
    found = this_host()
    if os.geteuid() != 0 or found.version != 1:
        pytest.skip("needs root on a cgroup v1 host")
    root = f"/plimsoll-test-{secrets.token_hex(4)}"
    driver = open_cgroupfs(found)
    for path in (root, f"{root}/system"):
        asyncio.run(driver.make(path))
    directory = tmp_path / "cluster"
    directory.mkdir()
    node = RealNode(directory, root, "documents")
    options: tuple[str, ...] = (
        "--capacity",
        f"cpu=2,memory={CAPACITY_MIB}Mi,pods=110",
        "--system-reserved",
        f"cpu=500m,memory={RESERVED_MIB}Mi",
    )
    options += ("--enforce-node-allocatable", "pods,system-reserved", "--system-reserved-cgroup", f"{root}/system")
    options += ("--eviction-hard", "memory.available<1Mi")
    node.node_options = options
    try:
        node.start_api()
        node.make_identity()
        node.start_node()
        exercised("node allocatable", "this machine, cgroup v1")
        yield Place(node, Kubectl(any_binary(), node.kubeconfig, tmp_path))
    finally:
        node.close()
        until(lambda: node.memory_cgroups() == ["system"])
        for path in (f"{root}/system", root):
            asyncio.run(driver.remove(path))
        shutil.rmtree(directory)


def hog(name: str, program: str, count: int = 1) -> str:
    container = {"image": "busybox", "command": ["python3", "-c", program]}
    spec: dict[str, Any] = {"containers": [{"name": f"c{number}", **container} for number in range(count)]}
    spec |= {"terminationGracePeriodSeconds": 1}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def test_memory_of_pods_ends_where_the_reserve_begins(place: Place) -> None:
    assert place.number("memory", place.pods, "memory.limit_in_bytes") == PODS_MIB * MIB
    assert place.number("memory", place.system, "memory.limit_in_bytes") == RESERVED_MIB * MIB
    with place.in_system(HOLDS.format(RESERVED_MIB - 60)) as system:
        assert system.stdout is not None
        assert system.stdout.readline() == "taken\n"
        place.kube("create", "-f", "-", stdin=hog("large", HOLDS.format(250)))
        running(place.kube, "large")
        until(lambda: "taken" in place.kube("logs", "large").out)
        place.kube("create", "-f", "-", stdin=hog("larger", HOLDS.format(300)))
        ends = until(lambda: _ended_for_memory(place.kube))
        assert ends, "one pod had to be killed"
        assert place.number("memory", place.pods, "memory.max_usage_in_bytes") <= PODS_MIB * MIB
        assert system.poll() is None, "the system's process was killed"
        assert place.number("memory", place.system, "memory.usage_in_bytes") >= (RESERVED_MIB - 60) * MIB


def _ended_for_memory(kube: Kubectl) -> list[str]:
    """Of the two hogs: killed at the limit of all pods, or evicted because nothing was left."""
    found = []
    for name in ("large", "larger"):
        status = status_of(kube, name)
        each = (status.get("containerStatuses") or [{}])[0]
        ends = [each.get(which, {}).get("terminated", {}).get("exitCode") for which in ("state", "lastState")]
        if 137 in ends or status.get("reason") == "Evicted":
            found.append(name)
    return found


def test_cpu_of_the_system_is_its_share_under_hogs(place: Place) -> None:
    assert place.number("cpu", place.pods, "cpu.shares") == 1536
    assert place.number("cpu", place.system, "cpu.shares") == 512
    cores = os.cpu_count() or 1
    place.kube("create", "-f", "-", stdin=hog("busy", BURNS, 2 * cores))
    running(place.kube, "busy")
    with ExitStack() as burning:
        for _ in range(cores):
            system_process = burning.enter_context(place.in_system(BURNS))
            assert system_process.stdout is not None
            assert system_process.stdout.readline() == "burns\n"
        before = _used_ns(place)
        time.sleep(10.0)  # what is measured is this time
        after = _used_ns(place)
    system, pods = (late - early for late, early in zip(after, before, strict=True))
    # 512 of 2048 shares is a quarter. Who else uses the machine moves both, and never takes it from one alone.
    assert 0.15 <= system / (system + pods) <= 0.45, (system, pods)
    assert status_of(place.kube, "busy")["phase"] == "Running"


def _used_ns(place: Place) -> tuple[int, int]:
    return (
        place.number("cpuacct", place.system, "cpuacct.usage"),
        place.number("cpuacct", place.pods, "cpuacct.usage"),
    )


def test_a_pod_larger_than_allocatable_is_not_taken(place: Place) -> None:
    document = json.loads(hog("big", HOLDS.format(1)))
    document["spec"]["containers"][0]["resources"] = {"requests": {"memory": f"{PODS_MIB + 1}Mi"}}
    place.kube("create", "-f", "-", stdin=json.dumps(document))
    until(lambda: "Insufficient memory" in place.kube("describe", "pod", "big").out)
