"""The static CPU policy on eight CPUs, on a real kernel with real processes, in one program of plain Python.

    static_cpus.py cgroupfs|systemd [processes]

Says each thing that was seen, and `all seen` at the end; anything else ends with an AssertionError. With `systemd` the
cgroups are systemd's, and the lists of CPUs its AllowedCPUs. With `processes` API server and node are processes that
are killed and started again, which takes some ten minutes in a guest of QEMU; without, the agent runs in this one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll.cgroups.drivers.detect import entry_directories, open_cgroupfs, this_host
from plimsoll.cgroups.drivers.systemd import SystemdCgroups
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.kube import kubeconfig, request
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.request import ApiError
from plimsoll.linux.cpu_topology import this_topology
from plimsoll.linux.machine import this_machine
from plimsoll.node.agent import Agent
from plimsoll.rules.config.parse import reading
from plimsoll.rules.cpuset import cpu_numbers
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.node.node_config import resolved
from plimsoll.rules.profile import profile_named
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from plimsoll.runtime.interface import RuntimeCallError
from tests.e2e.real_node import CONFIG, RealNode
from tests.pods_api import PodsApi

Document = dict[str, Any]
WAIT_S = 120.0
STATIC = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1500m"}}
SAYS_NPROC = "trap 'exit 0' TERM; while :; do nproc > /v/$NAME; sleep 0.3; done"


class StaticCpuCluster:
    def __init__(self, node: Processes | OneProcess, client: Client, notes: Path) -> None:
        self.node, self.client, self.notes = node, client, notes

    async def until(self, read: Callable[[Document], Any], name: str) -> Any:
        """What `read` returns for the pod, as soon as it is true."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                pod = await self.client.ask(request.get(request.PODS, name, "default"))
            except ApiError as error:
                if not error.is_gone:
                    raise
                pod = {}
            if found := read(pod):
                return found
            assert time.monotonic() < end, f"{name}: {json.dumps(pod.get('status'))}"
            await asyncio.sleep(0.3)

    async def run(self, name: str, cpu: str, *, guaranteed: bool = True) -> Document:
        await self.client.ask(request.create(request.PODS, self.pod(name, cpu, guaranteed=guaranteed), "default"))
        found: Document = await self.until(lambda pod: pod if pod["status"].get("phase") == "Running" else None, name)
        return found

    def pod(self, name: str, cpu: str, *, guaranteed: bool = True) -> Document:
        container = {
            "name": "c",
            "image": "busybox",
            "command": ["sh", "-c", SAYS_NPROC],
            "env": [{"name": "NAME", "value": name}],
            "resources": {"limits" if guaranteed else "requests": {"cpu": cpu, "memory": "32Mi"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }
        volumes = [{"name": "v", "hostPath": {"path": str(self.notes)}}]
        spec = {"containers": [container], "volumes": volumes, "nodeName": "n1", "terminationGracePeriodSeconds": 5}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    async def resize(self, name: str, cpu: str) -> None:
        sizes = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
        change = {"spec": {"containers": [{"name": "c", "resources": sizes}]}}
        await self.client.ask(request.patch(request.PODS, name, change, "default", "resize"))

    async def infeasible(self, name: str) -> str:
        def read(pod: Document) -> str:
            every = pod["status"].get("conditions", [])
            return next(
                (c["message"] for c in every if c["type"] == "PodResizePending" and c["reason"] == "Infeasible"), ""
            )

        found: str = await self.until(read, name)
        return found

    async def delete(self, name: str) -> None:
        await self.client.ask(request.delete(request.PODS, name, "default"))
        await self.until(lambda pod: not pod, name)

    async def events(self, name: str) -> list[tuple[str, str]]:
        found = await self.client.ask(request.listing(request.EVENTS, fields=f"involvedObject.name={name}"))
        return [(each["reason"], each["message"]) for each in found["items"]]

    # --- what the kernel says ---

    async def files(self, name: str) -> Path:
        pod = await self.client.ask(request.get(request.PODS, name, "default"))
        ident = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        return cgroup_named(ident)

    async def on(self, name: str, cpus: str, what: str) -> None:
        """Its cpuset, the CPUs of its processes, and what `nproc` says in it."""
        cgroup = await self.files(name)
        await eventually(lambda: (cgroup / "cpuset.cpus").read_text().strip() == cpus, f"{name}: {cgroup}/cpuset.cpus")
        numbers = cpu_numbers(cpus)
        pids = [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]
        assert pids
        for pid in pids:
            try:
                assert os.sched_getaffinity(pid) == set(numbers or ()), (name, pid)
            except ProcessLookupError:
                continue
        count = str(len(numbers or ()))
        await eventually(lambda: text(self.notes / name) == count, f"{name}: nproc is {count}")
        print(f"seen: {what}: {name} on {cpus}, nproc {count}", flush=True)

    async def quota(self, name: str, expected: str) -> None:
        file = await self.files(name) / "cpu.max"
        await eventually(lambda: file.read_text().strip() == expected, f"{file} is {expected}")
        print(f"seen: quota of {name}: {expected}", flush=True)


async def eventually(read: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not read():
        assert time.monotonic() < end, f"never: {what}"
        await asyncio.sleep(0.2)


def cgroup_named(ident: str) -> Path:
    (found,) = Path("/sys/fs/cgroup").rglob(f"*{ident}*")
    return found


def text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


class Processes:
    """An API server and a node as processes of their own, and real requests between them."""

    def __init__(self, directory: Path, driver: str) -> None:
        self._directory = directory / "cluster"
        self._directory.mkdir()
        self._node = RealNode(self._directory, "/plimsolltest", "documents")
        self._node.config.write_text(json.dumps({**CONFIG, **STATIC, "cgroupDriver": driver}))

    async def start(self) -> Client:
        self._node.start_api()
        self._node.make_identity()
        self._node.start_node()
        self._transport = HttpTransport(kubeconfig.load(self._node.kubeconfig))
        return Client(self._transport)

    async def killed(self, profile: str = "documents") -> None:
        """… and started again."""
        self._node.kill_node()
        self._node.profile = profile
        self._node.start_node()

    async def close(self) -> None:
        await self._transport.close()
        self._node.close()

    def log(self) -> str:
        return (self._directory / "node.log").read_text()[-6000:]


class OneProcess:
    """The agent in this process, beside an API in memory: much is slow here, and starting processes is slowest."""

    def __init__(self, directory: Path, driver: str) -> None:
        self._directory, self._driver, self._api = directory, driver, PodsApi()
        self._files = open_cgroupfs(this_host())

    async def start(self) -> Client:
        await self._begin("documents")
        return Client(self._api)

    async def _begin(self, profile: str) -> None:
        known = profile_named(profile)
        name: DriverName = "systemd" if self._driver == "systemd" else "cgroupfs"
        flags = {"cgroupRoot": ["/plimsolltest"]}
        config = reading({**CONFIG, **STATIC}, known, flags).config
        setting = resolved(this_machine(), config, known, cgroup_version=2, driver=name, runtime="process")
        driver = SystemdCgroups(self._files) if name == "systemd" else self._files
        tree = CgroupManager(driver, setting, self._directory / "cgroups")
        self._runtime = ProcessRuntime(self._directory / "runtime", partial(entry_directories, self._files))
        await opened(self._runtime)
        state = self._directory / "node"
        state.mkdir(exist_ok=True)
        client = Client(self._api)
        self._agent = Agent(setting, self._runtime, driver, tree, client, state, "n1", topology=this_topology())
        self._task = asyncio.create_task(self._agent.run())

    async def killed(self, profile: str = "documents") -> None:
        """As close to a kill as a task can be: no clean-up runs."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._begin(profile)

    async def close(self) -> None:
        await self._agent.end()
        await self._task
        await self._runtime.open()
        await self._runtime.shutdown()

    def log(self) -> str:
        return repr(self._task)


async def opened(runtime: ProcessRuntime) -> None:
    """A supervisor takes its time to start here, longer than an agent waits for one."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            await runtime.open()
        except RuntimeCallError:
            assert time.monotonic() < end, "no supervisor"
        else:
            await runtime.close()
            return


async def main(driver: str, where: Callable[[Path, str], Processes | OneProcess]) -> None:
    topology = this_topology()
    cores: dict[int, list[int]] = {}
    for cpu, place in topology.places.items():
        cores.setdefault(place.core, []).append(cpu)
    assert sorted(cores.values()) == [[0, 1], [2, 3], [4, 5], [6, 7]], topology
    print("seen: eight CPUs, two threads per core", flush=True)
    with tempfile.TemporaryDirectory() as name:
        notes = Path(name) / "notes"
        notes.mkdir()
        node = where(Path(name), driver)
        try:
            cluster = StaticCpuCluster(node, await node.start(), notes)
            await old_profile(cluster)
            await restarted(cluster)
            await new_profile(cluster)
        except AssertionError:
            print(node.log(), file=sys.stderr)
            raise
        finally:
            await node.close()
    print("all seen")


async def old_profile(cluster: StaticCpuCluster) -> None:
    """documents: the cpuset follows an integer resize; a fraction is refused."""
    await cluster.run("shared", "100m", guaranteed=False)
    await cluster.on("shared", "0-7", "alone")
    await cluster.run("one", "1")
    await cluster.on("one", "2", "one CPU, the reserved core 0-1 unused")
    await cluster.on("shared", "0-1,3-7", "the pool follows")
    await cluster.quota("one", "100000 100000")
    await cluster.run("two", "2")
    await cluster.on("two", "4-5", "a whole core")
    await cluster.on("shared", "0-1,3,6-7", "the pool follows")
    await cluster.resize("one", "3")
    await cluster.on("one", "2,6-7", "1 → 3 moves the cpuset")
    await cluster.on("shared", "0-1,3", "the pool follows")
    await cluster.quota("one", "300000 100000")
    await cluster.resize("one", "1500m")
    message = await cluster.infeasible("one")
    assert "whole CPUs only" in message, message
    await eventually_reported(cluster, "one", "ResizeInfeasible", "whole CPUs only")
    await cluster.on("one", "2,6-7", "a fraction is refused, and nothing moves")
    await cluster.resize("one", "3")
    big = cluster.pod("big", "2")
    await cluster.client.ask(request.create(request.PODS, big, "default"))
    refused = await cluster.until(lambda pod: pod["status"] if pod["status"].get("phase") == "Failed" else None, "big")
    assert refused["reason"] == "UnexpectedAdmissionError", refused
    assert "not enough cpus available to satisfy request: requested=2, available=1" in refused["message"], refused
    print(f"seen: {refused['message']}", flush=True)
    await cluster.delete("big")


async def eventually_reported(cluster: StaticCpuCluster, name: str, reason: str, words: str) -> None:
    end = time.monotonic() + WAIT_S
    while True:
        events = await cluster.events(name)
        if any(event == reason and words in message for event, message in events):
            print(f"seen: event {reason} of {name}", flush=True)
            return
        assert time.monotonic() < end, events
        await asyncio.sleep(0.5)


async def restarted(cluster: StaticCpuCluster) -> None:
    """An agent killed in the middle finds all containers on their CPUs, and goes on with requests made meanwhile."""
    before = await cluster.client.ask(request.get(request.PODS, "one", "default"))
    await cluster.node.killed()
    await cluster.on("one", "2,6-7", "after a kill of the agent")
    await cluster.on("two", "4-5", "after a kill of the agent")
    after = await cluster.client.ask(request.get(request.PODS, "one", "default"))
    assert before["status"]["containerStatuses"] == after["status"]["containerStatuses"], "nothing was restarted"
    await cluster.delete("two")
    await cluster.on("shared", "0-1,3-5", "what a deleted pod owned comes back")
    await cluster.resize("one", "1")
    await cluster.on("one", "2", "3 → 1")
    await cluster.on("shared", "0-1,3-7", "the pool follows")


async def new_profile(cluster: StaticCpuCluster) -> None:
    """1.36: no quota with exclusive CPUs, every resize of their number is infeasible."""
    await cluster.node.killed("1.36")
    await cluster.on("one", "2", "the same state under 1.36")
    await cluster.run("new", "2")
    await cluster.on("new", "4-5", "a whole core")
    await cluster.quota("new", "max 100000")
    await cluster.resize("new", "3")
    message = await cluster.infeasible("new")
    assert message == 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"', message
    await cluster.on("new", "4-5", "1.36 says Infeasible")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Processes if "processes" in sys.argv else OneProcess))
