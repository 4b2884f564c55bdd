"""The whole agent with block I/O under control, on a simulated kernel: annotations, changes in place, wrong values."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.kube.client import Client
from plimsoll.kube.request import PODS, patch
from plimsoll.node.agent import Agent
from plimsoll.rules.blockio.entries import latency_entries, limit_entries
from plimsoll.rules.blockio.policy import IO_LATENCY, IO_MAX, IoCeiling, IoDevice, IoPolicy
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from tests.unit.node.resources.test_pod_cgroups import SETTING
from tests.unit.node.test_agent import NODE, Document, World, eventually, phase, pod, shell

IO = IoPolicy(
    (IoDevice("/dev/vda", "254:0"),),
    ceilings={"*": IoCeiling(limit_entries("wbps=1000"), latency_entries("target=5ms"))},
)
CLASS, CGROUP = "/kubepods/besteffort", "/kubepods/besteffort/podu-1"


class IoWorld(World):
    def __init__(self, directory: Path, annotations: dict[str, str], io: IoPolicy = IO) -> None:
        document = pod(shell("c", "sleep 1000"))
        metadata = {**document["metadata"], "annotations": annotations}
        super().__init__(directory, {**document, "metadata": metadata})
        self.io = io

    def agent(self, clock: Callable[[], float] = time.time) -> Agent:
        setting = msgspec.structs.replace(SETTING, policy=msgspec.structs.replace(SETTING.policy, io=self.io))
        runtime = ProcessRuntime(self.directory / "runtime", lambda _: ())
        tree = CgroupManager(self.kernel, setting, self.directory / "cgroups")
        return Agent(setting, runtime, self.kernel, tree, Client(self.api), self.directory, NODE, clock=clock)

    async def annotate(self, **annotations: str | None) -> None:
        names = {"io_max": IO_MAX, "io_latency": IO_LATENCY}
        change = {"metadata": {"annotations": {names[key]: text for key, text in annotations.items()}}}
        await Client(self.api).ask(patch(PODS, "web", change, "default", ""))

    def file(self, name: str, path: str = CGROUP) -> str:
        found = self.kernel.read(path, [name])
        return "gone" if found is None else found.files[name]

    def messages(self) -> list[str]:
        return [each["message"] for each in self.events if each["reason"] == "InvalidIOAnnotation"]


async def test_a_limit_is_written_and_changed_in_place(tmp_path: Path) -> None:
    world = IoWorld(tmp_path, {IO_MAX: "wbps=500 riops=7"})
    async with world.running() as agent:
        await world.until(phase("Running"))
        assert world.file("io.max") == "254:0 wbps=500 riops=7"
        assert [world.file("io.weight", path) for path in ("/kubepods", "/kubepods/burstable", CLASS)] == [
            "default 500", "default 100", "default 10",
        ]  # fmt: skip
        before = (await agent.view.pod("u-1")).containers[0].id
        await world.annotate(io_max="wbps=400", io_latency="target=9ms")
        await eventually(lambda: world.file("io.max") == "254:0 wbps=400")
        assert [world.file("io.latency", path) for path in ("/kubepods", CLASS, CGROUP)] == ["254:0 target=9000"] * 3
        await world.annotate(io_max=None, io_latency=None)
        await eventually(lambda: world.file("io.max") == "254:0 wbps=1000")  # the ceiling
        assert [world.file("io.latency", path) for path in ("/kubepods", CLASS, CGROUP)] == [""] * 3
        assert (await agent.view.pod("u-1")).containers[0].id == before
    assert world.messages() == []


async def test_a_limit_goes_with_its_annotation_on_a_kernel_without_weights(tmp_path: Path) -> None:
    world = IoWorld(tmp_path, {IO_MAX: "wbps=500"}, IoPolicy(IO.devices, weight_files=()))
    async with world.running():
        await world.until(phase("Running"))
        assert world.file("io.max") == "254:0 wbps=500"
        await world.annotate(io_max=None)
        await eventually(lambda: world.file("io.max") == "")


async def test_a_wrong_value_changes_nothing_even_after_a_restart(tmp_path: Path) -> None:
    world = IoWorld(tmp_path, {IO_MAX: "wbps=500"})
    async with world.running(ends=False) as agent:
        await world.until(phase("Running"))
        await world.annotate(io_max="wbps=1001")
        await eventually(lambda: len(world.messages()) == 1)
        await world.annotate(io_max="much")
        await eventually(lambda: len(world.messages()) == 2)
        assert world.file("io.max") == "254:0 wbps=500"
        await agent.recorder.drained(5.0)
    assert world.messages()[0] == (
        "metadata.annotations[plimsoll.dev/io-max]: Forbidden: wbps of /dev/vda is 1001, more than 1000 "
        "(ioControl.ceilings[*].max of this node); the pod keeps plimsoll.dev/io-max: wbps=500"
    )
    async with world.running() as agent:
        await agent.ready.wait()
        await eventually(lambda: len(world.messages()) == 3)
        assert world.file("io.max") == "254:0 wbps=500"
        await world.annotate(io_max="wbps=300")
        await eventually(lambda: world.file("io.max") == "254:0 wbps=300")


async def test_a_ceiling_that_came_down_binds_a_running_pod(tmp_path: Path) -> None:
    world = IoWorld(tmp_path, {IO_MAX: "wbps=500"})
    async with world.running(ends=False):
        await world.until(phase("Running"))
    world.io = IoPolicy(IO.devices, ceilings={"*": IoCeiling(limit_entries("wbps=100"))})
    async with world.running() as agent:
        await eventually(lambda: world.file("io.max") == "254:0 wbps=100")
        assert [each.phase for each in (await agent.view.pod("u-1")).containers] == ["running"]
        await eventually(lambda: len(world.messages()) == 1)


async def test_a_new_pod_with_a_wrong_value_is_refused(tmp_path: Path) -> None:
    world = IoWorld(tmp_path, {IO_MAX: "wbps=max", IO_LATENCY: "target=1ms"})
    async with world.running():
        await world.until(phase("Failed"))
        status = world.statuses[-1]
        assert status["reason"] == "InvalidIOAnnotation"
        assert "metadata.annotations[plimsoll.dev/io-max]: Forbidden" in status["message"]
        assert "metadata.annotations[plimsoll.dev/io-latency]: Forbidden" in status["message"]
        assert world.file("io.max") == "gone"


async def test_a_kernel_without_io_latency(tmp_path: Path) -> None:
    without = msgspec.structs.replace(IO, no_latency="this kernel's cgroups have no io.latency")
    world = IoWorld(tmp_path, {IO_LATENCY: "target=9ms"}, without)
    async with world.running():
        await world.until(phase("Failed"))
        assert "this kernel's cgroups have no io.latency" in json.dumps(world.statuses[-1])


async def test_without_io_control_annotations_are_ignored(tmp_path: Path) -> None:
    document: Document = pod(shell("c", "sleep 1000"))
    document["metadata"] = {**document["metadata"], "annotations": {IO_MAX: "nonsense"}}
    world = World(tmp_path, document)
    async with world.running():
        await world.until(phase("Running"))
        found = world.kernel.read(CGROUP, ["io.max"])
        assert found is not None
        assert found.files["io.max"] == ""
