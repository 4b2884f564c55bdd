"""Measuring a node on the machine itself, cgroup v1: real processes in real cgroups, and what a sample of many costs.

All cgroups stand below `/plimsoll-test-<random>` in every hierarchy and are removed at the end.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.stats.usage import CpuLimit
from plimsoll.node.stats.prometheus import cadvisor_page, resource_page
from plimsoll.node.stats.stats import ContainerPlace, NodePlace, PodPlace, Stats
from plimsoll.node.stats.summary import summary_json
from tests.kernel.test_host_tree import make, own_root, put, removed

MIB = 1 << 20
# Holds 24 MiB and computes until a line comes.
BUSY = """
import mmap, select, sys
m = mmap.mmap(-1, 24 << 20)
for at in range(0, len(m), 4096): m[at] = 1
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]: sum(range(1000))
"""
PODS = 110
COST_MS = 15.0


def _pod(root: str, number: int, pid: int = 0) -> PodPlace:
    cgroup = f"{root}/kubepods/pod{number}"
    container = ContainerPlace("c", f"id{number}", f"{cgroup}/id{number}", pid, time.time())
    return PodPlace(f"u{number}", f"p{number}", "default", cgroup, time.time(), (container,))


def _stats(root: str, pods: list[PodPlace], tmp_path: Path) -> Stats:
    place = NodePlace("n1", f"{root}/kubepods", str(tmp_path), str(tmp_path))
    return Stats(open_cgroupfs(this_host()), place, lambda: pods, clock=time.time)


@contextmanager
def _busy(root: str, pod: PodPlace) -> Iterator[None]:
    """In the cgroup before it takes any memory."""
    path = pod.containers[0].cgroup
    # The shell waits until it stands in every hierarchy, and then becomes the program.
    command = ["sh", "-c", 'read line; exec "$0" -c "$1"', sys.executable, BUSY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        for controller in ("memory", "cpuacct", "cpu", "pids"):
            put(controller, path, "cgroup.procs", process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.stdin.write("end\n")
            process.stdin.close()
            process.wait(60)


def test_real_processes_are_measured(tmp_path: Path, exercised: Callable[[str, str], None]) -> None:
    with own_root() as root:
        pod = _pod(root, 0)
        make(pod.containers[0].cgroup)
        put("memory", pod.containers[0].cgroup, "memory.limit_in_bytes", 64 * MIB)
        stats = _stats(root, [pod], tmp_path)
        with _busy(root, pod):
            found, deadline = stats.sample(), time.monotonic() + 60
            while found.pods[0].containers[0].measured.cpu_nanocores is None and time.monotonic() < deadline:
                time.sleep(0.1)
                found = stats.sample()
        (sample,) = found.pods
        (container,) = sample.containers
        memory, cpu = container.measured.usage.memory, container.measured.usage.cpu
        assert memory
        assert memory.limit_bytes == 64 * MIB
        assert memory.working_set_bytes
        assert 24 * MIB <= memory.working_set_bytes < 64 * MIB
        assert cpu
        assert cpu.usage_us
        assert container.measured.cpu_nanocores
        assert 10_000_000 < container.measured.cpu_nanocores <= 1.2e9
        assert sample.measured
        assert sample.measured.usage.memory
        assert (sample.measured.usage.memory.working_set_bytes or 0) >= memory.working_set_bytes
        assert found.node.pods
        assert found.node.pods.usage.memory
        assert found.node.pods.usage.memory.usage_bytes >= 24 * MIB
        put("cpu", pod.cgroup, "cpu.shares", 512)
        assert stats.scraped(found)[pod.cgroup].cpu_limit == CpuLimit(512, None, 100000)
        text = resource_page(found)
        names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
        assert {"node_cpu_usage_seconds_total", "pod_memory_working_set_bytes"} <= names
        assert b'"usageNanoCores"' in summary_json(found)
        # Gone: left out, and no file is kept open.
        for cgroup in (pod.containers[0].cgroup, pod.cgroup):
            for each in this_host().v1.values():
                removed(each.mount_point + cgroup)
        assert stats.sample().pods[0].measured is None
        stats.close()
    exercised("kernel", "host: cgroup v1, node statistics")


def test_a_sample_of_a_full_node_is_cheap(tmp_path: Path) -> None:
    with own_root() as root:
        pods = [_pod(root, number) for number in range(PODS)]
        for pod in pods:
            make(pod.containers[0].cgroup)
        stats = _stats(root, pods, tmp_path)
        stats.sample()
        costs, pages = [], []
        for _ in range(20):
            began = time.process_time()
            found = stats.sample()
            costs.append(time.process_time() - began)
            began = time.process_time()
            resource_page(found), list(cadvisor_page(found, {})), summary_json(found)
            pages.append(time.process_time() - began)
        stats.close()
        assert len(found.pods) == PODS
        assert all(each.containers for each in found.pods)
        print(f"one sample of {PODS} pods: {min(costs) * 1000:.1f} ms; three pages: {min(pages) * 1000:.1f} ms")
        assert min(costs) * 1000 < COST_MS * 2  # of CPU; the machine may be of another speed than ours
