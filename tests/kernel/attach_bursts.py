"""CPU limits are lowered, as a kubelet does it, beside an attach that sets bursts, and after it was killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from plimsoll.attach.journal import GUARD_LOCK
from plimsoll.linux.files.file_lock import take
from plimsoll.runtime.interface import CriResources
from tests.kernel.attach_bench import AttachBench
from tests.kernel.containerd_checks import MIB, SOON_S

PERIOD_US = 100_000
POLICY = {"cpuBurstPercent": 80}


def limited(quota_us: int) -> CriResources:
    return CriResources(
        cpu_shares=102,
        cpu_quota_us=quota_us,
        cpu_period_us=PERIOD_US,
        memory_limit_bytes=64 * MIB,
        oom_score_adj=500,
    )


class LimitedPod:
    """One container; its limit is `quota_us` of 100 ms. `version`: of the cgroups."""

    def __init__(self, bench: AttachBench, name: str, version: int) -> None:
        self.bench, self.version = bench, version
        self.burst = "cpu.max.burst" if version == 2 else "cpu.cfs_burst_us"
        self.pod = bench.pod(name, _resources(50000))

    async def start(self) -> None:
        await self.bench.start(self.pod, ("sleep", "1000"), limited(50000))
        self.write_quota(50000)

    def write_quota(self, quota_us: int) -> None:
        """Of the pod's own cgroup, in one write. systemd ignores the kernel's refusal, so it comes first."""
        if self.bench.driver == "systemd":
            unit = self.pod.cgroup.rpartition("/")[2]
            words = ["systemctl", "set-property", "--runtime", unit, f"CPUQuota={quota_us * 100 // PERIOD_US}%"]
            subprocess.run(words, check=True, timeout=120)
        file, text = (
            ("cpu.max", f"{quota_us} {PERIOD_US}") if self.version == 2 else ("cpu.cfs_quota_us", str(quota_us))
        )
        (self.bench.directory(self.pod.cgroup, file) / file).write_text(text)

    async def resize(self, quota_us: int) -> None:
        """As a kubelet: the container first if the limit is lowered, the pod first if it is raised. One try."""
        assert self.pod.container is not None
        is_raised = quota_us > self.quota_us
        if is_raised:
            self.write_quota(quota_us)
        await self.bench.runtime.update_container(self.pod.container.id, limited(quota_us))
        if not is_raised:
            self.write_quota(quota_us)
        assert self.quota_us == quota_us

    @property
    def quota_us(self) -> int:
        if self.version == 2:
            return int(self.bench.read(self.pod.container_path, "cpu.max").split()[0])
        return int(self.bench.read(self.pod.container_path, "cpu.cfs_quota_us"))

    def show(self, quota_us: int) -> None:
        self.pod.document["spec"] = {"containers": [{"name": "main", "image": "i", "resources": _resources(quota_us)}]}
        self.bench.show(self.pod)

    def bursts(self) -> tuple[int, int]:
        """Of the pod and of its container."""
        paths = (self.pod.cgroup, self.pod.container_path)
        pod, container = (int(self.bench.read(path, self.burst)) for path in paths)
        return pod, container

    async def has(self, burst_us: int) -> None:
        await self.bench.settled(lambda: self.bursts() == (burst_us, burst_us))


def _resources(quota_us: int) -> dict[str, Any]:
    limit = {"cpu": f"{quota_us // 100}m", "memory": "64Mi"}
    return {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": limit}


async def check_lower_limits(bench: AttachBench, version: int) -> float:
    """How long after a SIGKILL to attach its bursts were gone, in seconds."""
    pod = LimitedPod(bench, "limited", version)
    await asyncio.to_thread(bench.attach, "enforce", POLICY)
    await pod.start()
    await pod.has(40000)

    # Beside attach, at the first try; once attach sees the new spec only afterwards, once before.
    await pod.resize(20000)
    pod.show(20000)
    await pod.has(16000)
    pod.show(50000)
    await pod.resize(50000)
    await pod.has(40000)
    pod.show(10000)
    await pod.resize(10000)
    await pod.has(8000)
    pod.show(50000)
    await pod.resize(50000)
    await pod.has(40000)

    # The guard is killed: another one comes. attach is killed: the guard acts.
    (guard,) = guards(bench)
    await asyncio.to_thread(_kill, guard)
    await bench.settled(lambda: guards(bench) not in ([], [guard]))
    bench.end(signal.SIGKILL)
    took_s = await asyncio.to_thread(guarded_s, bench)
    assert pod.bursts() == (0, 0), bench.said()
    await pod.resize(20000)

    # The next attach continues; killed together with its guard, it leaves bursts, which the next one takes back.
    pod.show(20000)
    await asyncio.to_thread(bench.attach, "enforce", POLICY)
    await pod.has(16000)
    (guard,) = guards(bench)
    _kill(bench.pid, signal.SIGSTOP)
    _kill(guard)
    bench.end(signal.SIGKILL)
    assert pod.bursts() == (16000, 16000)
    await asyncio.to_thread(bench.attach, "observe", POLICY)
    await pod.has(0)
    await pod.resize(10000)
    assert bench.end() == 0

    # An attach that ends leaves no burst; a policy that sets none has no guard.
    await asyncio.to_thread(bench.attach, "enforce", POLICY)
    await pod.has(10000)  # 80 % of the spec's limit of 20000 would be above the quota of now
    assert bench.end() == 0
    assert pod.bursts() == (0, 0)
    await asyncio.to_thread(bench.attach, "enforce", POLICY)
    await bench.settled(lambda: guards(bench) != [])
    bench.policy.write_text(json.dumps({"cpuBurstPercent": 0}))
    await bench.settled(lambda: guards(bench) == [])
    assert pod.bursts() == (0, 0)
    assert bench.end() == 0
    return took_s


def _kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid, number)


def guards(bench: AttachBench) -> list[int]:
    """attach has no other children."""
    return children(bench.pid)


def children(parent: int) -> list[int]:
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == parent]


def _parent(pid: int) -> int:
    """0: it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def guarded_s(bench: AttachBench) -> float:
    """Wait until the guard has done its work; how long that took."""
    began_s = time.monotonic()
    os.close(take(bench.state / GUARD_LOCK, SOON_S))
    return time.monotonic() - began_s
