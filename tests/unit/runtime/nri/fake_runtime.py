"""The runtime's side of NRI, on a unix socket: registers what a plugin says, and can send it anything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.net.ttrpc.framing import FramingError
from plimsoll.net.ttrpc.peer import UNKNOWN, TtrpcError, TtrpcPeer
from plimsoll.runtime.nri import messages as m


class FakeRuntime:
    """`begin`: what to do with a new plugin; by default it is configured and synchronized. While `free` is not set, it is
    busy: plugins and updates wait; `asked` is set by a plugin or an update. `names_failed`: updates that failed are
    listed; containerd 2.1.9 carries out the others and says only that some failed."""

    def __init__(self, path: Path, version: str = "v2.1.9") -> None:
        self.path, self.version = path, version
        self.plugins: list[tuple[str, str]] = []
        self.updates: list[m.ContainerUpdate] = []
        self.pods: tuple[m.PodSandbox, ...] = ()
        self.containers: tuple[m.Container, ...] = ()
        self.apply: Callable[[m.ContainerUpdate], bool] = lambda _update: True
        self.names_failed = False
        self.peer: TtrpcPeer | None = None
        self.synchronized, self.asked, self.free = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.free.set()
        self.events = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peer = TtrpcPeer(reader, writer, self._handle, serves=m.RUNTIME_CONNECTION, calls=m.PLUGIN_CONNECTION)
        with contextlib.suppress(FramingError, asyncio.CancelledError):
            await self.peer.run()

    async def _handle(self, service: str, method: str, payload: bytes) -> bytes:
        assert service == m.RUNTIME_SERVICE
        self.asked.set()
        await self.free.wait()
        if method == "RegisterPlugin":
            request = decode(m.RegisterPluginRequest, payload)
            self.plugins.append((request.plugin_name, request.plugin_idx))
            task = asyncio.create_task(self.begin())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return b""
        assert method == "UpdateContainers"
        asked = decode(m.UpdateContainersRequest, payload).update
        self.updates += asked
        failed = [each for each in asked if not self.apply(each)]
        if self.names_failed:
            return encode(m.UpdateContainersResponse(tuple(failed)))
        if not all(each.ignore_failure for each in failed):
            raise TtrpcError(UNKNOWN, "NRI update of some containers failed")
        return encode(m.UpdateContainersResponse())

    async def begin(self) -> None:
        answer = await self.call("Configure", m.ConfigureRequest("", "containerd", self.version))
        self.events = decode(m.ConfigureResponse, answer).events
        await self.call("Synchronize", m.SynchronizeRequest(self.pods, self.containers[:1], more=True))
        await self.call("Synchronize", m.SynchronizeRequest((), self.containers[1:]))
        self.synchronized.set()

    async def call(self, method: str, message: msgspec.Struct, timeout_s: float = 30.0) -> bytes:
        assert self.peer is not None
        return await self.peer.call(m.PLUGIN_SERVICE, method, encode(message), timeout_s)

    async def create(self, pod: m.PodSandbox, container: m.Container) -> m.ContainerAdjustment | None:
        answer = await self.call("CreateContainer", m.ContainerRequest(pod, container))
        return decode(m.CreateContainerResponse, answer).adjust

    async def update(
        self, pod: m.PodSandbox, container: m.Container, resources: m.LinuxResources
    ) -> tuple[m.ContainerUpdate, ...]:
        answer = await self.call("UpdateContainer", m.ContainerRequest(pod, container, resources))
        return decode(m.UpdateContainerResponse, answer).update


@contextlib.asynccontextmanager
async def fake_runtime(path: Path, version: str = "v2.1.9") -> AsyncIterator[FakeRuntime]:
    runtime = FakeRuntime(path, version)
    server = await asyncio.start_unix_server(runtime.connected, path)
    try:
        yield runtime
    finally:
        server.close()
        if runtime.peer is not None:
            runtime.peer.close()
