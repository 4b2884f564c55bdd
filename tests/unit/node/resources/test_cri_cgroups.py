"""Where a runtime's containers stand, and what it wrote, on a kernel in memory and by real processes of this machine."""

from __future__ import annotations

import os

import msgspec
import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.linux.processes import cgroups_of
from plimsoll.node.resources.cri_cgroups import DRIVER_MISMATCH, MEMORY_QOS_UNSUPPORTED, RuntimeCgroups
from plimsoll.runtime.interface import ContainerStateSeen, CriResources

UID = "11111111-2222-3333-4444-555555555555"
POD = f"/kubepods/pod{UID}"
ID = "a" * 64
OTHER = "b" * 64


def seen(name: str = "c", container_id: str = ID, phase: str = "running", pid: int = 0) -> ContainerStateSeen:
    return ContainerStateSeen(container_id, "s", UID, name, 0, phase, pid=pid)  # type: ignore[arg-type]


@pytest.fixture
async def kernel() -> SimulatedKernel:
    made = SimulatedKernel(2, "cgroupfs")
    for path in ("/kubepods", POD, f"{POD}/{ID}"):
        await made.make(path)
    return made


async def test_a_container_is_found_below_its_pod(kernel: SimulatedKernel) -> None:
    stands = RuntimeCgroups(kernel, "containerd", 4096)
    assert stands.see(UID, POD, [seen()], {}) == []
    assert stands.paths(UID) == {"c": f"{POD}/{ID}"}
    stands.see(UID, POD, [seen(phase="exited")], {})
    assert stands.paths(UID) == {"c": f"{POD}/{ID}"}, "its counters are asked for after its end"
    stands.see(UID, POD, [], {})
    assert stands.paths(UID) == {}


async def test_of_two_runs_the_newest_counts(kernel: SimulatedKernel) -> None:
    stands = RuntimeCgroups(kernel, "containerd", 4096)
    stands.see(UID, POD, [seen()], {})
    await kernel.make(f"{POD}/{OTHER}")
    stands.see(UID, POD, [seen(container_id=OTHER), seen(phase="exited")], {})
    assert stands.paths(UID) == {"c": f"{POD}/{OTHER}"}


async def test_one_that_is_nowhere_has_no_path(kernel: SimulatedKernel) -> None:
    stands = RuntimeCgroups(kernel, "containerd", 4096)
    assert stands.see(UID, POD, [seen(container_id=OTHER)], {}) == []
    assert stands.paths(UID) == {}


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        pytest.param({"memory.min": "16777216", "memory.high": "33554432"}, (), id="as-told"),
        pytest.param({"memory.min": "16777216"}, ("memory.high is max, not 33554432",), id="half-of-it"),
        pytest.param({}, ("memory.high is max, not 33554432", "memory.min is 0, not 16777216"), id="ignored"),
    ],
)
async def test_memory_qos_is_read_back(
    kernel: SimulatedKernel, written: dict[str, str], wrong: tuple[str, ...]
) -> None:
    for file, text in written.items():
        await kernel.write(f"{POD}/{ID}", file, text)
    stands = RuntimeCgroups(kernel, "containerd", 4096)
    unified = {"c": {"memory.min": "16777216", "memory.high": "33554432", "memory.oom.group": "1"}}
    found = stands.see(UID, POD, [seen()], unified)
    assert [each.reason for each in found] == [MEMORY_QOS_UNSUPPORTED] * bool(wrong)
    assert all(words in found[0].message for words in wrong)
    assert set(stands.conditions()) == ({MEMORY_QOS_UNSUPPORTED} if wrong else set())
    assert stands.see(UID, POD, [seen()], unified) == [], "told once"
    stands.forget(UID)
    assert stands.conditions() == {}


QOS = {"memory.min": "16777216", "memory.high": "33554432"}


@pytest.mark.parametrize(
    ("told", "wanted", "behind"),
    [
        pytest.param(QOS, QOS, {}, id="as-it-is"),
        pytest.param(QOS, {}, {"memory.min": "0", "memory.high": "max"}, id="turned-off"),
        pytest.param({"memory.min": "0", "memory.high": "max"}, {}, {}, id="was-turned-off"),
        pytest.param({}, QOS, QOS, id="turned-on"),
        pytest.param(QOS, {**QOS, "memory.high": "4096"}, {"memory.high": "4096"}, id="another-factor"),
        pytest.param({"memory.oom.group": "1"}, {}, {}, id="not-memory-qos"),
        pytest.param(None, QOS, {}, id="a-runtime-that-does-not-say"),
    ],
)
async def test_what_an_earlier_agent_told_is_compared(
    kernel: SimulatedKernel, told: dict[str, str] | None, wanted: dict[str, str], behind: dict[str, str]
) -> None:
    for file, text in (told or {}).items():
        await kernel.write(f"{POD}/{ID}", file, text)
    stands = RuntimeCgroups(kernel, "containerd", 4096)
    resources = None if told is None else CriResources(unified=told)
    running = msgspec.structs.replace(seen(), told=resources)
    found = stands.see(UID, POD, [running], {"c": wanted})
    assert stands.behind(UID) == ({ID: behind} if behind else {})
    assert bool(found) == (told is None), "what is about to be told is not read back yet"
    stands.see(UID, POD, [msgspec.structs.replace(running, phase="exited")], {"c": wanted})
    assert stands.behind(UID) == {}, "what has ended is told nothing"


@pytest.mark.parametrize("heeded", [True, False])
async def test_what_is_told_anew_is_read_back(kernel: SimulatedKernel, heeded: bool) -> None:
    stands = RuntimeCgroups(kernel, "containerd", 4096)
    running = msgspec.structs.replace(seen(), told=CriResources())
    assert stands.see(UID, POD, [running], {"c": QOS}) == []
    if heeded:
        for file, text in QOS.items():
            await kernel.write(f"{POD}/{ID}", file, text)
    stands.retold(UID)
    found = stands.see(UID, POD, [running], {"c": QOS})
    assert [each.reason for each in found] == ([] if heeded else [MEMORY_QOS_UNSUPPORTED])
    assert (stands.behind(UID), stands.see(UID, POD, [running], {"c": QOS})) == ({}, []), "told once"


class _Elsewhere(SimulatedKernel):
    """Names as the kernel in memory, processes as this machine's."""

    simulated = False


async def test_a_container_outside_its_pod_is_told(kernel: SimulatedKernel) -> None:
    own = cgroups_of(os.getpid())
    assert own, "this process is in some cgroup"
    driver = _Elsewhere(2, "cgroupfs")
    stands = RuntimeCgroups(driver, "containerd", 4096)
    (found,) = stands.see(UID, POD, [seen(pid=os.getpid())], {})
    assert found.reason == DRIVER_MISMATCH
    assert f"not below its pod's cgroup {POD}" in found.message and "driver is cgroupfs" in found.message
    assert stands.conditions().keys() == {DRIVER_MISMATCH}
