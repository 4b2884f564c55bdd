"""Memory blocks are kept over restarts, bind containers to NUMA nodes, and are aligned with CPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.kernel.memory_state import MemoryState, memory_state_from_json, memory_state_json
from plimsoll.codec.lean.lean import lean_pod
from plimsoll.errors import InvalidConfigError
from plimsoll.linux.numa import NumaMemory, this_numa
from plimsoll.node.resources.cpu_manager import CpuManager
from plimsoll.node.resources.memory_manager import STATE, MemoryManager
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.resources.resource_managers import ResourceManagers, topology_of
from plimsoll.node.resources.state_file import StateMismatchError
from plimsoll.rules.config.parse import reading
from plimsoll.rules.cpumanager.topology import CpuTopology, LogicalCpu
from plimsoll.rules.memorymanager.blocks import Block, MemoryTable, NumaNode
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse

GI = 1 << 30
TWO = NumaMemory({0: {"memory": 8 * GI}, 1: {"memory": 8 * GI}}, {0: (10, 20), 1: (20, 10)})
CPUS = CpuTopology({cpu: LogicalCpu(cpu, cpu // 4, cpu // 4) for cpu in range(8)})


def setting(profile: str = "1.36", **config: Any) -> NodeConfig:
    document = {
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": "single-numa-node",
        "systemReserved": {"cpu": "1", "memory": "1948Mi"},
        "reservedMemory": [
            {"numaNode": 0, "limits": {"memory": "1Gi"}},
            {"numaNode": 1, "limits": {"memory": "1Gi"}},
        ],
        **config,
    }
    known = profile_named(profile)
    machine = machine_from_capacity({"cpu": parse("8"), "memory": parse("16Gi")})
    return resolved(machine, reading(document, known, {}).config, known, cgroup_version=2, runtime="process")


def pod(uid: str, cpu: int = 1, gib: int = 1) -> Pod:
    amounts = {"memory": f"{gib}Gi", "cpu": str(cpu)}
    container = {"name": "c", "resources": {"limits": amounts}}
    return lean_pod({"metadata": {"name": uid, "namespace": "d", "uid": uid}, "spec": {"containers": [container]}})


def managers(directory: Path, *, drained: bool = False, **config: Any) -> ResourceManagers:
    node = setting(**config)
    made = ResourceManagers(
        node,
        CpuManager(directory, node, CPUS),
        MemoryManager(directory, node, TWO),
        topology_of(node, CPUS, TWO),
    )
    made.load(drained=drained)
    return made


def given(node: ResourceManagers, asked: Pod) -> str:
    if (refusal := node.refusal(asked)) is not None:
        return f"{refusal.reason}: {refusal.event_text}"
    node.assign(asked)
    uid = asked.metadata.uid
    return f"{node.cpus.cpus_of(uid, 'c')} on {node.memory.mems_of(uid, 'c')}"


NO_LOCALITY = "TopologyAffinityError: Resources cannot be allocated with Topology locality"


def test_cpus_and_memory_of_one_node(tmp_path: Path) -> None:
    node = managers(tmp_path)
    assert given(node, pod("a", 2, 6)) == "1-2 on 0"
    assert given(node, pod("b", 1, 2)) == "4 on 1"  # node 0 has a CPU, but only 1Gi
    assert given(node, pod("c", 4, 1)) == NO_LOCALITY
    assert given(node, pod("d", 3, 1)) == "5-7 on 1"
    assert given(node, pod("e", 1, 1)) == "3 on 0"
    before = (tmp_path / STATE).read_bytes()
    assert given(node, pod("f", 1, 1)).startswith("TopologyAffinityError")
    assert (tmp_path / STATE).read_bytes() == before  # nothing half-done
    node.retain({"a", "b"})
    assert given(node, pod("f", 1, 1)) == "3 on 0"


def test_everything_survives(tmp_path: Path) -> None:
    first = managers(tmp_path)
    given(first, pod("a", 2, 6))
    again = managers(tmp_path)
    assert given(again, pod("a", 2, 6)) == "1-2 on 0"
    assert again.memory.machine == first.memory.machine


def test_a_pod_may_use_both_nodes_where_the_policy_allows_it(tmp_path: Path) -> None:
    node = managers(tmp_path, topologyManagerPolicy="best-effort")
    assert given(node, pod("a", 1, 10)).endswith("on 0,1")
    node = managers(tmp_path / "other", drained=True) if (tmp_path / "other").mkdir() is None else node
    assert given(node, pod("a", 1, 10)) == NO_LOCALITY


STATE_ERRORS = [
    pytest.param({"memoryManagerPolicy": "None"}, "configured policy \"None\" differs from state checkpoint policy \"Static\"", id="policy"),
    pytest.param(
        {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "2Gi"}}]},
        "the expected machine state is different from the real one",
        id="reserved",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "words"), STATE_ERRORS)
def test_a_file_that_does_not_match(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    given(managers(tmp_path), pod("a"))
    with pytest.raises(StateMismatchError, match=words):
        managers(tmp_path, **config)
    assert managers(tmp_path, drained=True, **config).memory.owned == {}


def test_a_damaged_file(tmp_path: Path) -> None:
    given(managers(tmp_path), pod("a"))
    path = tmp_path / STATE
    path.write_bytes(path.read_bytes().replace(b'"size":1073741824', b'"size":1073741825'))
    with pytest.raises(StateMismatchError, match="checkpoint is corrupted"):
        managers(tmp_path)


CONFIG_ERRORS = [
    pytest.param({"reservedMemory": None}, "is not equal to the value", id="none reserved"),
    pytest.param(
        {"reservedMemory": [{"numaNode": 5, "limits": {"memory": "2Gi"}}]}, "NUMA node 5 that does not exist", id="node"
    ),
]


@pytest.mark.parametrize(("config", "words"), CONFIG_ERRORS)
def test_a_configuration_that_does_not_fit(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        managers(tmp_path, **config)


def test_the_kubelets_file() -> None:
    """MM-16, with its checksum."""
    text = (
        '{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":4294967296,'
        '"systemReserved":1073741824,"allocatable":3221225472,"reserved":1073741824,"free":2147483648}},"cells":[0]}},'
        '"entries":{"u1":{"c0":[{"numaAffinity":[0],"type":"memory","size":1073741824}]}},"checksum":2795276856}'
    )
    table = MemoryTable(4 * GI, GI, 3 * GI, GI, 2 * GI)
    state = MemoryState(
        "Static", {0: NumaNode(1, {"memory": table}, (0,))}, {"u1": {"c0": (Block((0,), "memory", GI),)}}
    )
    assert memory_state_json(state).decode() == text
    assert memory_state_from_json(text.encode()) == state
    assert json.loads(memory_state_json(MemoryState("None", {}, {})))["machineState"] == {}


@pytest.mark.parametrize("version", [1, 2])
async def test_containers_are_bound(tmp_path: Path, version: Any) -> None:
    node = managers(tmp_path)
    config = setting()
    kernel = SimulatedKernel(version, cpus=8)
    cgroups = PodCgroups(
        CgroupManager(kernel, config, tmp_path), kernel, config, cpus=node.cpus.cpus_of, mems=node.memory.mems_of
    )
    await cgroups.setup()
    given(node, pod("a"))
    async with running(cgroups):
        await cgroups.ensure(pod("a"), {"c": "a1"})
        seen = kernel.read(cgroups.paths("a")["c"], ["cpuset.mems", "cpuset.cpus"])
    assert seen is not None
    assert seen.files == {"cpuset.mems": "0", "cpuset.cpus": "1"}


def running(cgroups: PodCgroups) -> Any:
    import asyncio
    import contextlib

    @contextlib.asynccontextmanager
    async def task() -> Any:
        made = asyncio.create_task(cgroups.run())
        try:
            yield
        finally:
            made.cancel()
            await asyncio.wait([made])

    return task()


def test_this_machine_is_read(tmp_path: Path) -> None:
    for number, kib in ((0, 4096), (1, 8192)):
        node = tmp_path / f"node{number}"
        (node / "hugepages/hugepages-2048kB").mkdir(parents=True)
        (node / "meminfo").write_text(f"Node {number} MemTotal:       {kib} kB\nNode {number} MemFree: 1 kB\n")
        (node / "hugepages/hugepages-2048kB/nr_hugepages").write_text("1\n")
        (node / "distance").write_text("10 21\n" if number == 0 else "21 10\n")
    found = this_numa(tmp_path)
    assert found.memory == {
        0: {"memory": 4 << 20, "hugepages-2Mi": 2 << 20},
        1: {"memory": 8 << 20, "hugepages-2Mi": 2 << 20},
    }
    assert found.distances == {0: (10, 21), 1: (21, 10)}
