"""One NRI plugin session with a container runtime, and its reconnection.

    connect → RegisterPlugin ─▶ Configure ─▶ Synchronize ─▶ CreateContainer, UpdateContainer, … until it closes

The runtime waits for every answer before it goes on, and an error would fail the container. So each request has
`ANSWER_S`; after that, or after any error here, the answer is empty: the container is created unchanged.
The socket must belong to root or to this user, and so must the process behind it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from plimsoll.aio import ExponentialBackoff
from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.codec.protobuf.wire import ProtobufError
from plimsoll.errors import PlimsollError
from plimsoll.net.ttrpc.framing import FramingError
from plimsoll.net.ttrpc.peer import UNIMPLEMENTED, TtrpcError, TtrpcPeer
from plimsoll.runtime.nri import messages as m

SOCKET = "/var/run/nri/nri.sock"
ANSWER_S = 0.2
CALL_S = 10.0
RETRY_FIRST_S, RETRY_MOST_S = 0.5, 15.0
MOST_ITEMS = 100_000  # pods and containers of one synchronization
_SUBSCRIBED = (
    m.CREATE_CONTAINER,
    m.POST_START_CONTAINER,
    m.UPDATE_CONTAINER,
    m.POST_UPDATE_CONTAINER,
    m.STOP_CONTAINER,
    m.REMOVE_CONTAINER,
    m.REMOVE_POD_SANDBOX,
)

log = logging.getLogger(__name__)
T = TypeVar("T", bound=msgspec.Struct)


class NriError(PlimsollError):
    """The NRI socket cannot be used; the text says why."""


class NriPlugin(Protocol):
    def configured(self, runtime: str, version: str) -> None: ...

    def synchronized(self, pods: Sequence[m.PodSandbox], containers: Sequence[m.Container]) -> None: ...

    async def created(self, pod: m.PodSandbox, container: m.Container) -> m.ContainerAdjustment | None:
        """The adjustment of a container that is being created."""

    async def updated(
        self, pod: m.PodSandbox, container: m.Container, resources: m.LinuxResources
    ) -> m.ContainerUpdate | None:
        """What is added to an update of a container."""

    def changed(self, event: int, pod: m.PodSandbox | None, container: m.Container | None) -> None:
        """A container has started, was updated, has stopped or was removed."""

    def answered(self, method: str, seconds: float, late: bool) -> None:
        """For metrics."""


class NriSession:
    def __init__(self, path: Path, name: str, index: str, plugin: NriPlugin, call_s: float = CALL_S) -> None:
        """`call_s`: for each answer of the runtime, and for its synchronization."""
        self._path, self._name, self._index, self._plugin, self._call_s = path, name, index, plugin, call_s
        self._peer: TtrpcPeer | None = None
        self._ready = asyncio.Event()
        self._pods: list[m.PodSandbox] = []
        self._containers: list[m.Container] = []
        self.problem = "not connected yet"

    @property
    def connected(self) -> bool:
        return self._ready.is_set()

    async def run(self, on_problem: Callable[[str], None]) -> None:
        """Stay connected: connect again with a growing pause, for example after a restart of the runtime."""
        backoff = ExponentialBackoff(RETRY_FIRST_S, RETRY_MOST_S)
        while True:
            try:
                await self.once(backoff.reset)
                problem = "the runtime has closed the connection"
            except OSError as error:
                problem = f"{self._path}: {error.strerror or error}"
            except (NriError, TtrpcError, FramingError) as error:
                problem = str(error)
            if problem != self.problem:
                on_problem(problem)
            self.problem = problem
            await asyncio.sleep(backoff.next_s())

    async def once(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """One session, until it ends."""
        reader, writer = await asyncio.open_unix_connection(_checked(self._path))
        _check_peer(writer, self._path)
        self._pods, self._containers = [], []
        peer = TtrpcPeer(reader, writer, self._handle, serves=m.PLUGIN_CONNECTION, calls=m.RUNTIME_CONNECTION)
        self._peer = peer
        running = asyncio.create_task(peer.run())
        try:
            request = m.RegisterPluginRequest(self._name, self._index)
            try:
                await peer.call(m.RUNTIME_SERVICE, "RegisterPlugin", encode(request), self._call_s)
            except TtrpcError:
                if peer.closed:
                    await running  # its error says why
                raise
            ready = asyncio.create_task(self._ready.wait())
            await asyncio.wait({running, ready}, timeout=self._call_s, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if self._ready.is_set():
                self.problem = ""
                on_ready()
            elif not running.done():
                raise NriError(f"{self._path}: the runtime did not synchronize within {self._call_s:g} s")
            await running
        finally:
            self._ready.clear()
            self._peer = None
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def ready(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            return False
        return True

    async def update(self, updates: Sequence[m.ContainerUpdate]) -> set[str]:
        """An unsolicited update; the ids of the containers that failed. Raises TtrpcError."""
        if self._peer is None:
            raise TtrpcError(UNIMPLEMENTED, "not connected to the runtime")
        request = m.UpdateContainersRequest(tuple(updates))
        answer = await self._peer.call(m.RUNTIME_SERVICE, "UpdateContainers", encode(request), self._call_s)
        try:
            return {each.container_id for each in decode(m.UpdateContainersResponse, answer).failed}
        except ProtobufError as error:
            raise TtrpcError(UNIMPLEMENTED, str(error)) from None

    # Requests of the runtime

    async def _handle(self, service: str, method: str, payload: bytes) -> bytes:
        if service != m.PLUGIN_SERVICE:
            raise TtrpcError(UNIMPLEMENTED, f"no service {service[:80]}")
        match method:
            case "Configure":
                request = decode(m.ConfigureRequest, payload)
                self._plugin.configured(request.runtime_name, request.runtime_version)
                return encode(m.ConfigureResponse(sum(1 << (event - 1) for event in _SUBSCRIBED)))
            case "Synchronize":
                return encode(self._synchronize(decode(m.SynchronizeRequest, payload)))
            case "CreateContainer":
                adjust = await self._within(method, payload, self._create)
                return encode(m.CreateContainerResponse(adjust))
            case "UpdateContainer":
                update = await self._within(method, payload, self._update)
                return encode(m.UpdateContainerResponse(() if update is None else (update,)))
            case "StateChange":
                change = decode(m.StateChangeEvent, payload)
                self._plugin.changed(change.event, change.pod, change.container)
                return b""
            case "Shutdown":
                return b""
        return self._event(method, payload)

    def _event(self, method: str, payload: bytes) -> bytes:
        """StopContainer, and in later releases of NRI a method for each event."""
        event = _EVENTS.get(method)
        if event is None:
            raise TtrpcError(UNIMPLEMENTED, f"no method {method[:80]}")
        request = decode(m.ContainerRequest, payload)
        self._plugin.changed(event, request.pod, request.container)
        return b""

    def _synchronize(self, request: m.SynchronizeRequest) -> m.SynchronizeResponse:
        self._pods += request.pods
        self._containers += request.containers
        if len(self._pods) + len(self._containers) > MOST_ITEMS:
            raise TtrpcError(UNIMPLEMENTED, f"more than {MOST_ITEMS} pods and containers")
        if not request.more:
            self._plugin.synchronized(self._pods, self._containers)
            self._pods, self._containers = [], []
            self._ready.set()
        return m.SynchronizeResponse(more=request.more)

    async def _within(
        self, method: str, payload: bytes, answer: Callable[[m.ContainerRequest], Awaitable[T | None]]
    ) -> T | None:
        """The answer within its time, or None: the container then stays as the runtime wants it."""
        began_s, late, result = time.perf_counter(), False, None
        try:
            async with asyncio.timeout(ANSWER_S):
                result = await answer(decode(m.ContainerRequest, payload))
        except TimeoutError:
            late = True
        except Exception:  # a defect here must not stop a container from starting
            log.exception("%s is answered with no change", method)
        self._plugin.answered(method, time.perf_counter() - began_s, late)
        return result

    async def _create(self, request: m.ContainerRequest) -> m.ContainerAdjustment | None:
        if request.pod is None or request.container is None:
            return None
        return await self._plugin.created(request.pod, request.container)

    async def _update(self, request: m.ContainerRequest) -> m.ContainerUpdate | None:
        if request.pod is None or request.container is None:
            return None
        resources = request.linux_resources or m.LinuxResources()
        return await self._plugin.updated(request.pod, request.container, resources)


_EVENTS = {
    "StopContainer": m.STOP_CONTAINER,
    "RemoveContainer": m.REMOVE_CONTAINER,
    "PostStartContainer": m.POST_START_CONTAINER,
    "PostUpdateContainer": m.POST_UPDATE_CONTAINER,
    "RunPodSandbox": m.RUN_POD_SANDBOX,
    "StopPodSandbox": m.STOP_POD_SANDBOX,
    "RemovePodSandbox": m.REMOVE_POD_SANDBOX,
}


def _checked(path: Path) -> str:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        why = "containerd 2 has NRI on by default; containerd 1.7 and CRI-O need it in their configuration"
        raise NriError(f"{path} does not exist: {why}") from None
    if not stat.S_ISSOCK(status.st_mode):
        raise NriError(f"{path} is not a socket")
    if status.st_uid not in (0, os.geteuid()):
        raise NriError(f"{path} belongs to uid {status.st_uid}: only a runtime of root is trusted")
    return str(path)


def _check_peer(writer: asyncio.StreamWriter, path: Path) -> None:
    raw = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    if uid not in (0, os.geteuid()):
        writer.close()
        raise NriError(f"{path}: the process behind it has uid {uid}: only a runtime of root is trusted")
