"""Statements of documents 001, 003 and 004 about the CPUs and the start of an agent, without a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.kernel.cpu_state import CpuState, cpu_state_json
from plimsoll.codec.lean.runnable import run_pod_from_json
from plimsoll.kube.client import Client
from plimsoll.node.agent import Agent
from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.resources.cpu_manager import STATE, CpuManager
from plimsoll.node.resources.state_file import StateMismatchError
from plimsoll.node.standalone import OnePodApi
from plimsoll.rules.cpumanager.topology import flat
from plimsoll.rules.cpuset import cpu_numbers
from plimsoll.rules.resize.allocation import allocation_of
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.topologymanager.admission import NO_TOPOLOGY, allocate
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from tests.unit.documents.examples import container, lean, manifest, node

# --- 001-07, 001-18, 003-54, 003-76: exclusive CPUs ---


@pytest.fixture
def cpus(tmp_path: Path) -> CpuManager:
    """Of document 001's node: 16 CPUs, one of them reserved, policy static."""
    setting = node("001-node-16.yaml", "001-kubelet-static-cpu.yaml")
    made = CpuManager(tmp_path, setting, flat(setting.machine.cores))
    made.load(drained=True)
    return made


def given(cpus: CpuManager, document: Any) -> set[int]:
    """Which CPUs its first container runs on, once it has its own."""
    document["metadata"]["uid"] = document["metadata"]["name"]
    pod = defaulted(lean(document))
    allocation = cpus.allocation(pod)
    assert allocation is not None
    allocate(pod, [allocation], NO_TOPOLOGY)  # raises if the pod is refused
    cpus.commit(allocation.pools)
    name = document["spec"]["containers"][0]["name"]
    return set(cpu_numbers(cpus.cpus_of(document["metadata"]["uid"], name)) or ())


def test_four_of_sixteen_cpus_are_exclusive(cpus: CpuManager) -> None:
    own = given(cpus, manifest("001-guaranteed-4-cpus.yaml"))
    assert len(own) == 4 and 0 not in own, "the first one is reserved"
    assert given(cpus, manifest("001-besteffort.yaml")) == set(range(16)) - own
    fraction = manifest("001-guaranteed-4-cpus.yaml")
    fraction["metadata"]["name"] = "fraction"
    for amounts in container(fraction, "worker")["resources"].values():
        amounts["cpu"] = "3500m"
    assert given(cpus, fraction) == set(range(16)) - own, "only whole CPUs are given away"


def test_exclusive_cpus_follow_a_resize(cpus: CpuManager) -> None:
    """To three CPUs, as in the practice of document 003: the one it had stays among them."""
    before = given(cpus, manifest("003-demo.yaml"))
    after = given(cpus, manifest("003-demo-resized-cpu-3.yaml"))
    assert (len(before), len(after)) == (1, 3) and before < after


# --- 004-69: the order of the start ---


def _nothing(_: object) -> None:
    """An event recorder that is not reached."""


async def test_cpu_state_is_checked_before_cgroups_are_created(tmp_path: Path) -> None:
    """The CPU manager starts first: if it rejects its state, there is neither a runtime nor a kubepods cgroup."""
    setting = node("001-node-16.yaml", "001-kubelet-static-cpu.yaml", runtime="process")
    kernel = SimulatedKernel(2, cpus=setting.machine.cores)
    document = manifest("001-guaranteed-4-cpus.yaml")
    document["metadata"] |= {"namespace": "default", "uid": "u-1"}
    known = Checkpoint(tmp_path / "agent.jsonl")
    known.put("u-1", allocation=allocation_of(run_pod_from_json(msgspec.json.encode(document))))
    known.save()
    (tmp_path / STATE).write_bytes(cpu_state_json(CpuState("none", frozenset(), {})))
    runtime = ProcessRuntime(tmp_path / "runtime", lambda _: ())
    tree = CgroupManager(kernel, setting, tmp_path / "cgroups")
    agent = Agent(
        setting,
        runtime,
        kernel,
        tree,
        Client(OnePodApi(document, on_status=_nothing, on_event=_nothing)),
        tmp_path,
        "n1",
    )
    with pytest.raises(StateMismatchError, match='configured policy "static" differs'):
        await agent.run()
    assert kernel.children("/") == []
    assert not (tmp_path / "runtime").exists()
