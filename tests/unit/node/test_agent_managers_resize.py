"""A resize of a pod that owns CPUs, memory and a device: the version's verdict, and nothing half-done (RS-1).

The whole agent on a simulated kernel with two NUMA nodes. In `documents` a whole number of CPUs may be resized; a
topology policy defers even that, because the CPUs that the pod has are not as many as it wants (AD-3).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.kube.client import Client
from plimsoll.kube.request import PODS, patch
from plimsoll.node.agent import PLUGINS, Agent
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from tests.unit.node.devices.example_plugin import RESOURCE, ExamplePlugin
from tests.unit.node.resources.test_memory_manager import CPUS, TWO, setting
from tests.unit.node.test_agent import NODE, Document, World, eventually, phase, pod, shell
from tests.unit.node.test_agent_devices import with_plugin

SIZES = {"cpu": "2", "memory": "1Gi"}
STATES = ("cpu_manager_state", "memory_manager_state", "device-plugins/kubelet_internal_checkpoint")


class ManagedWorld(World):
    def __init__(self, directory: Path, profile: str, policy: str) -> None:
        amounts = {**SIZES, RESOURCE: "1"}
        super().__init__(directory, pod(shell("c", "sleep 1000", resources={"limits": amounts, "requests": amounts})))
        self.profile, self.policy = profile, policy

    def agent(self, clock: Callable[[], float] = time.time) -> Agent:
        node = setting(self.profile, topologyManagerPolicy=self.policy)
        runtime = ProcessRuntime(self.directory / "runtime", lambda _: ())
        tree = CgroupManager(self.kernel, node, self.directory / "cgroups")
        return Agent(
            node, runtime, self.kernel, tree, Client(self.api), self.directory, NODE, clock=clock, topology=CPUS, numa=TWO
        )  # fmt: skip

    async def resize(self, **amounts: str) -> None:
        sizes = {**SIZES, **amounts, RESOURCE: "1"}
        change = {"spec": {"containers": [{"name": "c", "resources": {"limits": sizes, "requests": sizes}}]}}
        await Client(self.api).ask(patch(PODS, "web", change, "default", "resize"))

    def everything(self, agent: Agent) -> object:
        """What the pod has: its cgroup files, its owned resources, the checkpoints."""
        paths = agent.cgroups.paths("u-1")
        files = ("cpu.max", "cpu.weight", "memory.max", "cpuset.cpus", "cpuset.mems")
        return (
            {path: self.kernel.read(path, files) for path in paths.values()},
            agent.cpus.cpus_of("u-1", "c"),
            agent.memory.mems_of("u-1", "c"),
            agent.devices.devices_of("u-1", "c"),
            [(self.directory / name).read_bytes() for name in STATES],
        )


@asynccontextmanager
async def running_pod(
    directory: Path, profile: str, policy: str = "single-numa-node"
) -> AsyncIterator[tuple[ManagedWorld, Agent]]:
    world = ManagedWorld(directory, profile, policy)
    async with with_plugin(world, ExamplePlugin(directory / PLUGINS)) as agent:
        await world.until(phase("Running"))
        yield world, agent


def pending(status: Document) -> Document | None:
    every = status.get("conditions", ())
    return next((each for each in every if each["type"] == "PodResizePending"), None)


CPU_TEXT = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
MEMORY_TEXT = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'
OLD_CPU_TEXT = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy"


@pytest.mark.parametrize(
    ("profile", "amounts", "reason", "message"),
    [
        pytest.param("1.36", {"cpu": "3"}, "Infeasible", CPU_TEXT, id="1.36 cpu"),
        pytest.param("1.36", {"memory": "2Gi"}, "Infeasible", MEMORY_TEXT, id="1.36 memory"),
        pytest.param("1.33", {"memory": "2Gi"}, "Infeasible", OLD_CPU_TEXT, id="1.33 memory"),
        pytest.param(
            "documents", {"cpu": "1500m"}, "Infeasible", 'CPU Manager policy "static" allows whole CPUs only', id="fraction"
        ),
        pytest.param("documents", {"cpu": "3"}, "Deferred", "Topology locality", id="topology"),
    ],
)  # fmt: skip
async def test_a_refused_resize_changes_nothing(
    profile: str, amounts: dict[str, str], reason: str, message: str, tmp_path: Path
) -> None:
    async with running_pod(tmp_path, profile) as (world, agent):
        before = world.everything(agent)
        await world.resize(**amounts)
        condition = await world.until(pending)
        assert (condition["reason"], message in condition["message"]) == (reason, True), condition
        await asyncio.sleep(0)
        assert world.everything(agent) == before
        await world.resize()
        await world.until(lambda status: pending(status) is None)
        assert world.everything(agent) == before


async def test_an_accepted_resize_moves_all_of_it(tmp_path: Path) -> None:
    async with running_pod(tmp_path, "documents", "none") as (world, agent):
        (node,) = agent.memory.mems_of("u-1", "c")
        await world.resize(cpu="3")
        await eventually(lambda: len(agent.cpus.owned["u-1"]["c"]) == 3)
        path = agent.cgroups.paths("u-1")["c"]

        def has_new_size() -> bool:
            found = world.kernel.read(path, ["cpu.max", "cpuset.cpus"])
            return found is not None and found.files["cpu.max"] == "300000 100000"

        await eventually(has_new_size)
        assert agent.memory.mems_of("u-1", "c") == node
        assert agent.devices.devices_of("u-1", "c") == {RESOURCE: frozenset({"d0"})}
