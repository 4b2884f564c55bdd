"""CPUs, memory and devices of one NUMA node, on a real kernel with two nodes of four CPUs, in one program.

    numa.py [processes]

Says each thing that was seen, and `all seen` at the end; anything else ends with an AssertionError. The agent and the
device plugin run in this process; both are ended without clean-up and started again. With `processes` API server, node
and plugin are processes that are killed (−9) and started again, which takes longer.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll.cgroups.drivers.detect import entry_directories, open_cgroupfs, this_host
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.owners import CPU_STATE, DEVICE_STATE, MEMORY_STATE, owned_in
from plimsoll.kube import kubeconfig, request
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.linux.cpu_topology import this_topology
from plimsoll.linux.machine import this_machine
from plimsoll.linux.numa import this_numa
from plimsoll.node.agent import PLUGINS, Agent
from plimsoll.rules.config.parse import reading
from plimsoll.rules.cpuset import cpu_numbers
from plimsoll.rules.node.node_config import resolved
from plimsoll.rules.profile import profile_named
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from tests.e2e.real_node import CONFIG, RealNode
from tests.kernel.in_guest.static_cpus import cgroup_named, opened
from tests.pods_api import PodsApi
from tests.unit.node.devices.example_plugin import RESOURCE, ExamplePlugin

Document = dict[str, Any]
WAIT_S = 240.0
SETTINGS = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
    "systemReserved": {"memory": "28Mi"},
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [
        {"numaNode": 0, "limits": {"memory": "64Mi"}},
        {"numaNode": 1, "limits": {"memory": "64Mi"}},
    ],
}


class NumaNode:
    def __init__(self, directory: Path) -> None:
        self._directory, self._api = directory, PodsApi()
        self._files = open_cgroupfs(this_host())
        self.client = Client(self._api)
        self._state = directory / "node"
        self._state.mkdir()
        self.plugin = ExamplePlugin(self._state / PLUGINS)

    async def begin(self) -> None:
        known = profile_named("1.36")
        config = reading({**CONFIG, **SETTINGS}, known, {"cgroupRoot": ["/plimsolltest"]}).config
        setting = resolved(this_machine(), config, known, cgroup_version=2, driver="cgroupfs", runtime="process")
        tree = CgroupManager(self._files, setting, self._directory / "cgroups")
        self._runtime = ProcessRuntime(self._directory / "runtime", partial(entry_directories, self._files))
        await opened(self._runtime)
        self.agent = Agent(
            setting, self._runtime, self._files, tree, self.client, self._state, "n1",
            topology=this_topology(), numa=this_numa(),
        )  # fmt: skip
        self._task = asyncio.create_task(self.agent.run())

    async def plug(self) -> None:
        """Start the plugin; it has listed its devices when this returns."""
        await eventually((self._state / PLUGINS / "kubelet.sock").exists, "the socket for plugins")
        await self.plugin.start()
        await self.plugin.register()
        await eventually(lambda: self.agent.devices.sizes().get(RESOURCE) == (4, 4), "four devices")

    async def killed(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.begin()
        async with asyncio.timeout(WAIT_S):
            await self.agent.ready.wait()  # it has read its checkpoints and the list of pods

    async def kill_plugin(self) -> None:
        await self.plugin.stop()

    async def close(self) -> None:
        await self.agent.end()
        await self._task
        await self._runtime.open()
        await self._runtime.shutdown()
        await self.plugin.stop()

    async def create(self, name: str, cpu: int, mebibytes: int, devices: int) -> None:
        limits = {"cpu": str(cpu), "memory": f"{mebibytes}Mi"} | ({RESOURCE: str(devices)} if devices else {})
        script = "trap 'exit 0' TERM; while :; do sleep 1; done"
        container = {
            "name": "c", "image": "busybox", "command": ["sh", "-c", script],
            "resources": {"limits": limits, "requests": limits},
        }  # fmt: skip
        spec = {"containers": [container], "nodeName": "n1", "terminationGracePeriodSeconds": 5}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await self.client.ask(request.create(request.PODS, pod, "default"))

    async def until(self, name: str, phase: str) -> Document:
        end = time.monotonic() + WAIT_S
        while True:
            pod: Document = await self.client.ask(request.get(request.PODS, name, "default"))
            if pod["status"].get("phase") == phase:
                return pod
            assert time.monotonic() < end, f"{name}: {json.dumps(pod.get('status'))}; {self.log()}"
            await asyncio.sleep(0.3)

    async def has(self, name: str, cpus: str, mems: str, devices: tuple[str, ...], what: str) -> None:
        pod = await self.until(name, "Running")
        cgroup = cgroup_named(pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2])
        values = {"cpuset.cpus": cpus, "cpuset.mems": mems}
        await eventually(lambda: _values(cgroup, values) == values, f"{name}: {values} in {cgroup}")
        for pid in (cgroup / "cgroup.procs").read_text().split():
            assert os.sched_getaffinity(int(pid)) == set(cpu_numbers(cpus) or ()), (name, pid)
            assert allowed_nodes(pid) == mems, (name, pid)
        own = self.owned(pod["metadata"]["uid"])
        assert own == (cpus, (f"32Mi on NUMA node {mems}",), devices), own
        print(f"seen: {what}: {name} on CPUs {cpus}, NUMA node {mems}, devices {' '.join(devices) or '-'}", flush=True)

    async def refused(self, name: str) -> None:
        status = (await self.until(name, "Failed"))["status"]
        assert status["reason"] == "TopologyAffinityError", status
        assert "Resources cannot be allocated with Topology locality" in status["message"], status
        print(f"seen: {name}: {status['reason']}: {status['message']}", flush=True)

    def owned(self, uid: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """CPUs, memory and devices, from the checkpoints of the managers."""
        files = {name: (self._state / name).read_bytes() for name in (CPU_STATE, MEMORY_STATE, DEVICE_STATE)}
        own = owned_in(files)[uid, "c"]
        return own.cpus, own.memory, own.devices.get(RESOURCE, ())

    def log(self) -> str:
        return repr(self._task)


class NumaProcesses(NumaNode):
    """API server, node and plugin as processes."""

    def __init__(self, directory: Path) -> None:
        (directory / "cluster").mkdir()
        self._node = RealNode(directory / "cluster", "/plimsolltest", "1.36")
        self._node.config.write_text(json.dumps({**CONFIG, **SETTINGS}))
        self._node.node_options = ("--capacity", "cpu=8,memory=1400Mi,pods=110")
        self._state = self._node.state / "node"
        self._process: subprocess.Popen[bytes] | None = None

    async def begin(self) -> None:
        self._node.start_api()
        self._node.make_identity()
        self._node.start_node()
        self._transport = HttpTransport(kubeconfig.load(self._node.kubeconfig))
        self.client = Client(self._transport)

    async def plug(self) -> None:
        words = [sys.executable, "-m", "tests.unit.node.devices.example_plugin", str(self._state / PLUGINS), "4"]
        self._process = await asyncio.to_thread(subprocess.Popen, words)
        await self.devices("4")

    async def devices(self, count: str) -> None:
        end = time.monotonic() + WAIT_S
        while (found := await self.client.ask(request.get(request.NODES, "n1")))["status"]["allocatable"].get(
            RESOURCE
        ) != count:
            assert time.monotonic() < end, found["status"]["allocatable"]
            await asyncio.sleep(0.3)

    async def kill_plugin(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    async def killed(self) -> None:
        self._node.kill_node()
        self._node.start_node()

    async def close(self) -> None:
        await self._transport.close()
        await self.kill_plugin()
        self._node.close()

    def log(self) -> str:
        return (self._node.directory / "node.log").read_text()[-6000:]


def _values(cgroup: Path, files: Iterable[str]) -> dict[str, str]:
    return {file: (cgroup / file).read_text().strip() for file in files}


def allowed_nodes(pid: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Mems_allowed_list"))


async def eventually(read: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not read():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.1)


async def main(make: Callable[[Path], NumaNode]) -> None:
    assert {node: len(cpus) for node, cpus in this_topology().by_numa.items()} == {0: 4, 1: 4}, this_topology()
    assert len(this_numa().memory) == 2, this_numa()
    print("seen: eight CPUs on two NUMA nodes", flush=True)
    with tempfile.TemporaryDirectory() as name:
        node = make(Path(name))
        await node.begin()
        try:
            await node.plug()
            await node.create("near", 2, 32, 1)
            await node.has("near", "1-2", "0", ("d0",), "one node for everything")
            await node.create("far", 3, 32, 2)
            await node.has("far", "4-6", "1", ("d2", "d3"), "the other node, which has enough CPUs and devices")
            await node.create("torn", 1, 32, 2)
            await node.refused("torn")
            await node.create("plain", 1, 32, 1)
            await node.has("plain", "3", "0", ("d1",), "what is left of node 0")
            await node.killed()
            await node.has("near", "1-2", "0", ("d0",), "after a kill of the agent")
            await node.kill_plugin()
            await node.has("plain", "3", "0", ("d1",), "after a kill of the plugin")
            await node.killed()
            await node.has("far", "4-6", "1", ("d2", "d3"), "after a kill of the agent and the plugin")
            await node.plug()
            await node.create("more", 1, 32, 1)
            await node.until("more", "Failed")
            print("seen: no device is given twice", flush=True)
        finally:
            await node.close()
    print("all seen")


if __name__ == "__main__":
    sys.exit(asyncio.run(main(NumaProcesses if "processes" in sys.argv[1:] else NumaNode)))
