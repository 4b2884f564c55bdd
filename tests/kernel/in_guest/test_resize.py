"""The pod `demo` of document 003 resized by the agent inside a guest: cgroup v2 by ourselves, v1 and v2 by systemd."""

from __future__ import annotations

import json
from pathlib import Path

from plimsoll.kube.request import Request
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.quantity import parse
from tests.kernel.in_guest.test_agent import RealWorld
from tests.unit.node.test_agent import Document, container, eventually, pod, shell

MIB = 1 << 20
POLICY = [
    {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    {"resourceName": "memory", "restartPolicy": "RestartContainer"},
]


class DeclaredWorld(RealWorld):
    """A guest is small; its node counts as one of eight cores."""

    def __init__(self, directory: Path, document: Document) -> None:
        super().__init__(directory, document)
        before = self.setting
        self.setting = resolved(
            machine_from_capacity({"cpu": parse("8"), "memory": parse("2Gi")}),
            before.config,
            before.profile,
            cgroup_version=before.policy.cgroup_version,
            driver=before.driver,
            runtime="process",
        )


def sizes(cpu: str, memory: str) -> Document:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}


async def ask(world: RealWorld, generation: int, size: Document) -> None:
    spec = {"containers": [{"name": "demo", "resources": size}]}
    body = json.dumps({"metadata": {"generation": generation}, "spec": spec}).encode()
    answer = await world.api.send(Request("PATCH", "/api/v1/namespaces/default/pods/web", body, ""))
    assert answer.status == 200, answer


def is_settled(world: RealWorld, size: Document) -> bool:
    status = world.api.pod["status"] if world.api.pod is not None else {}
    found, types = container(status, "demo"), {each["type"] for each in status.get("conditions", ())}
    is_so = found.get("resources") == size and found.get("allocatedResources") == size["requests"]
    return is_so and "PodResizeInProgress" not in types and bool(found["state"].get("running"))


def quota_and_limit(world: RealWorld, path: str) -> tuple[int, int, int]:
    """Quota, period and memory limit, as the kernel has them."""
    names = ("cpu.max", "memory.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes")
    seen = world.files.read(path, names)
    assert seen is not None, path
    if world.files.version == 2:
        quota, period = seen.files["cpu.max"].split()
        return int(quota), int(period), int(seen.files["memory.max"])
    return int(seen.files[names[2]]), int(seen.files[names[3]]), int(seen.files[names[4]])


async def test_the_demo_pod_of_the_document(tmp_path: Path) -> None:
    demo = shell("demo", "tail -f /dev/null", resizePolicy=POLICY, resources=sizes("1", "200Mi"))
    world = DeclaredWorld(tmp_path, pod(demo, terminationGracePeriodSeconds=1))
    async with world.running() as agent:
        await eventually(lambda: is_settled(world, sizes("1", "200Mi")))
        first = container(world.statuses[-1], "demo")["containerID"]
        await ask(world, 2, sizes("2", "200Mi"))
        await eventually(lambda: is_settled(world, sizes("2", "200Mi")))
        assert container(world.statuses[-1], "demo")["containerID"] == first
        for path in agent.cgroups.paths("u-1").values():
            assert quota_and_limit(world, path) == (200_000, 100_000, 200 * MIB), path

        await ask(world, 3, sizes("2", "500Mi"))
        await eventually(lambda: is_settled(world, sizes("2", "500Mi")))
        assert container(world.statuses[-1], "demo")["restartCount"] == 1
        for path in agent.cgroups.paths("u-1").values():
            assert quota_and_limit(world, path) == (200_000, 100_000, 524_288_000), path
