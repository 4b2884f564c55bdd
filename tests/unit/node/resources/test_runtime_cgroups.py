"""Resizes of a running pod with a CRI runtime: which calls are made, and in which order.

The kernel is simulated, the runtime records its calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from plimsoll.cgroups.drivers.interface import ObservedCgroup
from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.linux.numa import NumaMemory
from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.resources.cgroup_locator import CgroupLocator
from plimsoll.node.resources.cpu_manager import CpuManager
from plimsoll.node.resources.memory_manager import MemoryManager
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.resources.resource_managers import ResourceManagers
from plimsoll.node.resources.runtime_cgroups import RuntimeCgroups
from plimsoll.rules.cpumanager.topology import flat
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.observed import ObservedPod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import PROFILE_DOCUMENTS, Profile, profile_named
from plimsoll.rules.resize.allocation import Allocation
from plimsoll.rules.topologymanager.admission import NO_TOPOLOGY
from plimsoll.runtime.interface import CriResources, ObservedContainer, ObservedSandbox, RuntimeCallError
from tests.unit.node.resources.test_pod_cgroups import SETTING, pod

MIB = 1 << 20
SMALL, LARGE = pod("u1", "64Mi"), pod("u1", "96Mi")


def managers_of(directory: Path, setting: NodeConfig) -> ResourceManagers:
    memory = MemoryManager(directory, setting, NumaMemory({}, {}))
    return ResourceManagers(setting, CpuManager(directory, setting, flat(8)), memory, NO_TOPOLOGY)


class Kernel(SimulatedKernel):
    """Records writes to the pod's own cgroup, and refuses them on request."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__(2)
        self.calls, self.refuses = calls, False

    async def write(self, path: str, file: str, text: str) -> None:
        if path == "/kubepods/podu1" and file == "memory.max":
            if self.refuses:
                raise CgroupError("write", path, file, 16)
            self.calls.append(f"pod {int(text) // MIB}")
        await super().write(path, file, text)


class IncompleteKernel(Kernel):
    """As cgroup v1 where a runtime has not made a container's cgroup in one hierarchy."""

    def read(self, path: str, files: Iterable[str]) -> ObservedCgroup | None:
        return None if path == "/kubepods/podu1/c-id" else super().read(path, files)

    def texts(self, path: str, files: Iterable[str]) -> Mapping[str, str] | None:
        cgroup = super().read(path, files)
        return None if cgroup is None else cgroup.files


class Runtime:
    makes_cgroups = True

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls
        self.error: RuntimeCallError | None = None

    async def update_sandbox(self, sandbox_id: str, resources: CriResources) -> None:
        self.calls.append(f"{sandbox_id} updated to {resources.memory_limit_bytes // MIB}")
        if self.error is not None:
            raise self.error

    async def update_container(self, container_id: str, resources: CriResources) -> None:
        self.last = resources
        self.calls.append(f"{container_id} {resources.memory_limit_bytes // MIB}")


class World:
    def __init__(self, directory: Path, profile: Profile, kernel: type[Kernel] = Kernel) -> None:
        self.calls: list[str] = []
        self.kernel, self.runtime = kernel(self.calls), Runtime(self.calls)
        setting = msgspec.structs.replace(SETTING, profile=profile)
        self.locator = CgroupLocator(self.kernel, "containerd", 4096)
        manager = CgroupManager(self.kernel, setting, directory)
        self.pods = PodCgroups(manager, self.kernel, setting, locator=self.locator)
        parts = ObservedPod(
            (
                ObservedSandbox("new", pod_uid="u1", name="u1", namespace="default"),
                ObservedSandbox("old", pod_uid="u1", name="u1", namespace="default", ready=False),
            ),
            (ObservedContainer("c-id", "c", "running", sandbox_id="new", pod_uid="u1"),),
        )
        self.view: Any = SimpleNamespace(last={"u1": parts})
        runtime: Any = self.runtime
        self.cgroups = RuntimeCgroups(
            self.pods, self.locator, self.kernel, runtime, self.view,
            managers_of(directory, setting), Checkpoint(directory / "c"), setting,
        )  # fmt: skip

    async def resize(self, pod: Pod = LARGE) -> None:
        actuated = Allocation({"c": SMALL.spec.containers[0].resources})
        await self.cgroups.actuate(pod, actuated, lambda _name: None)


Made = Callable[..., Any]  # of a profile and a kernel


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Made]:
    running: list[asyncio.Task[None]] = []

    async def make(profile: Profile, kernel: type[Kernel] = Kernel) -> World:
        made = World(tmp_path, profile, kernel)
        await made.pods.setup()
        running.append(asyncio.create_task(made.pods.run()))
        await made.pods.ensure(SMALL, {})
        made.calls.clear()
        return made

    yield make
    for each in running:
        each.cancel()
    await asyncio.wait(running)


async def test_the_sandbox_is_updated_before_the_pods_cgroup_is_written(world: Made) -> None:
    made = await world(profile_named("1.36"))
    await made.resize()
    assert made.calls == ["new updated to 96", "pod 96", "c-id 96"]


async def test_a_refusal_changes_nothing(world: Made) -> None:
    made = await world(profile_named("1.36"))
    made.runtime.error = RuntimeCallError("UpdatePodSandboxResources", "no room")
    with pytest.raises(RuntimeCallError, match="no room"):
        await made.resize()
    assert made.calls == ["new updated to 96"]


async def test_a_refusal_of_the_kernel_reverts_the_sandbox(world: Made) -> None:
    made = await world(profile_named("1.36"))
    made.kernel.refuses = True
    with pytest.raises(CgroupError):
        await made.resize()
    assert made.calls == ["new updated to 96", "new updated to 64"]


@pytest.mark.parametrize("error", [None, RuntimeCallError("UpdatePodSandboxResources", "no room")])
async def test_with_documents_the_sandbox_is_updated_afterwards_and_cannot_refuse(
    world: Made, error: RuntimeCallError | None
) -> None:
    made = await world(PROFILE_DOCUMENTS)
    made.runtime.error = error
    await made.resize()
    assert made.calls == ["pod 96", "new updated to 96", "c-id 96"]


@pytest.mark.parametrize(
    ("profile", "calls"),
    [(profile_named("1.36"), ["new updated to 96", "pod 96"]), (PROFILE_DOCUMENTS, ["pod 96", "new updated to 96"])],
    ids=lambda each: getattr(each, "name", ""),
)
async def test_a_size_that_comes_with_a_restart_updates_the_sandbox(
    world: Made, profile: Profile, calls: list[str]
) -> None:
    made = await world(profile)
    for _ in range(2):  # the second has nothing to do
        assert (await made.cgroups.ensure_pod(LARGE, "new"))[""] == "/kubepods/podu1"
    assert made.calls == calls


async def test_outdated_memory_qos_is_updated_once(world: Made) -> None:
    """The node's settings have changed since the container was started: its size and CPUs are kept."""
    made = await world(profile_named("1.36"))
    was = CriResources(
        cpu_shares=102, memory_limit_bytes=64 * MIB, oom_score_adj=-997, cpuset_cpus="0-1",
        unified={"memory.high": "4096", "memory.oom.group": "1"},
    )  # fmt: skip
    (container,) = made.view.last["u1"].containers
    running = msgspec.structs.replace(container, cri_resources=was)
    made.view.last = {"u1": msgspec.structs.replace(made.view.last["u1"], containers=(running,))}
    await made.kernel.make("/kubepods/podu1/c-id")
    made.locator.observe("u1", "/kubepods/podu1", [running], {"c": {"memory.oom.group": "1"}})
    for _ in range(2):
        await made.resize(SMALL)
    assert made.calls == ["c-id 64"]
    assert made.runtime.last == msgspec.structs.replace(
        was, cpuset_cpus="", unified={"memory.high": "max", "memory.oom.group": "1"}
    )


@pytest.mark.parametrize("kernel", [Kernel, IncompleteKernel])
async def test_a_changed_value_of_a_container_is_written_by_the_runtime(world: Made, kernel: type[Kernel]) -> None:
    made = await world(profile_named("1.36"), kernel)
    await made.kernel.make("/kubepods/podu1/c-id")
    made.locator.observe("u1", "/kubepods/podu1", made.view.last["u1"].containers, {})
    await made.kernel.write("/kubepods/podu1/c-id", "cpu.max", "1000 100000")
    repairs = await made.cgroups.repair(["u1"])
    assert ("/kubepods/podu1/c-id", "cpu.max") in {(each.difference.path, each.difference.file) for each in repairs}
    assert made.calls == ["c-id 64"]
