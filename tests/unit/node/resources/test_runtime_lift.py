"""Another memory.high for a container of a CRI runtime: requested, kept, and dropped when the container ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.lean.lean import lean_pod
from plimsoll.kube.client import Client
from plimsoll.node.agent import Agent
from plimsoll.node.resources import runtime_cgroups
from plimsoll.node.resources.cgroup_locator import CgroupLocator
from plimsoll.node.resources.runtime_cgroups import RuntimeCgroups
from plimsoll.node.standalone import OnePodApi
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.objects import MEMORY, NO_RESOURCES, Pod
from plimsoll.rules.model.objects import Resources as Asked
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.profile import DEFAULT_PROFILE
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.allocation import allocation_of
from plimsoll.runtime.interface import CriResources, ObservedContainer, RuntimeCallError
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
    """Like containerd: creates cgroups, and writes updates into a simulated kernel."""

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


def cgroups(agent: Agent) -> RuntimeCgroups:
    assert isinstance(agent.container_cgroups, RuntimeCgroups)
    return agent.container_cgroups


def computed(agent: Agent) -> CriResources:
    return cgroups(agent).cri_resources(POD, "c", ASKED)


async def test_the_update_carries_all_that_the_container_has(tmp_path: Path) -> None:
    agent, runtime, kernel = await made(tmp_path)
    before = computed(agent)
    assert before.unified["memory.high"] == str(56 * MIB)
    await cgroups(agent).lift(POD, "c", ID, "max")
    ((container_id, update),) = runtime.updates
    assert container_id == ID
    assert dict(update.unified) == {**before.unified, "memory.high": "max"}
    assert (update.memory_limit_bytes, update.cpu_shares) == (96 * MIB, before.cpu_shares)
    seen = kernel.read(f"{POD_PATH}/{ID}", ("memory.high",))
    assert seen is not None and seen.files["memory.high"] == "max"


async def test_a_resize_and_the_next_agent_keep_it_until_the_container_ends(tmp_path: Path) -> None:
    agent, _, kernel = await made(tmp_path)
    await cgroups(agent).lift(POD, "c", ID, "max")
    assert cgroups(agent).with_lift(POD, ID, computed(agent)).unified["memory.high"] == "max"
    assert cgroups(agent).with_lift(POD, "b" * 64, computed(agent)).unified["memory.high"] == str(56 * MIB)
    await kernel.write(f"{POD_PATH}/{ID}", "memory.min", str(16 * MIB))
    wanted = {"c": computed(agent).unified}

    def next_agent() -> CgroupLocator:
        return CgroupLocator(kernel, "containerd", 4096, tmp_path / "lifted.json")

    running = ObservedContainer(ID, "c", "running", sandbox_id="s", pod_uid=UID)
    locator = next_agent()
    assert locator.observe(UID, POD_PATH, [running], wanted) == [], "the runtime does not ignore `unified`"
    locator.observe(UID, POD_PATH, [], wanted)
    assert locator.with_lift(UID, ID, {"memory.high": "1"}) == {"memory.high": "1"}
    assert next_agent().with_lift(UID, ID, {"memory.high": "1"}) == {"memory.high": "1"}


async def test_a_runtime_that_does_not_answer_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _, _ = await made(tmp_path, Silent)
    monkeypatch.setattr(runtime_cgroups, "LIFT_S", 0.01)
    with pytest.raises(RuntimeCallError, match="no answer"):
        await cgroups(agent).lift(POD, "c", ID, "max")


@pytest.mark.parametrize("desired", ["64Mi", "4Gi"])
async def test_a_pending_resize_is_not_part_of_the_update(tmp_path: Path, desired: str) -> None:
    """A container without a limit has its pod's; the actuated one counts."""

    def pod(memory: str) -> Pod:
        level = {"requests": {"memory": "32Mi"}, "limits": {"memory": memory}}
        document = {
            "metadata": {"name": "web", "uid": UID},
            "spec": {"resources": level, "containers": [{"name": "c"}]},
        }
        return lean_pod(document)

    agent, runtime, _ = await made(tmp_path)
    actuated = pod("400Mi")
    gates = agent.setting.policy.gates
    agent.checkpoint.put(
        UID,
        allocation=allocation_of(actuated, gates),
        actuated={"c": NO_RESOURCES},
        actuated_pod=actuated.spec.resources,
    )
    await cgroups(agent).lift(pod(desired), "c", ID, "max")
    ((_, update),) = runtime.updates
    assert update.memory_limit_bytes == 400 * MIB
