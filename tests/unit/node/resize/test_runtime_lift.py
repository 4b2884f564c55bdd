"""Another memory.high for a container of a runtime that writes cgroups itself: told, kept, and taken back with its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.lean.lean import lean_pod
from plimsoll.kube.client import Client
from plimsoll.node.agent import Agent
from plimsoll.node.resize import cri as cri_resize
from plimsoll.node.resources.cri_cgroups import RuntimeCgroups
from plimsoll.node.standalone import OnePodApi
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.objects import MEMORY, NO_RESOURCES, Pod
from plimsoll.rules.model.objects import Resources as Asked
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.profile import DEFAULT_PROFILE
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.allocation import allocation_of
from plimsoll.runtime.interface import ContainerStateSeen, CriResources, RuntimeCallError
from tests.unit.node.played_runtime import PlayedRuntime

MIB = 1 << 20
UID, ID = "11111111-2222-3333-4444-555555555555", "a" * 64
POD_PATH = f"/kubepods/burstable/pod{UID}"
CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "featureGates": {"MemoryQoS": True},
    "memoryThrottlingFactor": 0.5,
}
SETTING = resolved(
    machine_from_capacity({"cpu": parse("8"), "memory": parse("4Gi")}),
    reading(CONFIG, DEFAULT_PROFILE, {}).config,
    DEFAULT_PROFILE,
    cgroup_version=2,
    runtime="containerd",
)
ASKED = Asked({MEMORY: parse("16Mi")}, {MEMORY: parse("96Mi")})
POD = lean_pod(
    {
        "metadata": {"name": "web", "namespace": "default", "uid": UID},
        "spec": {
            "containers": [
                {"name": "c", "resources": {"requests": {"memory": "16Mi"}, "limits": {"memory": "96Mi"}}},
            ]
        },
    }
)


class Writing(PlayedRuntime):
    """As containerd: it makes cgroups, and writes what it is told into a kernel in memory."""

    makes_cgroups = True

    def __init__(self, kernel: SimulatedKernel) -> None:
        super().__init__()
        self._kernel, self.updates = kernel, list[tuple[str, CriResources]]()

    async def update_container(self, container_id: str, resources: CriResources) -> None:
        self.updates.append((container_id, resources))
        for file, text in resources.unified.items():
            await self._kernel.write(f"{POD_PATH}/{container_id}", file, text)


class Silent(Writing):
    async def update_container(self, container_id: str, resources: CriResources) -> None:
        await asyncio.Event().wait()


async def made(tmp_path: Path, kind: type[Writing] = Writing) -> tuple[Agent, Writing, SimulatedKernel]:
    kernel = SimulatedKernel(2, "cgroupfs")
    for path in ("/kubepods", "/kubepods/burstable", POD_PATH, f"{POD_PATH}/{ID}"):
        await kernel.make(path)
    runtime = kind(kernel)
    api = OnePodApi({"metadata": {"name": "web", "namespace": "default"}}, on_status=print, on_event=print)
    tree = CgroupManager(kernel, SETTING, tmp_path / "cgroups")
    agent = Agent(SETTING, runtime, kernel, tree, Client(api), tmp_path, "n1")
    agent.checkpoint.load()
    agent.checkpoint.put(UID, actuated={"c": ASKED})
    return agent, runtime, kernel


def told(agent: Agent) -> CriResources:
    return cri_resize.told(agent.tools, POD, "c", ASKED)


async def test_the_runtime_is_told_beside_all_that_the_container_has(tmp_path: Path) -> None:
    agent, runtime, kernel = await made(tmp_path)
    before = told(agent)
    assert before.unified["memory.high"] == str(56 * MIB)
    await cri_resize.lift(agent.tools, POD, "c", ID, "max")
    ((container_id, update),) = runtime.updates
    assert container_id == ID
    assert dict(update.unified) == {**before.unified, "memory.high": "max"}
    assert (update.memory_limit_bytes, update.cpu_shares) == (96 * MIB, before.cpu_shares)
    seen = kernel.read(f"{POD_PATH}/{ID}", ("memory.high",))
    assert seen is not None and seen.files["memory.high"] == "max"


async def test_a_resize_and_the_next_agent_keep_it_until_the_container_ends(tmp_path: Path) -> None:
    agent, _, kernel = await made(tmp_path)
    await cri_resize.lift(agent.tools, POD, "c", ID, "max")
    assert cri_resize.kept(agent.tools, POD, ID, told(agent)).unified["memory.high"] == "max"
    assert cri_resize.kept(agent.tools, POD, "b" * 64, told(agent)).unified["memory.high"] == str(56 * MIB)
    await kernel.write(f"{POD_PATH}/{ID}", "memory.min", str(16 * MIB))
    wanted = {"c": told(agent).unified}

    def next_agent() -> RuntimeCgroups:
        return RuntimeCgroups(kernel, "containerd", 4096, tmp_path / "lifted.json")

    running = ContainerStateSeen(ID, "s", UID, "c", 0, "running")
    stands = next_agent()
    assert stands.see(UID, POD_PATH, [running], wanted) == [], "it is no runtime that does not listen"
    stands.see(UID, POD_PATH, [], wanted)
    assert stands.with_lift(UID, ID, {"memory.high": "1"}) == {"memory.high": "1"}
    assert next_agent().with_lift(UID, ID, {"memory.high": "1"}) == {"memory.high": "1"}


async def test_a_runtime_that_does_not_answer_is_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _, _ = await made(tmp_path, Silent)
    monkeypatch.setattr(cri_resize, "LIFT_ANSWER_S", 0.01)
    with pytest.raises(RuntimeCallError, match="no answer"):
        await cri_resize.lift(agent.tools, POD, "c", ID, "max")


@pytest.mark.parametrize("wish", ["64Mi", "4Gi"])
async def test_no_wish_is_told_on_the_way(tmp_path: Path, wish: str) -> None:
    """A container without a limit has its pod's; what counts is the one that was given."""

    def pod(memory: str) -> Pod:
        level = {"requests": {"memory": "32Mi"}, "limits": {"memory": memory}}
        document = {
            "metadata": {"name": "web", "uid": UID},
            "spec": {"resources": level, "containers": [{"name": "c"}]},
        }
        return lean_pod(document)

    agent, runtime, _ = await made(tmp_path)
    given = pod("400Mi")
    gates = agent.tools.gates
    agent.checkpoint.put(
        UID, allocation=allocation_of(given, gates), actuated={"c": NO_RESOURCES}, actuated_pod=given.spec.resources
    )
    await cri_resize.lift(agent.tools, pod(wish), "c", ID, "max")
    ((_, update),) = runtime.updates
    assert update.memory_limit_bytes == 400 * MIB
