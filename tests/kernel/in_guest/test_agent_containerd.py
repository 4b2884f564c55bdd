"""The agent over containerd on cgroup v2, in a guest: cgroupfs or systemd as the driver, Memory QoS on.

The API is that of one pod, in memory; kernel, driver, runtime and processes are real.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.cli.node.tree import snapshot
from plimsoll.kube.client import Client
from plimsoll.kube.request import Request
from plimsoll.linux.machine import this_machine
from plimsoll.node.agent import Agent
from plimsoll.node.resources.workloads import lean_pod_of
from plimsoll.rules.cgroups.view import Names
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.cgroup_names import Driver
from plimsoll.rules.node.node_config import resolved
from plimsoll.rules.profile import profile_named
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import CriResources, SandboxSpec
from tests.kernel.containerd import Containerd, private_containerd
from tests.kernel.guest import GUEST_VARIABLE
from tests.unit.node.test_agent import NODE, WAIT_S, Document, World, container, eventually, phase, pod, shell

SYSTEMD = "systemd" in os.environ[GUEST_VARIABLE]
HANDLER = os.environ.get("PLIMSOLL_CRI_HANDLER", "")
MIB = 1 << 20
HANDLES_TERM = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"
HOLDS = "dd if=/dev/zero of=/dev/shm/taken bs=1M count=24 2>/dev/null; touch /tmp/taken; " + HANDLES_TERM
PATCH = "application/strategic-merge-patch+json"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Containerd]:
    with private_containerd(systemd=SYSTEMD, below="/scratch") as started:
        yield started


class Deaf(CriRuntime):
    """A runtime that has never heard of `unified`."""

    async def make_container(self, sandbox: SandboxSpec, sandbox_id: str, spec: Any) -> str:
        bare = msgspec.structs.replace(spec.resources, unified={})
        return await super().make_container(sandbox, sandbox_id, msgspec.structs.replace(spec, resources=bare))

    async def update_container(self, container_id: str, resources: CriResources) -> None:
        await super().update_container(container_id, msgspec.structs.replace(resources, unified={}))


class CriWorld(World):
    def __init__(
        self,
        directory: Path,
        document: Document,
        daemon: Containerd,
        *,
        driver: Driver | None = None,
        deaf: bool = False,
    ) -> None:
        document["spec"]["hostNetwork"] = True
        super().__init__(directory, document)
        self._daemon, self._deaf = daemon, deaf
        self._driver: Driver = driver or ("systemd" if SYSTEMD else "cgroupfs")
        self.files = open_cgroupfs(this_host())
        self.set()

    def set(self, *, memory_qos: bool = True, factor: str = "0.9") -> None:
        """For the next agent."""
        gates = [f"MemoryQoS={str(memory_qos).lower()}"]
        document = {"memoryThrottlingFactor": float(factor)}
        flags = {"cgroupRoot": ["/plimsolltest"], "featureGates": gates}
        profile = profile_named("documents")
        self.setting = resolved(
            this_machine(),
            reading(document, profile, flags).config,
            profile,
            cgroup_version=self.files.version,
            driver=self._driver,
            runtime="containerd",
        )

    def agent(self, clock: Callable[[], float] = time.time) -> Agent:
        driver: CgroupDriver = self.files
        if self.setting.driver == "systemd":
            from plimsoll.cgroups.drivers.systemd import SystemdCgroups

            driver = SystemdCgroups(self.files)
        runtime = (Deaf if self._deaf else CriRuntime)(self._daemon.socket, handler=HANDLER)
        tree = CgroupManager(driver, self.setting, self.directory / "cgroups")
        return Agent(
            self.setting, runtime, driver, tree, Client(self.api), self.directory, NODE, clock=clock, keeps_images=True
        )

    @contextlib.asynccontextmanager
    async def running(self, *, ends: bool = True) -> AsyncIterator[Agent]:
        agent = self.agent()
        task = asyncio.create_task(agent.run())
        try:
            yield agent
        finally:
            try:
                if ends and self.api.pod is not None:  # a guest is too slow for the hurry of an end
                    self.api.delete(1, time.time())
                    await asyncio.wait_for(self.api.gone.wait(), WAIT_S)
                await (agent.end() if ends else agent.stop())
                await asyncio.wait_for(task, WAIT_S)
            finally:
                task.cancel()
                await asyncio.wait([task])

    async def resize(self, memory: str, cpu: str) -> None:
        size = {"memory": memory, "cpu": cpu}
        change = {"spec": {"containers": [{"name": "c", "resources": {"limits": size, "requests": size}}]}}
        path = "/api/v1/namespaces/default/pods/web"
        answer = await self.api.send(Request("PATCH", path, json.dumps(change).encode(), PATCH))
        assert answer.status == 200

    def files_of(self, path: str, *names: str) -> list[str]:
        seen = self.files.read(path, names)
        assert seen is not None, path
        return [seen.files[name] for name in names]


def sized(memory: str, cpu: str = "500m", request: str = "") -> dict[str, Any]:
    requests = {"requests": {"memory": request, "cpu": cpu}} if request else {}
    return {"resources": {"limits": {"memory": memory, "cpu": cpu}, **requests}}


async def test_memory_qos_stands_at_every_level(tmp_path: Path, daemon: Containerd) -> None:
    world = CriWorld(tmp_path, pod(shell("c", HANDLES_TERM, **sized("64Mi", request="32Mi"))), daemon)
    async with world.running() as agent:
        await world.until(phase("Running"))
        paths = agent.cgroups.paths("u-1")
        assert paths["c"].endswith(".scope") == SYSTEMD
        high = (32 * MIB + int(32 * MIB * 0.9)) // 4096 * 4096
        assert world.files_of(paths["c"], "memory.min", "memory.high", "memory.max", "cpu.max") == [
            str(32 * MIB), str(high), str(64 * MIB), "50000 100000",
        ]  # fmt: skip
        assert world.files_of(paths[""], "memory.min", "memory.max") == [str(32 * MIB), str(64 * MIB)]
        above = paths[""].rpartition("/")[0]
        assert world.files_of(above, "memory.min") == [str(32 * MIB)]
        assert world.files_of(above.rpartition("/")[0], "memory.min") == [str(32 * MIB)]
        assert agent.container_cgroups.conditions() == {}
        pid = (await agent.view.pod("u-1")).containers[0].pid
        assert pid in world.files.members(paths["c"], deep=True)
        world.api.delete(5, time.time())
        await asyncio.wait_for(world.api.gone.wait(), WAIT_S)
        assert world.files.read(paths[""], ()) is None
    assert not {"CgroupDriverMismatch", "MemoryQoSUnsupported"} & set(world.reasons())


async def test_a_mark_is_lifted_through_the_runtime_and_the_next_agent_does_not_mind(
    tmp_path: Path, daemon: Containerd
) -> None:
    world = CriWorld(tmp_path, pod(shell("c", HANDLES_TERM, **sized("64Mi", request="32Mi"))), daemon)
    async with world.running(ends=False) as agent:
        await world.until(phase("Running"))
        path, (seen,) = agent.cgroups.paths("u-1")["c"], (await agent.view.pod("u-1")).containers
        lean = lean_pod_of(agent.pods.workers["u-1"].pod)
        await agent.container_cgroups.lift(lean, "c", seen.id, "max")
        assert world.files_of(path, "memory.min", "memory.high", "memory.max", "cpu.max") == [
            str(32 * MIB), "max", str(64 * MIB), "50000 100000",
        ]  # fmt: skip
    async with world.running() as agent:
        await eventually(lambda: "c" in agent.cgroups.paths("u-1"))
        assert world.files_of(path, "memory.high") == ["max"]
        assert agent.container_cgroups.conditions() == {}
    assert "MemoryQoSUnsupported" not in world.reasons()


async def test_a_runtime_that_ignores_unified_is_reported(tmp_path: Path, daemon: Containerd) -> None:
    world = CriWorld(tmp_path, pod(shell("c", HANDLES_TERM, **sized("64Mi", request="32Mi"))), daemon, deaf=True)
    async with world.running() as agent:
        await world.until(phase("Running"))
        await eventually(lambda: "MemoryQoSUnsupported" in world.reasons())
        assert "memory.high is max" in agent.container_cgroups.conditions()["MemoryQoSUnsupported"]


async def test_memory_qos_follows_the_nodes_settings_in_what_runs(tmp_path: Path, daemon: Containerd) -> None:
    """On, off, on again, with another factor: each by the next agent, and nothing is restarted."""
    world = CriWorld(tmp_path, pod(shell("c", HANDLES_TERM, **sized("64Mi", request="32Mi"))), daemon)
    minimum, half = str(32 * MIB), str(48 * MIB)
    high = str((32 * MIB + int(32 * MIB * 0.9)) // 4096 * 4096)
    lives: list[tuple[dict[str, Any], list[str]]] = [
        ({}, [minimum, high, str(64 * MIB)]),
        ({"memory_qos": False}, ["0", "max", str(64 * MIB)]),
        ({}, [minimum, high, str(64 * MIB)]),
        ({"factor": "0.5"}, [minimum, half, str(64 * MIB)]),
    ]
    pids = set()
    for number, (settings, wanted) in enumerate(lives):
        world.set(**settings)
        async with world.running(ends=number == len(lives) - 1) as agent:
            await world.until(phase("Running"))
            await eventually(lambda: bool(agent.cgroups.paths("u-1").get("c")))
            own, path = (agent.cgroups.paths("u-1")[name] for name in ("", "c"))
            files = ("memory.min", "memory.high", "memory.max")
            await eventually(lambda: world.files_of(path, *files) == wanted)  # noqa: B023
            await eventually(lambda: world.files_of(own, "memory.min") == wanted[:1])  # noqa: B023
            pids.add((await agent.view.pod("u-1")).containers[0].pid)
    assert len(pids) == 1
    assert "MemoryQoSUnsupported" not in world.reasons()


async def test_out_of_memory_is_reported_and_only_that_container_restarts(tmp_path: Path, daemon: Containerd) -> None:
    hog = shell("hog", "sleep 0.5; exec tail /dev/zero", **sized("24Mi"))
    world = CriWorld(tmp_path, pod(hog, shell("calm", HANDLES_TERM)), daemon)

    def hit(status: Document) -> Any:
        last = container(status, "hog").get("lastState", {}).get("terminated", {})
        return last if last.get("reason") == "OOMKilled" else None

    async with world.running():
        assert (await world.until(hit))["exitCode"] == 137
        assert container(world.statuses[-1], "calm")["restartCount"] == 0


async def test_a_resize_needs_no_restart_and_kills_nothing(tmp_path: Path, daemon: Containerd) -> None:
    world = CriWorld(tmp_path, pod(shell("c", HOLDS, **sized("64Mi"))), daemon)
    async with world.running() as agent:
        await world.until(phase("Running"))
        before = (await agent.view.pod("u-1")).containers[0]
        paths = agent.cgroups.paths("u-1")
        await eventually(lambda: int(world.files_of(paths["c"], "memory.current")[0]) > 24 * MIB)

        def values() -> list[str]:
            files = ("memory.max", "cpu.max")
            return [*world.files_of(paths["c"], *files), *world.files_of(paths[""], *files)]

        await world.resize("96Mi", "250m")
        await eventually(lambda: values() == [str(96 * MIB), "25000 100000"] * 2)
        await world.resize("48Mi", "250m")
        await eventually(lambda: values()[0::2] == [str(48 * MIB)] * 2)
        await world.resize("16Mi", "250m")
        await eventually(lambda: agent.pods.resizes.in_progress() == 1)
        # As far as the 24 MiB in use allow; the pod follows when its container has its limit, and nothing is killed.
        await eventually(lambda: 24 * MIB < int(values()[0]) < 40 * MIB)
        assert values()[2] == str(48 * MIB)
        await world.resize("40Mi", "250m")
        await eventually(lambda: values()[0::2] == [str(40 * MIB)] * 2)
        now = (await agent.view.pod("u-1")).containers[0]
        assert (now.id, now.pid, now.attempt, now.phase) == (before.id, before.pid, 0, "running")
        assert world.files_of(paths["c"], "cgroup.freeze", "memory.oom.group")[0] == "0"


async def test_a_new_agent_goes_on_with_what_runs(tmp_path: Path, daemon: Containerd) -> None:
    world = CriWorld(tmp_path, pod(shell("c", HANDLES_TERM, **sized("32Mi"))), daemon)
    async with world.running(ends=False) as agent:
        await world.until(phase("Running"))
        before = (await agent.view.pod("u-1")).containers[0]
    async with world.running() as agent:
        await agent.ready.wait()
        await eventually(lambda: agent.pods.workers["u-1"].status is not None)
        now = (await agent.view.pod("u-1")).containers[0]
        assert (now.id, now.pid, now.attempt) == (before.id, before.pid, 0)


@pytest.mark.skipif(not SYSTEMD or HANDLER == "crun", reason="a mismatch needs systemd's names and runc")
async def test_a_driver_other_than_the_runtimes_is_reported(tmp_path: Path) -> None:
    with private_containerd(systemd=False, below="/scratch") as other:
        world = CriWorld(tmp_path, pod(shell("c", HANDLES_TERM, **sized("32Mi"))), other, driver="systemd")
        async with world.running() as agent:
            await world.until(phase("Running"))
            await eventually(lambda: "CgroupDriverMismatch" in world.reasons())
            sentence = agent.container_cgroups.conditions()["CgroupDriverMismatch"]
            assert ":cri-containerd:" in sentence and "driver is systemd" in sentence
            assert snapshot(world.files, "/", Names({}, {}), depth=1).misplaced
