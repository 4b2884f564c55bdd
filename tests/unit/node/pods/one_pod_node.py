"""A whole agent with one pod: simulated kernel, fake runtime that records its calls, the API of one pod in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.kube.client import Client
from plimsoll.node.agent import Agent
from plimsoll.node.pods.worker import PodWorker
from plimsoll.node.standalone import OnePodApi
from plimsoll.runtime.interface import ContainerSpec, RuntimeCallError, SandboxSpec
from tests.unit.node.played_runtime import PlayedRuntime
from tests.unit.node.resources.test_pod_cgroups import SETTING
from tests.unit.node.test_agent import NODE, Document, eventually, pod

UID = "u-1"


def container(name: str, **more: Any) -> Document:
    return {"name": name, "image": "busybox", "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}, **more}


class RecordingRuntime(PlayedRuntime):
    """Records its calls. A call in `failing` raises; one in `blocked` waits for its event."""

    def __init__(self, kernel: SimulatedKernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.calls: list[str] = []
        self.handlers: list[str] = []  # of its sandboxes
        self.failing: set[str] = set()
        self.blocked: dict[str, asyncio.Event] = {}
        self.before: Callable[[str], None] = lambda _call: None

    async def _call(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)
        if call in self.failing:
            raise RuntimeCallError(call, "no")
        if call in self.blocked:
            await self.blocked[call].wait()

    async def make_sandbox(self, spec: SandboxSpec) -> str:
        await self._call("make sandbox")
        self.handlers.append(spec.runtime_handler)
        return await super().make_sandbox(spec)

    async def make_container(self, sandbox: SandboxSpec, sandbox_id: str, spec: ContainerSpec) -> str:
        await self._call(f"make {spec.name}")
        return await super().make_container(sandbox, sandbox_id, spec)

    async def start_container(self, container_id: str) -> None:
        await self._call(f"start {container_id}")
        await super().start_container(container_id)

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        await self._call(f"stop {container_id} {grace_s:g}")
        await super().stop_container(container_id, grace_s)

    async def remove_container(self, container_id: str) -> None:
        await self._call(f"remove {container_id}")
        await super().remove_container(container_id)


class PodNode:
    def __init__(
        self,
        directory: Path,
        *containers: Document,
        objects: Iterable[Document] = (),
        api: type[OnePodApi] = OnePodApi,
        **spec: Any,
    ) -> None:
        self.kernel = SimulatedKernel(2)
        self.runtime = RecordingRuntime(self.kernel)
        self.events: list[Document] = []
        document = pod(*containers, **spec)
        self.api = api(document, objects, on_status=lambda _document: None, on_event=self.events.append)
        manager = CgroupManager(self.kernel, SETTING, directory / "cgroups")
        self.agent = Agent(SETTING, self.runtime, self.kernel, manager, Client(self.api), directory, NODE)

    @property
    def worker(self) -> PodWorker:
        return self.agent.pods.workers[UID]

    @property
    def status(self) -> Document:
        assert self.api.pod is not None
        status: Document = self.api.pod["status"]
        return status

    def reasons(self) -> list[str]:
        return [event["reason"] for event in self.events]

    async def until_running(self) -> None:
        await eventually(lambda: self.status.get("phase") == "Running")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[PodNode]:
        task = asyncio.create_task(self.agent.run())
        try:
            await asyncio.wait_for(self.agent.ready.wait(), 30)
            yield self
        finally:
            await self.agent.stop()
            await asyncio.wait([task], timeout=30)
            task.cancel()
            await asyncio.wait([task])
