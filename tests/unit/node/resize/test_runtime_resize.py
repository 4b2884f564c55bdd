"""A running pod's new size over a runtime that makes the containers' cgroups: who hears what, and in which order.

The kernel is one in memory, the runtime writes down what it is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.node.resize import cri as cri_resize
from plimsoll.node.resources.cri_cgroups import RuntimeCgroups
from plimsoll.node.resources.pleg import PodParts
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.profile import PROFILE_1_27, PROFILE_1_36, Profile
from plimsoll.rules.resize.allocation import Allocation
from plimsoll.runtime.interface import ContainerStateSeen, CriResources, RuntimeCallError, SandboxStateSeen
from tests.unit.node.resources.test_pod_cgroups import SETTING, pod

MIB = 1 << 20
SMALL, LARGE = pod("u1", "64Mi"), pod("u1", "96Mi")


class Kernel(SimulatedKernel):
    """Notes what is written to the pod's own cgroup; refuses it where it is told to."""

    def __init__(self, book: list[str]) -> None:
        super().__init__(2)
        self.book, self.refuses = book, False

    async def write(self, path: str, file: str, text: str) -> None:
        if path == "/kubepods/podu1" and file == "memory.max":
            if self.refuses:
                raise CgroupError("write", path, file, 16)
            self.book.append(f"pod {int(text) // MIB}")
        await super().write(path, file, text)


class Runtime:
    makes_cgroups = True

    def __init__(self, book: list[str]) -> None:
        self.book = book
        self.trouble: RuntimeCallError | None = None

    async def update_sandbox(self, sandbox_id: str, resources: CriResources) -> None:
        self.book.append(f"{sandbox_id} hears {resources.memory_limit_bytes // MIB}")
        if self.trouble is not None:
            raise self.trouble

    async def update_container(self, container_id: str, resources: CriResources) -> None:
        self.last = resources
        self.book.append(f"{container_id} {resources.memory_limit_bytes // MIB}")


class World:
    def __init__(self, directory: Path, profile: Profile) -> None:
        self.book: list[str] = []
        self.kernel, self.runtime = Kernel(self.book), Runtime(self.book)
        setting = msgspec.structs.replace(SETTING, profile=profile)
        self.cgroups = PodCgroups(CgroupManager(self.kernel, setting, directory), self.kernel, setting)
        self.cgroups.stands = RuntimeCgroups(self.kernel, "containerd", 4096)
        parts = PodParts(
            (
                SandboxStateSeen("new", "u1", "u1", "default"),
                SandboxStateSeen("old", "u1", "u1", "default", ready=False),
            ),
            (ContainerStateSeen("c-id", "new", "u1", "c", 0, "running"),),
        )
        self.tools: Any = SimpleNamespace(
            setting=setting, runtime=self.runtime, cgroups=self.cgroups, gates=Gates(),
            view=SimpleNamespace(last={"u1": parts}),
        )  # fmt: skip

    async def resize(self) -> None:
        actuated = Allocation({"c": SMALL.spec.containers[0].resources})
        await cri_resize.hand_out(self.tools, LARGE, actuated, lambda *_: None)


Made = Callable[[Profile], Any]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Made]:
    running: list[asyncio.Task[None]] = []

    async def make(profile: Profile) -> World:
        made = World(tmp_path, profile)
        await made.cgroups.setup()
        running.append(asyncio.create_task(made.cgroups.run()))
        await made.cgroups.have(SMALL, {})
        made.book.clear()
        return made

    yield make
    for each in running:
        each.cancel()
    await asyncio.wait(running)


async def test_it_hears_before_the_pods_cgroup_is_written(world: Made) -> None:
    made = await world(PROFILE_1_36)
    await made.resize()
    assert made.book == ["new hears 96", "pod 96", "c-id 96"]


async def test_a_refusal_leaves_everything_as_it_was(world: Made) -> None:
    made = await world(PROFILE_1_36)
    made.runtime.trouble = RuntimeCallError("UpdatePodSandboxResources", "no room")
    with pytest.raises(RuntimeCallError, match="no room"):
        await made.resize()
    assert made.book == ["new hears 96"]


async def test_what_the_kernel_refuses_is_taken_back(world: Made) -> None:
    made = await world(PROFILE_1_36)
    made.kernel.refuses = True
    with pytest.raises(CgroupError):
        await made.resize()
    assert made.book == ["new hears 96", "new hears 64"]


@pytest.mark.parametrize("trouble", [None, RuntimeCallError("UpdatePodSandboxResources", "no room")])
async def test_with_1_27_it_hears_afterwards_and_cannot_refuse(world: Made, trouble: RuntimeCallError | None) -> None:
    made = await world(PROFILE_1_27)
    made.runtime.trouble = trouble
    await made.resize()
    assert made.book == ["pod 96", "new hears 96", "c-id 96"]


@pytest.mark.parametrize(
    ("profile", "book"),
    [(PROFILE_1_36, ["new hears 96", "pod 96"]), (PROFILE_1_27, ["pod 96", "new hears 96"])],
    ids=lambda each: getattr(each, "name", ""),
)
async def test_a_size_that_comes_with_a_restart_is_heard_too(world: Made, profile: Profile, book: list[str]) -> None:
    made = await world(profile)
    for _ in range(2):  # the second finds it as it shall be
        assert (await cri_resize.have_sized(made.tools, LARGE, "new"))[""] == "/kubepods/podu1"
    assert made.book == book


async def test_who_was_told_another_memory_qos_is_told_anew_and_once(world: Made) -> None:
    """The node's settings are others than when the container was started: its size and CPUs stay as they are."""
    made = await world(PROFILE_1_36)
    was = CriResources(
        cpu_shares=102, memory_limit_bytes=64 * MIB, oom_score_adj=-997, cpuset_cpus="0-1",
        unified={"memory.high": "4096", "memory.oom.group": "1"},
    )  # fmt: skip
    (container,) = made.tools.view.last["u1"].containers
    running = msgspec.structs.replace(container, told=was)
    made.tools.view.last = {"u1": msgspec.structs.replace(made.tools.view.last["u1"], containers=(running,))}
    await made.kernel.make("/kubepods/podu1/c-id")
    assert made.cgroups.stands is not None
    made.cgroups.stands.see("u1", "/kubepods/podu1", [running], {"c": {"memory.oom.group": "1"}})
    for _ in range(2):
        actuated = Allocation({"c": SMALL.spec.containers[0].resources})
        await cri_resize.hand_out(made.tools, SMALL, actuated, lambda *_: None)
    assert made.book == ["c-id 64"]
    assert made.runtime.last == msgspec.structs.replace(
        was, cpuset_cpus="", unified={"memory.high": "max", "memory.oom.group": "1"}
    )
