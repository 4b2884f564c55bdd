"""The whole agent on a simulated kernel with offline CPUs: which CPUs a pod gets by the release, and what is said."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.kube.client import Client
from plimsoll.node.agent import Agent
from plimsoll.rules.cpumanager.topology import CpuTopology, LogicalCpu
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from tests.unit.node.resources.test_memory_manager import setting
from tests.unit.node.test_agent import NODE, World, phase, pod, shell

# Cores {0, 4}, {1, 5}, {2, 6}; 3 and 7 have lost their siblings, so a core has one thread on average.
UNEVEN = CpuTopology({cpu: LogicalCpu(7 if cpu == 7 else cpu % 4, 0, 0) for cpu in range(8)})


class UnevenWorld(World):
    def __init__(self, directory: Path, profile: str) -> None:
        sizes = [{"cpu": cpu, "memory": "64Mi"} for cpu in ("1", "2")]
        containers = [
            shell(f"c{number}", "sleep 1000", resources={"limits": size, "requests": size})
            for number, size in enumerate(sizes)
        ]
        super().__init__(directory, pod(*containers))
        self.profile, self.kernel = profile, SimulatedKernel(2, cpus=8)

    def agent(self, clock: Callable[[], float] = time.time) -> Agent:
        node = setting(self.profile, memoryManagerPolicy="None", systemReserved={"cpu": "2"})
        runtime = ProcessRuntime(self.directory / "runtime", lambda _: ())
        tree = CgroupManager(self.kernel, node, self.directory / "cgroups")
        return Agent(
            node, runtime, self.kernel, tree, Client(self.api), self.directory, NODE, clock=clock, topology=UNEVEN
        )  # fmt: skip


@pytest.mark.parametrize(("profile", "cpus", "twice"), [("1.36", "0,4", True), ("documents", "1,4", False)])
async def test_a_cpu_of_two_containers(tmp_path: Path, profile: str, cpus: str, twice: bool) -> None:
    """CM-2: the reserved CPUs are 3 and 7, and core {0, 4} looks free without 0."""
    world = UnevenWorld(tmp_path, profile)
    async with world.running() as agent:
        await world.until(phase("Running"))
        assert (agent.cpus.cpus_of("u-1", "c0"), agent.cpus.cpus_of("u-1", "c1")) == ("0", cpus)
    told = [each["message"] for each in world.events if each["reason"] == "CPUAssignedTwice"]
    assert told == (["kubelet 1.36 assigns CPU 0 to two containers: c1 and c0 of pod web"] if twice else [])
