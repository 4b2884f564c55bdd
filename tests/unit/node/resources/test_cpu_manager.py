"""Exclusive CPUs are kept over restarts, and containers are moved onto them, on a simulated kernel."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.lean.lean import lean_pod
from plimsoll.errors import InvalidConfigError
from plimsoll.node.resources.container_cgroups import AgentCgroups
from plimsoll.node.resources.cpu_manager import STATE, CpuManager, CpuPinning
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.resources.state_file import StateMismatchError
from plimsoll.rules.config.parse import reading
from plimsoll.rules.cpumanager.assignment import CPU_ERRORS
from plimsoll.rules.cpumanager.topology import CpuTopology, flat
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.topologymanager.admission import NO_TOPOLOGY, allocate
from tests.unit.rules.cpumanager.test_assignment import HT8


def setting(profile: str = "documents", version: CgroupVersion = 2, cpu: str = "8", **config: Any) -> NodeConfig:
    document = {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "cpuManagerPolicy": "static",
        "systemReserved": {"cpu": "1500m"},
        **config,
    }
    known = profile_named(profile)
    machine = machine_from_capacity({"cpu": parse(cpu), "memory": parse("4Gi")})
    return resolved(machine, reading(document, known, {}).config, known, cgroup_version=version, runtime="process")


def pod(uid: str, cpu: str = "2", *, guaranteed: bool = True) -> Pod:
    amounts = {"memory": "64Mi", "cpu": cpu}
    container = {"name": "c", "resources": {"limits" if guaranteed else "requests": amounts}}
    return lean_pod({"metadata": {"name": uid, "namespace": "d", "uid": uid}, "spec": {"containers": [container]}})


def manager(directory: Path, topology: CpuTopology = HT8, *, drained: bool = False, **config: Any) -> CpuManager:
    made = CpuManager(directory, setting(**config), topology)
    made.load(drained=drained)
    return made


def assigned(cpus: CpuManager, pod: Pod) -> str:
    found = cpus.allocation(whole := defaulted(pod))
    if found is not None:
        try:
            allocate(whole, [found], NO_TOPOLOGY)
        except CPU_ERRORS as error:
            return f"{error.reason}: {error}"
        cpus.commit(found.pools)
    return cpus.cpus_of(pod.metadata.uid, "c")


def test_cpus_are_assigned_and_released(tmp_path: Path) -> None:
    cpus = manager(tmp_path)
    assert cpus.plan is not None
    assert cpu_text(cpus.plan.reserved) == "0,4"  # 1500m round up to two
    assert assigned(cpus, pod("a")) == "1,5"
    assert assigned(cpus, pod("b", "3")) == "2-3,6"
    assert assigned(cpus, pod("fraction", "500m")) == "0,4,7"
    assert assigned(cpus, pod("burstable", guaranteed=False)) == "0,4,7"
    assert assigned(cpus, pod("c")) == (
        "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: "
        "requested=2, available=1, which is unexpected"
    )
    assert cpus.retain({"b", "fraction"})
    assert not cpus.retain({"b"})
    assert cpu_text(cpus.shared) == "0-1,4-5,7"
    assert assigned(cpus, pod("c")) == "1,5"


def test_the_state_survives(tmp_path: Path) -> None:
    first = manager(tmp_path)
    assigned(first, pod("a"))
    assert json.loads((tmp_path / STATE).read_text()) == {
        "policyName": "static",
        "defaultCpuSet": "0,2-4,6-7",
        "entries": {"a": {"c": "1,5"}},
        "checksum": json.loads((tmp_path / STATE).read_text())["checksum"],
    }
    again = manager(tmp_path)
    assert again.cpus_of("a", "c") == "1,5"
    assert assigned(again, pod("a")) == "1,5"


INVALID = 'invalid state, please drain node and remove policy state file "{}": '
REFUSALS = [
    pytest.param({"cpuManagerPolicy": "none"}, HT8, 'could not restore state from checkpoint: configured policy "none" differs from state checkpoint policy "static", please drain this node and delete the CPU manager checkpoint file "{}" before restarting Kubelet', id="policy"),
    pytest.param({"reservedSystemCPUs": "1"}, HT8, INVALID + 'not all reserved cpus: "1" are present in defaultCpuSet: "0,2-4,6-7"', id="reserved"),
    pytest.param({"cpu": "7"}, HT8.only(range(7)), INVALID + 'current set of available CPUs "0-6" doesn\'t match with CPUs in state "0-7"', id="cpus"),
    pytest.param({"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}, HT8, INVALID + 'some of strictly reserved cpus: "0,4" are present in defaultCpuSet: "0,2-4,6-7"', id="strict"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "topology", "words"), REFUSALS)
def test_a_state_of_another_configuration_is_refused_until_the_node_is_drained(
    tmp_path: Path, config: dict[str, Any], topology: CpuTopology, words: str
) -> None:
    assigned(manager(tmp_path), pod("a"))
    with pytest.raises(StateMismatchError) as caught:
        manager(tmp_path, topology, **config)
    assert str(caught.value) == words.format(tmp_path / STATE)
    fresh = manager(tmp_path, topology, drained=True, **config)
    assert fresh.cpus_of("a", "c") == fresh.shared_text
    manager(tmp_path, topology, **config)  # its new file is accepted


def test_none_after_static_and_back(tmp_path: Path) -> None:
    none = manager(tmp_path, cpuManagerPolicy="none")
    assert (none.allocation(pod("a")), none.cpus_of("a", "c"), none.is_static) == (None, "", False)
    assert json.loads((tmp_path / STATE).read_text()) == {
        "policyName": "none",
        "defaultCpuSet": "",
        "checksum": 1353318690,
    }
    with pytest.raises(
        StateMismatchError, match='configured policy "static" differs from state checkpoint policy "none"'
    ):
        manager(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"{", b"\0" * 100])
def test_a_damaged_state(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / STATE).write_bytes(damage)
    with pytest.raises(StateMismatchError, match="please drain this node"):
        manager(tmp_path)
    fresh = manager(tmp_path, drained=True)
    assert fresh.cpus_of("a", "c") == fresh.shared_text


WRONG = [
    pytest.param({"reservedSystemCPUs": "9"}, HT8, "reservedSystemCPUs: reserved-cpus: 9 is not a subset of online-cpus: 0-7", id="no such CPU"),
    pytest.param({"systemReserved": {"cpu": "8"}, "cpu": "9"}, HT8, "static: the capacity says 9 CPUs and the machine has 8", id="declared more than there are"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "topology", "words"), WRONG)
def test_an_impossible_configuration_is_refused_at_the_start(
    tmp_path: Path, config: dict[str, Any], topology: CpuTopology, words: str
) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        manager(tmp_path, topology, **config)


def test_all_cpus_may_be_reserved(tmp_path: Path) -> None:
    """As a kubelet has it: pods share the CPUs, and none can own one."""
    cpus = manager(tmp_path, flat(2), systemReserved={"cpu": "1900m"}, cpu="2")
    assert assigned(cpus, pod("shared", "500m")) == "0-1"
    assert assigned(cpus, pod("a", "1")).endswith("requested=1, available=0, which is unexpected")


def test_a_file_with_a_wrong_checksum(tmp_path: Path) -> None:
    """CM-28: 1.36 tries the oldest format last, in which entries are texts."""
    assigned(manager(tmp_path), pod("a"))
    state = json.loads((tmp_path / STATE).read_text())
    (tmp_path / STATE).write_text(json.dumps({**state, "checksum": 1}))
    as_v1 = "json: cannot unmarshal object into Go struct field CPUManagerCheckpointV1.entries of type string"
    for profile, words in {"1.35": "checkpoint is corrupted", "1.36": as_v1, "1.37": "checkpoint is corrupted"}.items():
        with pytest.raises(StateMismatchError) as caught:
            manager(tmp_path, profile=profile)
        assert caught.value.reason == words


# --- pinning ---


@contextlib.asynccontextmanager
async def node(
    directory: Path, version: CgroupVersion = 2
) -> AsyncIterator[tuple[CpuManager, PodCgroups, SimulatedKernel]]:
    config = setting(version=version)
    kernel = SimulatedKernel(version, cpus=8)
    cpus = CpuManager(directory, config, HT8)
    cpus.load(drained=True)
    cgroups = PodCgroups(CgroupManager(kernel, config, directory), kernel, config, cpus=cpus.cpus_of)
    await cgroups.setup()
    task = asyncio.create_task(cgroups.run())
    try:
        yield cpus, cgroups, kernel
    finally:
        task.cancel()
        await asyncio.wait([task])


def cpuset(kernel: SimulatedKernel, cgroups: PodCgroups, uid: str, container: str = "c") -> str:
    seen = kernel.read(cgroups.paths(uid)[container], ["cpuset.cpus"])
    assert seen is not None
    return seen.files["cpuset.cpus"]


@pytest.mark.parametrize("version", [1, 2])
async def test_every_container_is_on_its_cpus(tmp_path: Path, version: CgroupVersion) -> None:
    async with node(tmp_path, version) as (cpus, cgroups, kernel):
        shared, one, two = pod("shared", guaranteed=False), pod("one", "1"), pod("two", "2")
        assigned(cpus, shared)
        await cgroups.ensure(shared, {"c": "s1"})
        assert cpuset(kernel, cgroups, "shared") == "0-7"
        assigned(cpus, one)
        await cgroups.ensure(one, {"c": "o1"})
        assert (cpuset(kernel, cgroups, "one"), cpuset(kernel, cgroups, "shared")) == ("1", "0,2-7")
        assigned(cpus, two)
        await cgroups.ensure(two, {"c": "t1"})
        assert (cpuset(kernel, cgroups, "two"), cpuset(kernel, cgroups, "shared")) == ("2,6", "0,3-5,7")
        # A restart under another id: the same CPUs, and no other container is moved.
        await cgroups.ensure(two, {"c": "t2"})
        assert cpuset(kernel, cgroups, "two") == "2,6"
        await cgroups.remove("two")
        cpus.retain({"shared", "one"})
        await cgroups.pin()
        assert cpuset(kernel, cgroups, "shared") == "0,2-7"
        # Changed by another program: found by the periodic comparison, not by a plain one.
        await kernel.write(cgroups.paths("one")["c"], "cpuset.cpus", "0-7")
        await cgroups.pin()
        assert cpuset(kernel, cgroups, "one") == "0-7"
        await cgroups.pin(every=True)
        assert cpuset(kernel, cgroups, "one") == "1"


async def test_a_cpu_is_left_before_it_is_owned(tmp_path: Path) -> None:
    """Every single write: at no moment two containers have a CPU that one of them owns."""
    async with node(tmp_path) as (cpus, cgroups, kernel):
        await cgroups.ensure(pod("shared", guaranteed=False), {"c": "s1"})
        assigned(cpus, pod("one", "1"))
        await cgroups.ensure(pod("one", "1"), {"c": "o1"})
        write, order = kernel.write, []

        async def noted(path: str, file: str, value: str) -> None:
            order.append((path.rpartition("/")[2], file, value))
            await write(path, file, value)

        kernel.write = noted  # type: ignore[method-assign]
        assert assigned(cpus, pod("one", "3")) == "1-2,6"
        await cgroups.pin()
        assert order == [("s1", "cpuset.cpus", "0,3-5,7"), ("o1", "cpuset.cpus", "1-2,6")]
        order.clear()
        assert assigned(cpus, pod("one", "1")) == "1"
        await cgroups.pin()
        assert order == [("o1", "cpuset.cpus", "1"), ("s1", "cpuset.cpus", "0,2-7")]


async def test_released_cpus_are_reported(tmp_path: Path) -> None:
    async with node(tmp_path) as (cpus, cgroups, kernel):
        pinning = CpuPinning(cpus, cgroups, AgentCgroups(cgroups, scopes_may_vanish=False), 60.0, cpus.retain)
        assigned(cpus, pod("one", "6"))
        await cgroups.ensure(pod("one", "6"), {"c": "o1"})
        await cgroups.ensure(pod("shared", guaranteed=False), {"c": "s1"})
        assert cpuset(kernel, cgroups, "shared") == "0,4"
        active, freed = {"one"}, asyncio.Event()
        task = asyncio.create_task(pinning.run(lambda: active, freed.set))
        try:
            pinning.wake()
            await asyncio.sleep(0.05)
            assert not freed.is_set()
            active.clear()
            pinning.wake()
            await asyncio.wait_for(freed.wait(), 60)
            async with asyncio.timeout(60):
                while True:
                    if cpuset(kernel, cgroups, "shared") == "0-7":
                        break
                    await asyncio.sleep(0.01)
        finally:
            task.cancel()
            await asyncio.wait([task])
