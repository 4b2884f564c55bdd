"""The agent with the embedded runtime inside a guest: cgroup v2 written by ourselves, or made by systemd.

The API is that of one pod, in memory; kernel, driver, supervisor and processes are real.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import entry_directories, open_cgroupfs, this_host
from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.kube.client import Client
from plimsoll.linux.machine import this_machine
from plimsoll.node.agent import Agent
from plimsoll.node.resources.cgroup_repair import CgroupRepair
from plimsoll.rules.cgroups.repair import Repair
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.cgroup_names import Driver
from plimsoll.rules.node.node_config import resolved
from plimsoll.rules.profile import DEFAULT_PROFILE
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from tests.unit.node.test_agent import NODE, Document, World, container, eventually, phase, pod, shell

IS_SYSTEMD = Path("/proc/1/comm").read_text() == "systemd\n"
MIB = 1 << 20
HANDLES_TERM = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


class RealWorld(World):
    """As `World`, on the guest's own kernel."""

    def __init__(self, directory: Path, document: Document) -> None:
        super().__init__(directory, document)
        found = this_host()
        self.files = open_cgroupfs(found)
        config = reading(None, DEFAULT_PROFILE, {"cgroupRoot": ["/plimsolltest"]}).config
        driver: Driver = "systemd" if IS_SYSTEMD else "cgroupfs"
        self.setting = resolved(
            this_machine(), config, DEFAULT_PROFILE, cgroup_version=found.version, driver=driver, runtime="process"
        )

    def agent(self, clock: Callable[[], float] = time.time) -> Agent:
        driver: CgroupDriver = self.files
        if IS_SYSTEMD:
            from plimsoll.cgroups.drivers.systemd import SystemdCgroups

            driver = SystemdCgroups(self.files)
        runtime = ProcessRuntime(self.directory / "runtime", partial(entry_directories, self.files))
        tree = CgroupManager(driver, self.setting, self.directory / "cgroups")
        return Agent(self.setting, runtime, driver, tree, Client(self.api), self.directory, NODE, clock=clock)


def limits(memory: str) -> dict[str, Any]:
    return {"resources": {"limits": {"memory": memory, "cpu": "500m"}}}


async def test_a_pod_runs_under_its_limits_and_goes(tmp_path: Path) -> None:
    world = RealWorld(tmp_path, pod(shell("c", HANDLES_TERM, **limits("64Mi")), terminationGracePeriodSeconds=5))
    async with world.running() as agent:
        await world.until(phase("Running"))
        paths = agent.cgroups.paths("u-1")
        assert paths["c"].endswith(".scope") == IS_SYSTEMD
        seen = world.files.read(paths["c"], ("memory.max",))
        assert seen is not None and seen.files["memory.max"] == str(64 * MIB)
        pid = (await agent.view.pod("u-1")).containers[0].pid
        assert pid in world.files.members(paths["c"])
        world.api.delete(5, time.time())
        await asyncio.wait_for(world.api.gone.wait(), 60.0)
        assert world.files.read(paths[""], ()) is None
        assert world.files.read(paths["c"], ()) is None


async def test_out_of_memory_is_reported_and_only_that_container_restarts(tmp_path: Path) -> None:
    hog = "sleep 0.5; exec python3 -c 'bytearray(100 << 20)'"
    world = RealWorld(tmp_path, pod(shell("hog", hog, **limits("24Mi")), shell("calm", HANDLES_TERM)))

    def hit(status: Document) -> Any:
        last = container(status, "hog").get("lastState", {}).get("terminated", {})
        return last if last.get("reason") == "OOMKilled" else None

    async with world.running():
        last = await world.until(hit)
        assert last["exitCode"] == 137
        assert container(world.statuses[-1], "calm")["restartCount"] == 0


async def test_a_new_agent_goes_on_with_what_runs(tmp_path: Path) -> None:
    world = RealWorld(tmp_path, pod(shell("c", HANDLES_TERM, **limits("32Mi"))))
    async with world.running(ends=False) as agent:
        await world.until(phase("Running"))
        path, before = agent.cgroups.paths("u-1")["c"], (await agent.view.pod("u-1")).containers[0]
    async with world.running() as agent:
        await agent.ready.wait()
        await eventually(lambda: agent.pods.workers["u-1"].status is not None)
        now = (await agent.view.pod("u-1")).containers[0]
        assert (now.id, now.pid, now.attempt) == (before.id, before.pid, 0)
        assert now.pid in world.files.members(path)


async def test_values_that_another_process_wrote_are_repaired(tmp_path: Path) -> None:
    """By notifications alone: the period is longer than the test. systemd's values are set through systemd again."""
    world = RealWorld(tmp_path, pod(shell("c", HANDLES_TERM, **limits("64Mi"))))
    repairs: asyncio.Queue[Repair] = asyncio.Queue()
    async with world.running() as agent:
        await world.until(phase("Running"))
        repair = CgroupRepair(
            agent.cgroups, agent.container_cgroups, repairs.put_nowait, files=world.files, period_s=600.0
        )
        agent.cgroups.listeners.append(repair)
        task = asyncio.create_task(repair.run())
        try:
            paths = agent.cgroups.paths("u-1")
            kubepods = paths[""].rpartition("/")[0]
            await eventually(lambda: set(paths.values()) | {kubepods} <= repair.watched)
            for path in (kubepods, paths[""], paths["c"]):
                with world.files.directory(path, "cpu.weight") as directory:
                    before = directory.read("cpu.weight")
                    directory.write("cpu.weight", "77")
                    found = await asyncio.wait_for(repairs.get(), 120.0)
                    difference = found.difference
                    assert (difference.path, difference.file, difference.found) == (path, "cpu.weight", "77")
                    assert not found.refused and directory.read("cpu.weight") == before
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture(autouse=True)
def _nothing_left() -> Any:
    yield
    top = "/plimsolltest.slice" if IS_SYSTEMD else "/plimsolltest"
    assert open_cgroupfs(this_host()).children(top) == []
