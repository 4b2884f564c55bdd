"""`./dev bench containerd`: what a node over containerd costs, and how soon it acts.

A real API server and a real node over a containerd of its own, as in the end-to-end tests; pods as in the figures that a
kubelet was measured with: busybox, limit 1 CPU, the host's network, already bound to the node. Times are what a client
sees: from the POST to the watch event with phase Running, from the DELETE to the one that says it is gone, from the PATCH
of a CPU limit to the kernel's file (read again every 0.5 ms) and to the watch event with the new limit. The runtime's own
share is the same CRI calls with nothing in between.

`--quick`: few rounds and a short idle time. `--first`: on a machine that others use, too, these processes go before the
others (nice −20): then times are about the node again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from plimsoll.kube.http import HttpTransport  # noqa: E402
from plimsoll.kube.kubeconfig import load  # noqa: E402
from plimsoll.kube.request import Request  # noqa: E402
from plimsoll.runtime.cri.private_containerd.daemon import OwnContainerd  # noqa: E402
from plimsoll.runtime.cri.runtime import CriRuntime  # noqa: E402
from plimsoll.runtime.interface import ContainerSpec, CriResources, SandboxSpec  # noqa: E402
from tests.bench.node import (  # noqa: E402
    ENDS_AT_TERM,
    PODS,
    WAIT_S,
    cpu_s,
    pss_mib,
    spread,
    verdict,
    watched,
)
from tests.bench.node import Seen as Watched  # noqa: E402
from tests.e2e.containerd_node import containerd_node  # noqa: E402
from tests.e2e.real_node import NODE, RealNode  # noqa: E402
from tests.kernel.containerd import cgroup_parent  # noqa: E402

GOALS = {"running": 215.0, "gone": 400.0, "file": 24.0, "status": 40.0, "cpu": 1.0, "memory": 60.0}
POLL_S = 0.0005  # the reader must not take a core from the others
Document = dict[str, Any]


def manifest(name: str) -> bytes:
    resources = {"requests": {"memory": "2Mi", "cpu": "10m"}, "limits": {"cpu": "1", "memory": "16Mi"}}
    command = ["sh", "-c", ENDS_AT_TERM]
    container = {"name": "c", "image": "busybox:1.36", "command": command, "resources": resources}
    spec = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 10, "hostNetwork": True}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).encode()


class Seen(Watched):
    """With the CPU limit in each pod's status."""

    def __init__(self) -> None:
        super().__init__()
        self.cpu: dict[str, str] = {}
        self.cpu_at: dict[str, float] = {}

    def take(self, line: bytes) -> None:
        pod = msgspec.json.decode(line)["object"]
        for each in pod.get("status", {}).get("containerStatuses", ()):
            cpu = (each.get("resources") or {}).get("limits", {}).get("cpu", "")
            if self.cpu.get(pod["metadata"]["name"]) != cpu:
                self.cpu[pod["metadata"]["name"]] = cpu
                self.cpu_at[pod["metadata"]["name"]] = time.perf_counter()
        super().take(line)

    async def news(self) -> None:
        self._news.clear()
        async with asyncio.timeout(WAIT_S):
            await self._news.wait()


class Bench:
    def __init__(self, node: RealNode, daemon: OwnContainerd, transport: HttpTransport, seen: Seen) -> None:
        self.node, self.daemon, self.transport, self.seen = node, daemon, transport, seen
        self._number = 0
        self.present: list[str] = []

    async def posted(self, name: str) -> None:
        answer = await self.transport.send(Request("POST", PODS, manifest(name), "application/json"))
        assert answer.status == 201, answer

    async def deleted(self, name: str) -> None:
        answer = await self.transport.send(Request("DELETE", f"{PODS}/{name}"))
        assert answer.status in (200, 202), answer

    def fresh(self) -> str:
        self._number += 1
        return f"p{self._number}"

    async def have(self, count: int) -> float:
        """So many pods, and how long those that lacked took."""
        names = [self.fresh() for _ in range(count - len(self.present))]
        begun = time.perf_counter()
        await asyncio.gather(*(self.posted(name) for name in names))
        await self.seen.until(lambda: all(name in self.seen.running for name in names))
        self.present += names
        return time.perf_counter() - begun

    async def come_and_go(self, rounds: int) -> tuple[list[float], list[float]]:
        started, ended = [], []
        for _ in range(rounds):
            name = self.fresh()
            begun = time.perf_counter()
            await self.posted(name)
            await self.seen.until(lambda name=name: name in self.seen.running)  # type: ignore[misc]
            started.append((self.seen.running[name] - begun) * 1e3)
            await self._until(lambda name=name: self._has_said(name))  # type: ignore[misc]
            begun = time.perf_counter()
            await self.deleted(name)
            await self.seen.until(lambda name=name: name in self.seen.gone)  # type: ignore[misc]
            ended.append((self.seen.gone[name] - begun) * 1e3)
        return started, ended

    def _has_said(self, name: str) -> bool:
        """Its shell has come to its trap: before that it would not end at TERM."""
        return any(file.stat().st_size for file in self.node.state.glob(f"**/default_{name}_*/c/0.log"))

    async def resized(self, rounds: int) -> tuple[list[float], list[float]]:
        name = self.present[0]
        pod = msgspec.json.decode((await self.transport.send(Request("GET", f"{PODS}/{name}"))).body)
        uid, status = pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]
        container_id = status["containerID"].removeprefix("containerd://")
        place = f"kubepods/burstable/pod{uid}/{container_id}"
        file = Path(f"/sys/fs/cgroup/cpu{self.node.cgroup_root}/{place}/cpu.cfs_quota_us")
        written, reported = [], []
        for number in range(rounds):
            milli = 500 + 10 * (number % 40)
            change = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": f"{milli}m"}}}]}}
            kind = "application/strategic-merge-patch+json"
            begun = time.perf_counter()
            asking = asyncio.create_task(
                self.transport.send(Request("PATCH", f"{PODS}/{name}", json.dumps(change).encode(), kind))
            )
            reading = asyncio.create_task(asyncio.to_thread(_quota, file, milli * 100))
            assert (await asking).status == 200
            while self.seen.cpu.get(name) != f"{milli}m":
                await self.seen.news()
            reported.append((self.seen.cpu_at[name] - begun) * 1e3)
            written.append((await reading - begun) * 1e3)
        return written, reported

    async def idle(self, idle_s: float) -> tuple[float, float]:
        assert self.node.node is not None
        await asyncio.sleep(12.0)  # what the last change has set going ends by itself: polls each second, for ten
        before, begun = cpu_s(self.node.node.pid), time.monotonic()
        await asyncio.sleep(idle_s)
        return (cpu_s(self.node.node.pid) - before) / (time.monotonic() - begun) * 100, pss_mib(self.node.node.pid)

    async def _until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not true():  # noqa: ASYNC110  another process makes it true
                await asyncio.sleep(0.005)


def _quota(file: Path, wanted_us: int) -> float:
    until_s, opened = time.perf_counter() + WAIT_S, os.open(file, os.O_RDONLY)
    try:
        while int(os.pread(opened, 32, 0)) != wanted_us:
            assert time.perf_counter() < until_s, "the quota never came"
            time.sleep(POLL_S)
        return time.perf_counter()
    finally:
        os.close(opened)


async def runtime_alone(daemon: OwnContainerd, parent: str, rounds: int) -> tuple[list[float], list[float]]:
    """Sandbox, container and start; and an update until it is answered."""
    runtime = CriRuntime(daemon.socket)
    await runtime.open()
    image = await runtime.image("busybox:1.36", has_command=True, pull=False)
    made, updated = [], []
    for number in range(rounds):
        uid = f"alone-{number}"
        place = f"{parent}/pod{uid}"  # not below kubepods: the agent would end what it does not know
        sandbox = SandboxSpec(uid, uid, "default", host_network=True, cgroup_parent=place)
        size = CriResources(cpu_shares=1024, cpu_quota_us=100_000, cpu_period_us=100_000, memory_limit_bytes=16 << 20)
        command = ("sh", "-c", "sleep 1000")
        spec = ContainerSpec("c", 0, "busybox", image.ref, command, resources=size)
        begun = time.perf_counter()
        sandbox_id = await runtime.make_sandbox(sandbox)
        container_id = await runtime.make_container(sandbox, sandbox_id, spec)
        await runtime.start_container(container_id)
        made.append((time.perf_counter() - begun) * 1e3)
        begun = time.perf_counter()
        await runtime.update_container(container_id, msgspec.structs.replace(size, cpu_quota_us=50_000))
        updated.append((time.perf_counter() - begun) * 1e3)
        await runtime.remove_sandbox(sandbox_id)
        _remove_cgroup(place)
    await runtime.close()
    return made, updated


def _remove_cgroup(path: str) -> None:
    for mount in Path("/sys/fs/cgroup").iterdir():
        left = mount / path.lstrip("/")
        if left.is_dir():
            left.rmdir()


def go_first(node: RealNode, daemon: OwnContainerd) -> None:
    assert node.api is not None and node.node is not None
    for pid in (node.api.pid, node.node.pid, daemon.pid, os.getpid()):
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(task.name), -20)


async def measured(node: RealNode, daemon: OwnContainerd, sizes: list[int], *, quick: bool) -> None:
    rounds, idle_s = (15, 15.0) if quick else (60, 60.0)
    transport = HttpTransport(load(node.kubeconfig))
    with cgroup_parent() as parent:
        made, updated = await runtime_alone(daemon, parent, rounds)
    print(f"runtime alone   sandbox, create, start {spread(made)}")
    print(f"runtime alone   update                 {spread(updated)}")
    async with watched(transport, Seen()) as seen:
        bench = Bench(node, daemon, transport, seen)
        for size in sizes:
            took_s = await bench.have(size)
            if size > 1:
                print(f"{size:4d} pods   those that lacked, at once: all Running after {took_s:.2f} s")
            started, ended = await bench.come_and_go(rounds)
            written, reported = await bench.resized(rounds)
            for name, key, values in (
                ("POST → Running", "running", started),
                ("DELETE → gone", "gone", ended),
                ("resize → file", "file", written),
                ("resize → status", "status", reported),
            ):
                median = statistics.median(values)
                print(f"{size:4d} pods   {name:16s} {spread(values)} {verdict(median, GOALS[key])}")
            cpu, memory = await bench.idle(idle_s)
            goals = f"{verdict(cpu, GOALS['cpu'])} {verdict(memory, GOALS['memory'])}"
            print(f"{size:4d} pods   idle: agent {cpu:.2f} % of a core, {memory:.1f} MiB PSS {goals}", flush=True)
        await asyncio.gather(*(bench.deleted(name) for name in bench.present))
        await seen.until(lambda: all(name in seen.gone for name in bench.present))
    await transport.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--pods", type=lambda text: [int(each) for each in text.split(",")], default=[1, 50])
    parser.add_argument("--first", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as directory:
        options = ("--capacity", "cpu=200,memory=8Gi,pods=110")
        with containerd_node(Path(directory) / "cluster", options=options) as (node, daemon):
            print(f"load of the machine: {os.getloadavg()[0]:.1f}")
            if asked.first:
                go_first(node, daemon)
            asyncio.run(measured(node, daemon, asked.pods, quick=asked.quick))


if __name__ == "__main__":
    main()
