"""The device manager with a real plugin over unix sockets: registration, lists, calls, restarts, lies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.codec.kernel.device_state import DeviceEntry, DeviceState, device_state_from_json, device_state_json
from plimsoll.codec.lean.lean import lean_pod
from plimsoll.linux.numa import NumaMemory
from plimsoll.net.grpc.status import GrpcError
from plimsoll.node.devices import messages as m
from plimsoll.node.devices import plugin as plugin_module
from plimsoll.node.devices.manager import CHECKPOINT, DeviceManager
from plimsoll.node.resources.cpu_manager import CpuManager
from plimsoll.node.resources.memory_manager import MemoryManager
from plimsoll.node.resources.resource_managers import ResourceManagers
from plimsoll.rules.config.parse import reading
from plimsoll.rules.cpumanager.topology import flat
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.topologymanager.admission import TopologySetting
from plimsoll.rules.topologymanager.merge import NumaLayout
from tests.unit.node.devices.example_plugin import RESOURCE, ExamplePlugin, devices, registered

LONG_S = 60.0


class Node:
    """A device manager with what it reports, and the other managers around it."""

    def __init__(self, directory: Path, policy: Any = "none") -> None:
        self.said: list[str] = []
        self.manager = DeviceManager(
            directory / "p", (0, 1), report=lambda reason, message: self.said.append(f"{reason}: {message}")
        )
        self.changes = asyncio.Event()
        self.manager.changed = self.changes.set
        profile = profile_named("1.36")
        machine = machine_from_capacity({"cpu": parse("8"), "memory": parse("4Gi")})
        setting = resolved(machine, reading(None, profile, {}).config, profile, cgroup_version=2, runtime="process")
        self.managers = ResourceManagers(
            setting,
            CpuManager(directory, setting, flat(8)),
            MemoryManager(directory, setting, NumaMemory({}, {})),
            TopologySetting(policy, layout=NumaLayout((0, 1))),
            self.manager,
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONG_S):
            while not holds():
                self.changes.clear()
                if not holds():
                    await self.changes.wait()

    async def sizes(self, capacity: int, allocatable: int, resource: str = RESOURCE) -> None:
        await self.until(lambda: self.manager.sizes().get(resource) == (capacity, allocatable))

    async def give(self, uid: str, count: int = 1, resource: str = RESOURCE) -> str:
        asked = pod(uid, count, resource)
        async with asyncio.timeout(LONG_S):
            if self.managers.waits_for_devices(asked):
                await self.managers.prepare(asked)
        refusal = self.managers.refusal(asked)
        if refusal is not None:
            return f"{refusal.reason}: {refusal.event_text}"
        return " ".join(sorted(self.manager.devices_of(uid, "c").get(resource, ())))


def pod(uid: str, count: int = 1, resource: str = RESOURCE) -> Pod:
    limits = {resource: str(count)}
    container = {"name": "c", "resources": {"limits": limits, "requests": limits}}
    meta = {"name": uid, "namespace": "d", "uid": uid}
    return defaulted(lean_pod({"metadata": meta, "spec": {"containers": [container]}}))


@asynccontextmanager
async def node(directory: Path, policy: Any = "none") -> AsyncIterator[Node]:
    made = Node(directory, policy)
    await made.manager.open()
    try:
        yield made
    finally:
        await made.manager.close()


async def test_devices_are_counted_given_and_released(tmp_path: Path) -> None:
    async with node(tmp_path) as here, registered(here.manager.directory) as plugin:
        await here.sizes(4, 4)
        assert await here.give("a", 3) == "d0 d1 d2"
        assert plugin.calls == [("Allocate", ("d0", "d1", "d2"))]
        assert await here.give("b", 2) == (
            "UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for "
            "example.com/null. Requested: 2, Available: 1, which is unexpected"
        )
        options = await here.manager.run_options(pod("a", 3), "c")
        assert options.envs == {"NULL_DEVICES": "d0,d1,d2"}
        assert [each.container_path for each in options.devices] == ["/dev/d0", "/dev/d1", "/dev/d2"]
        assert here.manager.retain({"b"})
        here.manager.retain(set())
        assert await here.give("b", 2) == "d0 d1"


async def test_health(tmp_path: Path) -> None:
    async with node(tmp_path) as here, registered(here.manager.directory) as plugin:
        await here.sizes(4, 4)
        plugin.show(devices(4, frozenset({"d0", "d1"})))
        await here.sizes(4, 2)
        assert await here.give("a", 2) == "d2 d3"
        plugin.show(devices(2))
        await here.sizes(2, 2)  # a device that is missing leaves the capacity
        await plugin.stop()
        await here.sizes(2, 0)
        assert any("the connection to the plugin failed" in each for each in here.said), here.said
        assert "no healthy devices present" in await here.give("b")
        clock = here.manager._clock
        here.manager._clock = lambda: clock() + 301
        assert here.manager.sizes() == {RESOURCE: (0, 0)}  # a pod still has some
        here.manager.retain(set())
        assert here.manager.sizes() == {}


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
async def test_alignment(tmp_path: Path, policy: str) -> None:
    async with node(tmp_path, policy) as here, registered(here.manager.directory):
        await here.sizes(4, 4)
        assert await here.give("a", 1) == "d0"
        assert await here.give("b", 2) == "d2 d3"  # node 0 has one left
        third = await here.give("c", 2)
        assert third.startswith("UnexpectedAdmissionError" if policy == "best-effort" else "TopologyAffinityError")


async def test_preferred_and_pre_start(tmp_path: Path) -> None:
    async with (
        node(tmp_path) as here,
        registered(here.manager.directory, prefers=("d3", "unknown"), pre_start=True) as plugin,
    ):
        await here.sizes(4, 4)
        assert await here.give("a", 1) == "d3"
        await here.manager.run_options(pod("a"), "c")
        assert plugin.calls == [
            ("Preferred", ("d0", "d1", "d2", "d3")),
            ("Allocate", ("d3",)),
            ("PreStart", ("d3",)),
        ]


async def test_devices_survive_the_agent_the_plugin_and_both(tmp_path: Path) -> None:
    directory = tmp_path / "p"
    async with node(tmp_path) as here, registered(directory):
        await here.sizes(4, 4)
        assert await here.give("a", 2) == "d0 d1"
    async with node(tmp_path) as here:  # neither the plugin nor the agent of before
        assert here.manager.sizes() == {RESOURCE: (0, 0)}
        assert not here.managers.waits_for_devices(pod("a", 2))
        assert here.managers.refusal(pod("a", 2), trusts=True) is None  # it runs
        assert here.managers.refusal(pod("a", 2)) is not None  # a resize waits for the plugin
        assert (await here.manager.run_options(pod("a", 2), "c")).envs == {"NULL_DEVICES": "d0,d1"}
        async with registered(directory) as plugin:
            await here.sizes(4, 4)
            assert await here.give("b", 2) == "d2 d3"
            await plugin.stop()
            await here.sizes(4, 0)
        async with registered(directory):  # the plugin alone has restarted
            await here.sizes(4, 4)
            assert "Available: 0" in await here.give("c", 1)


REGISTRATIONS = [
    pytest.param({"version": "v1alpha"}, RESOURCE, 'requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]', id="version"),
    pytest.param({}, "gpu", 'the ResourceName "gpu" is invalid', id="name"),
    pytest.param({"endpoint": "../x.sock"}, RESOURCE, "is not the name of a socket", id="path"),
    pytest.param({"endpoint": "missing.sock"}, RESOURCE, "failed to get device plugin options", id="no plugin listens"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "resource", "words"), REGISTRATIONS)
async def test_a_registration_that_is_refused(tmp_path: Path, how: dict[str, str], resource: str, words: str) -> None:
    async with node(tmp_path) as here:
        plugin = ExamplePlugin(here.manager.directory, resource=resource)
        with pytest.raises(GrpcError) as caught:
            await plugin.register(**how)
        assert words in caught.value.message
        assert here.manager.sizes() == {}


async def test_a_plugin_that_lies_or_hangs_hurts_only_its_own_resource(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_module, "ALLOCATE_S", 0.2)
    async with node(tmp_path) as here, registered(here.manager.directory) as bad:
        good = ExamplePlugin(here.manager.directory, 2, name="good.sock", resource="example.com/good")
        await good.start()
        await good.register()
        await here.sizes(4, 4)
        await here.sizes(2, 2, "example.com/good")
        bad.hangs.clear()
        assert "rpc error: code = DeadlineExceeded" in await here.give("a")
        assert await here.give("b", 1, "example.com/good") == "d0"
        bad.hangs.set()
        bad.answers_nothing = True
        assert "no containers return in allocation response" in await here.give("c")
        bad.answers_nothing, bad.fails = False, GrpcError(13, "broken")
        assert "rpc error: code = Internal desc = broken" in await here.give("d")
        bad.fails = None
        assert await here.give("e", 4) == "d0 d1 d2 d3"  # nothing of the failed calls is left
        bad.show(tuple(m.PluginDevice(f"x{number}", "Healthy") for number in range(plugin_module.MAX_DEVICES + 1)))
        await here.sizes(4, 0)
        assert any("devices, more than 100000" in each for each in here.said), here.said
        assert await here.give("f", 1, "example.com/good") == "d1"
        await good.stop()


async def test_a_second_instance_replaces_the_first(tmp_path: Path) -> None:
    async with node(tmp_path) as here, registered(here.manager.directory) as first:
        await here.sizes(4, 4)
        second = ExamplePlugin(here.manager.directory, 2, name="second.sock")
        await second.start()
        await second.register()
        await here.sizes(2, 2)
        await first.stop()  # its end does not disconnect the new one
        assert await here.give("a", 2) == "d0 d1"
        assert second.calls == [("Allocate", ("d0", "d1"))]
        clock = here.manager._clock
        here.manager._clock = lambda: clock() + 301
        assert here.manager.sizes() == {RESOURCE: (2, 2)}  # nor does it make the node forget the resource
        await second.stop()


def test_the_kubelets_file() -> None:
    """DM-15, with its checksum."""
    text = (
        '{"Data":{"PodDeviceEntries":[{"PodUID":"u1","ContainerName":"c0","ResourceName":"example.com/gpu",'
        '"DeviceIDs":{"0":["d0"]},"AllocResp":"Cgc="}],"RegisteredDevices":{"example.com/gpu":["d0","d1"]}},'
        '"Checksum":2105403202}'
    )
    entry = DeviceEntry("u1", "c0", "example.com/gpu", {0: ("d0",)}, bytes([10, 7]))
    state = DeviceState((entry,), {"example.com/gpu": ("d0", "d1")})
    assert device_state_json(state).decode() == text
    assert device_state_from_json(text.encode()) == state


async def test_a_damaged_checkpoint_is_only_reported(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / CHECKPOINT).write_text("{}")
    async with node(tmp_path) as here:
        assert here.manager.records == {}
        assert any("cannot be read" in each for each in here.said)
