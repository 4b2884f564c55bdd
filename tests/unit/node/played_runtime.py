"""A runtime without processes: containers run until a test ends them. It outlives every agent, as a supervisor does."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.observe import walk
from plimsoll.runtime.interface import (
    ContainerSpec,
    CriResources,
    ExecResult,
    ExecSession,
    Image,
    ObservedContainer,
    ObservedSandbox,
    RegistryAuth,
    RuntimeCallError,
    RuntimeFeatures,
    RuntimeSnapshot,
    SandboxSpec,
)

KILLED, TERMINATED = 137, 143


class PlayedRuntime:
    name, version, makes_cgroups = "played", "1", False
    features = RuntimeFeatures()

    def __init__(self) -> None:
        self.sandboxes: dict[str, ObservedSandbox] = {}
        self.containers: dict[str, ObservedContainer] = {}
        self._listeners: list[asyncio.Queue[str]] = []

    async def open(self) -> None:
        """Always there."""

    async def close(self) -> None:
        self._listeners.clear()

    async def seen(self) -> RuntimeSnapshot:
        return RuntimeSnapshot(tuple(self.sandboxes.values()), tuple(self.containers.values()))

    async def changes(self) -> AsyncIterator[str]:
        mine: asyncio.Queue[str] = asyncio.Queue()
        self._listeners.append(mine)
        while True:
            yield await mine.get()

    async def image(self, name: str, *, has_command: bool, pull: bool, auth: RegistryAuth | None = None) -> Image:
        return Image(name)

    async def make_sandbox(self, spec: SandboxSpec) -> str:
        made = f"{spec.pod_uid}-{spec.attempt}"
        self.sandboxes.setdefault(
            made,
            ObservedSandbox(
                made,
                spec.attempt,
                created_s=time.time(),
                pod_uid=spec.pod_uid,
                name=spec.name,
                namespace=spec.namespace,
            ),
        )
        return made

    async def stop_sandbox(self, sandbox_id: str) -> None:
        if sandbox_id in self.sandboxes:
            self.sandboxes[sandbox_id] = msgspec.structs.replace(self.sandboxes[sandbox_id], ready=False)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        self.sandboxes.pop(sandbox_id, None)

    def container_id(self, sandbox: SandboxSpec, name: str, attempt: int) -> str:
        return f"{sandbox.pod_uid}.{name}.{attempt}"

    async def make_container(self, sandbox: SandboxSpec, sandbox_id: str, spec: ContainerSpec) -> str:
        made = self.container_id(sandbox, spec.name, spec.attempt)
        self.containers.setdefault(
            made,
            ObservedContainer(
                made, spec.name, "created", spec.attempt, sandbox_id, spec.image, pod_uid=sandbox.pod_uid,
                created_s=time.time(), annotations=spec.annotations,
            ),
        )  # fmt: skip
        return made

    async def start_container(self, container_id: str) -> None:
        self._changed(container_id, phase="running", started_s=time.time())

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        self.end(container_id, TERMINATED)

    def end(self, container_id: str, exit_code: int) -> None:
        found = self.containers.get(container_id)
        if found is not None and found.phase != "exited":
            self._changed(container_id, phase="exited", exit_code=exit_code, finished_s=time.time())

    async def remove_container(self, container_id: str) -> None:
        self.containers.pop(container_id, None)

    async def update_container(self, container_id: str, resources: CriResources) -> None:
        raise RuntimeCallError("update", "the agent writes the cgroups")

    async def update_sandbox(self, sandbox_id: str, resources: CriResources) -> None:
        raise RuntimeCallError("update", "the agent writes the cgroups")

    async def run_in(
        self, container_id: str, command: tuple[str, ...], timeout_s: float, *, max_output_bytes: int = 16384
    ) -> ExecResult:
        return ExecResult(0)

    async def exec(self, container_id: str, command: tuple[str, ...], *, stdin: bool, tty: bool) -> ExecSession:
        raise RuntimeCallError("exec", "there are no processes")

    async def attach(self, container_id: str, *, stdin: bool, tty: bool) -> ExecSession:
        raise RuntimeCallError("attach", "there are no processes")

    async def loopback_socket(self, sandbox_id: str, family: socket.AddressFamily) -> socket.socket:
        raise RuntimeCallError("loopback_socket", "there is no network")

    async def pod_socket(self, sandbox_id: str) -> socket.socket | None:
        return None

    async def reopen_log(self, container_id: str) -> None:
        """There are no logs."""

    def log_file(self, container: ObservedContainer) -> Path:
        return Path("/dev/null")

    def _changed(self, container_id: str, **changes: object) -> None:
        found = self.containers[container_id] = msgspec.structs.replace(self.containers[container_id], **changes)
        for each in self._listeners:
            each.put_nowait(found.pod_uid)


class PlayedKernel(SimulatedKernel):
    """Notifies its runtime of every process that ends."""

    exited: Callable[[int], None] | None = None

    def exit(self, pid: int) -> None:
        super().exit(pid)
        if self.exited is not None:
            self.exited(pid)


class RuntimeOnKernel(PlayedRuntime):
    """One process per container, in the cgroup that the agent has made for it: so memory has users, and victims."""

    def __init__(self, kernel: PlayedKernel) -> None:
        super().__init__()
        self.killed: list[str] = []  # containers whose process the kernel has ended
        self._kernel, self._pids = kernel, dict[int, str]()
        kernel.exited = self._exited

    def path(self, container_id: str) -> str:
        return next(path for path in walk(self._kernel, "/") if path.rpartition("/")[2] == container_id)

    async def start_container(self, container_id: str) -> None:
        self._pids[self._kernel.spawn(self.path(container_id))] = container_id
        await super().start_container(container_id)

    def end(self, container_id: str, exit_code: int) -> None:
        super().end(container_id, exit_code)
        for pid in [pid for pid, each in self._pids.items() if each == container_id]:
            del self._pids[pid]
            self._kernel.exit(pid)

    def _exited(self, pid: int) -> None:
        container_id = self._pids.pop(pid, None)
        if container_id is not None:
            self.killed.append(container_id)
            super().end(container_id, KILLED)
