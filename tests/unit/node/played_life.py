"""A whole node: the real agent and the real API server in this process, a simulated kernel, a fake runtime."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from plimsoll.api.machinery.users import AUTHENTICATED, NODES, User
from plimsoll.api.server.in_process import InProcess
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.kube.client import Client
from plimsoll.node.agent import Agent
from plimsoll.rules.cgroups.shrink import ShrinkPolicy
from plimsoll.rules.config.parse import reading
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.node.node_config import NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from tests.unit.api.api_client import STRATEGIC, ApiClient, ApiReply, api
from tests.unit.node.played_runtime import PlayedKernel, RuntimeOnKernel

NODE, PODS = "n1", "/api/v1/namespaces/default/pods"
QUIET_S = 30.0
# Memory in use stays in use until the test changes it: there is nothing to wait for.
AT_ONCE = ShrinkPolicy(deadline_s=0.02, pause_s=0.005)
RESIZE_CONDITIONS = {"PodResizePending", "PodResizeInProgress"}
Document = dict[str, Any]


def setting_of(profile: str, version: int, **more: Any) -> NodeConfig:
    named = profile_named(profile)
    config = reading({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}, **more}, named, {}).config
    machine = machine_from_capacity({"cpu": parse("8"), "memory": parse("4Gi"), "pods": parse("20")})
    return resolved(machine, config, named, cgroup_version=2 if version == 2 else 1, runtime="process")


class Life:
    def __init__(self, directory: Path, profile: str = "documents", version: int = 2) -> None:
        self.directory, self.profile, self.setting = directory, profile, setting_of(profile, version)
        self.kernel = PlayedKernel(self.setting.policy.cgroup_version)
        self.runtime = RuntimeOnKernel(self.kernel)
        self.conditions: tuple[NodeCondition, ...] = ()
        self._stack = contextlib.AsyncExitStack()

    async def begin(self) -> None:
        self.ask: ApiClient = await self._stack.enter_async_context(api(self.directory / "api", self.profile))
        amounts = {name: str(amount) for name, amount in self.setting.allocatable.items()}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE, "labels": {"kubernetes.io/os": "linux"}},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        await self.ask.ok("POST", "/api/v1/nodes", node)
        await self.start()

    async def __aenter__(self) -> Life:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        await self.close()

    async def close(self) -> None:
        await self._stack.aclose()

    # --- the agent ---

    async def start(self) -> None:
        user = User(f"system:node:{NODE}", frozenset({NODES, AUTHENTICATED}))
        tree = CgroupManager(self.kernel, self.setting, self.directory / "cgroups")
        self.agent = Agent(
            self.setting, self.runtime, self.kernel, tree, Client(InProcess(self.ask.app, user)),
            self.directory, NODE, conditions=lambda: self.conditions,
        )  # fmt: skip
        tree.set_shrink_policy(AT_ONCE)
        self.task = asyncio.create_task(self.agent.run())
        await asyncio.wait_for(self.agent.ready.wait(), QUIET_S)

    async def kill(self) -> None:
        """Nothing is put in order: every task ends where it is."""
        self.task.cancel()
        await asyncio.wait([self.task])

    async def lose_the_checkpoint(self) -> None:
        """Damage the checkpoint and restart the agent, after its statuses were sent."""
        await self.agent.reporter.drained(QUIET_S)
        await self.kill()
        (self.directory / "agent.jsonl").write_bytes(b"\0" * 64)
        await self.start()

    # --- pods ---

    async def create(self, name: str, containers: Iterable[Document], **spec: object) -> None:
        spec = {"containers": list(containers), "nodeName": NODE, "terminationGracePeriodSeconds": 0, **spec}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await self.ask.ok("POST", PODS, body)

    async def patch(self, name: str, spec: Document, subresource: str = "") -> ApiReply:
        path = f"{PODS}/{name}" + (f"/{subresource}" if subresource else "")
        return await self.ask("PATCH", path, {"spec": spec}, content_type=STRATEGIC)

    async def resize(self, name: str, sizes: dict[str, Document]) -> ApiReply:
        """Of regular containers, as the profile's users ask for it."""
        containers = [{"name": each, "resources": size} for each, size in sizes.items()]
        return await self.patch(name, {"containers": containers}, "" if self.profile == "documents" else "resize")

    async def pods(self) -> list[Document]:
        found: list[Document] = (await self.ask.ok("GET", PODS))["items"]
        return found

    async def status(self, name: str) -> Document:
        found: Document = (await self.ask.ok("GET", f"{PODS}/{name}"))["status"]
        return found

    async def resizing(self, name: str) -> dict[str, Document]:
        """The conditions of its resizes."""
        conditions = (await self.status(name)).get("conditions", ())
        return {each["type"]: each for each in conditions if each["type"] in RESIZE_CONDITIONS}

    async def until(self, name: str, is_so: Callable[[Document], object]) -> Document:
        """Its status, as soon as it is so."""
        deadline_s = time.monotonic() + QUIET_S
        while not is_so(status := await self.status(name)):
            assert time.monotonic() < deadline_s, status
            await asyncio.sleep(0.01)
        return status

    async def until_running(self, *names: str) -> None:
        for name in names:
            await self.until(name, lambda status: status.get("phase") == "Running")

    def container(self, pod: str, name: str) -> str:
        """Path of its cgroup."""
        worker = self.agent.pods.named("default", pod)
        assert worker is not None
        return self.agent.cgroups.paths(worker.uid)[name]
