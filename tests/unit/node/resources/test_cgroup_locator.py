"""Cgroups of a runtime's containers, and what it wrote: on a simulated kernel, and for real processes of this machine."""

from __future__ import annotations

import os

import msgspec
import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.linux.processes import cgroups_of
from plimsoll.node.resources.cgroup_locator import DRIVER_MISMATCH, MEMORY_QOS_UNSUPPORTED, CgroupLocator
from plimsoll.runtime.interface import CriResources, ObservedContainer

UID = "11111111-2222-3333-4444-555555555555"
POD = f"/kubepods/pod{UID}"
ID = "a" * 64
OTHER = "b" * 64


def seen(name: str = "c", container_id: str = ID, phase: str = "running", pid: int = 0) -> ObservedContainer:
    return ObservedContainer(container_id, name, phase, sandbox_id="s", pod_uid=UID, pid=pid)  # type: ignore[arg-type]


@pytest.fixture
async def kernel() -> SimulatedKernel:
    made = SimulatedKernel(2, "cgroupfs")
    for path in ("/kubepods", POD, f"{POD}/{ID}"):
        await made.make(path)
    return made


async def test_a_container_is_found_below_its_pod(kernel: SimulatedKernel) -> None:
    locator = CgroupLocator(kernel, "containerd", 4096)
    assert locator.observe(UID, POD, [seen()], {}) == []
    assert locator.paths(UID) == {"c": f"{POD}/{ID}"}
    locator.observe(UID, POD, [seen(phase="exited")], {})
    assert locator.paths(UID) == {"c": f"{POD}/{ID}"}, "its counters are read after its end"
    locator.observe(UID, POD, [], {})
    assert locator.paths(UID) == {}


async def test_of_two_attempts_the_newest_counts(kernel: SimulatedKernel) -> None:
    locator = CgroupLocator(kernel, "containerd", 4096)
    locator.observe(UID, POD, [seen()], {})
    await kernel.make(f"{POD}/{OTHER}")
    locator.observe(UID, POD, [seen(container_id=OTHER), seen(phase="exited")], {})
    assert locator.paths(UID) == {"c": f"{POD}/{OTHER}"}


async def test_a_missing_cgroup_has_no_path(kernel: SimulatedKernel) -> None:
    locator = CgroupLocator(kernel, "containerd", 4096)
    assert locator.observe(UID, POD, [seen(container_id=OTHER)], {}) == []
    assert locator.paths(UID) == {}


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        pytest.param({"memory.min": "16777216", "memory.high": "33554432"}, (), id="as-requested"),
        pytest.param({"memory.min": "16777216"}, ("memory.high is max, not 33554432",), id="half-of-it"),
        pytest.param({}, ("memory.high is max, not 33554432", "memory.min is 0, not 16777216"), id="ignored"),
    ],
)
async def test_memory_qos_is_read_back(
    kernel: SimulatedKernel, written: dict[str, str], wrong: tuple[str, ...]
) -> None:
    for file, text in written.items():
        await kernel.write(f"{POD}/{ID}", file, text)
    locator = CgroupLocator(kernel, "containerd", 4096)
    unified = {"c": {"memory.min": "16777216", "memory.high": "33554432", "memory.oom.group": "1"}}
    found = locator.observe(UID, POD, [seen()], unified)
    assert [each.reason for each in found] == [MEMORY_QOS_UNSUPPORTED] * bool(wrong)
    assert all(words in found[0].message for words in wrong)
    assert set(locator.conditions()) == ({MEMORY_QOS_UNSUPPORTED} if wrong else set())
    assert locator.observe(UID, POD, [seen()], unified) == [], "reported once"
    locator.forget(UID)
    assert locator.conditions() == {}


QOS = {"memory.min": "16777216", "memory.high": "33554432"}


@pytest.mark.parametrize(
    ("applied", "desired", "outdated"),
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
async def test_values_that_an_earlier_agent_requested_are_compared(
    kernel: SimulatedKernel, applied: dict[str, str] | None, desired: dict[str, str], outdated: dict[str, str]
) -> None:
    for file, text in (applied or {}).items():
        await kernel.write(f"{POD}/{ID}", file, text)
    locator = CgroupLocator(kernel, "containerd", 4096)
    resources = None if applied is None else CriResources(unified=applied)
    running = msgspec.structs.replace(seen(), cri_resources=resources)
    found = locator.observe(UID, POD, [running], {"c": desired})
    assert locator.outdated(UID) == ({ID: outdated} if outdated else {})
    assert bool(found) == (applied is None), "what is about to be updated is not read back yet"
    locator.observe(UID, POD, [msgspec.structs.replace(running, phase="exited")], {"c": desired})
    assert locator.outdated(UID) == {}, "an ended container is not updated"


@pytest.mark.parametrize("is_applied", [True, False])
async def test_an_update_is_read_back(kernel: SimulatedKernel, is_applied: bool) -> None:
    locator = CgroupLocator(kernel, "containerd", 4096)
    running = msgspec.structs.replace(seen(), cri_resources=CriResources())
    assert locator.observe(UID, POD, [running], {"c": QOS}) == []
    if is_applied:
        for file, text in QOS.items():
            await kernel.write(f"{POD}/{ID}", file, text)
    locator.updated(UID)
    found = locator.observe(UID, POD, [running], {"c": QOS})
    assert [each.reason for each in found] == ([] if is_applied else [MEMORY_QOS_UNSUPPORTED])
    assert (locator.outdated(UID), locator.observe(UID, POD, [running], {"c": QOS})) == ({}, []), "reported once"


class _Elsewhere(SimulatedKernel):
    """Names as the simulated kernel, processes as this machine's."""

    simulated = False


async def test_a_container_outside_its_pod_is_reported(kernel: SimulatedKernel) -> None:
    own = cgroups_of(os.getpid())
    assert own, "this process is in some cgroup"
    driver = _Elsewhere(2, "cgroupfs")
    locator = CgroupLocator(driver, "containerd", 4096)
    (found,) = locator.observe(UID, POD, [seen(pid=os.getpid())], {})
    assert found.reason == DRIVER_MISMATCH
    assert f"not below its pod's cgroup {POD}" in found.message and "driver is cgroupfs" in found.message
    assert locator.conditions().keys() == {DRIVER_MISMATCH}
