"""Every CRI call that we make, with its answer, its deadline and whether it may be repeated.

A runtime that restarts is unavailable for a second or two. A call that could not be sent waits for it; a call whose
connection broke is repeated only if that is safe. Everything else is raised as `CallRefusedError`, a RuntimeCallError
with gRPC's code.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

import msgspec

from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.codec.protobuf.wire import ProtobufError
from plimsoll.net.grpc.client import GrpcClient, Headers
from plimsoll.net.grpc.status import INTERNAL, UNAVAILABLE, GrpcError, GrpcUnavailableError
from plimsoll.runtime.cri import exec_messages as em
from plimsoll.runtime.cri import image_messages as im
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.keepalive import Keepalive
from plimsoll.runtime.interface import RuntimeCallError

A = TypeVar("A", bound=msgspec.Struct)

PATIENCE_S = 10.0  # how long a call waits for a runtime that does not listen
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0


class CallRefusedError(RuntimeCallError):
    def __init__(self, call: str, error: GrpcError) -> None:
        super().__init__(call, str(error))
        self.code, self._message = error.code, error.message

    @property
    def description(self) -> str:
        return self._message


class CriCall(Generic[A]):
    def __init__(
        self,
        rpc: str,
        answer: type[A],
        deadline_s: float,
        *,
        repeats: bool = False,
        finishes: bool = False,
        headers: Headers = (),
    ) -> None:
        """`rpc`: of CRI, or a whole path. `finishes`: not cancelled with its caller. A runtime that cancels a creation
        takes seconds to undo it, and reports an exit."""
        self.name = rpc.rpartition("/")[2]
        self.path = rpc if rpc.startswith("/") else f"/runtime.v1.{rpc}"
        self.headers = headers
        self.answer, self.deadline_s, self.repeats, self.finishes = answer, deadline_s, repeats, finishes


VERSION = CriCall("RuntimeService/Version", m.VersionResponse, 5, repeats=True)
STATUS = CriCall("RuntimeService/Status", m.StatusResponse, 10, repeats=True)
RUNTIME_CONFIG = CriCall("RuntimeService/RuntimeConfig", m.RuntimeConfigResponse, 5, repeats=True)
GET_CONTAINER_EVENTS = CriCall("RuntimeService/GetContainerEvents", m.ContainerEventResponse, 0)
LIST_SANDBOXES = CriCall("RuntimeService/ListPodSandbox", m.ListPodSandboxResponse, 30, repeats=True)
SANDBOX_STATUS = CriCall("RuntimeService/PodSandboxStatus", m.PodSandboxStatusResponse, 30, repeats=True)
RUN_SANDBOX = CriCall(
    "RuntimeService/RunPodSandbox", m.RunPodSandboxResponse, 240, finishes=True
)  # twice the kubelet's
STOP_SANDBOX = CriCall("RuntimeService/StopPodSandbox", m.Empty, 120, repeats=True)
UPDATE_SANDBOX = CriCall("RuntimeService/UpdatePodSandboxResources", m.Empty, 60, repeats=True)
REMOVE_SANDBOX = CriCall("RuntimeService/RemovePodSandbox", m.Empty, 120, repeats=True)
LIST_CONTAINERS = CriCall("RuntimeService/ListContainers", m.ListContainersResponse, 30, repeats=True)
CONTAINER_STATUS = CriCall("RuntimeService/ContainerStatus", m.ContainerStatusResponse, 30, repeats=True)
CREATE_CONTAINER = CriCall("RuntimeService/CreateContainer", m.CreateContainerResponse, 120, finishes=True)
START_CONTAINER = CriCall("RuntimeService/StartContainer", m.Empty, 120, finishes=True)
STOP_CONTAINER = CriCall("RuntimeService/StopContainer", m.Empty, 120, repeats=True)  # in addition to the grace period
REMOVE_CONTAINER = CriCall("RuntimeService/RemoveContainer", m.Empty, 120, repeats=True)
UPDATE_RESOURCES = CriCall("RuntimeService/UpdateContainerResources", m.Empty, 60, repeats=True)
LIST_CONTAINER_STATS = CriCall("RuntimeService/ListContainerStats", im.ListContainerStatsResponse, 30)
REOPEN_LOG = CriCall("RuntimeService/ReopenContainerLog", m.Empty, 30, repeats=True)
EXEC_SYNC = CriCall("RuntimeService/ExecSync", em.ExecSyncResponse, 10)  # in addition to the command's own timeout
EXEC = CriCall("RuntimeService/Exec", em.StreamingResponse, 30)
ATTACH = CriCall("RuntimeService/Attach", em.StreamingResponse, 30)
IMAGE_STATUS = CriCall("ImageService/ImageStatus", im.ImageStatusResponse, 30, repeats=True)
LIST_IMAGES = CriCall("ImageService/ListImages", im.ListImagesResponse, 30, repeats=True)
PULL_IMAGE = CriCall("ImageService/PullImage", im.PullImageResponse, 600, repeats=True)
REMOVE_IMAGE = CriCall("ImageService/RemoveImage", m.Empty, 120, repeats=True)
IMAGE_FS_INFO = CriCall("ImageService/ImageFsInfo", im.ImageFsInfoResponse, 30, repeats=True)


class CriClient:
    def __init__(self, socket_path: str, patience_s: float = PATIENCE_S, *, outlives_us: bool = False) -> None:
        self._grpc = GrpcClient(socket_path, kept_alive=Keepalive if outlives_us else None)
        self._patience_s = patience_s
        self._asking: set[asyncio.Task[bytes]] = set()

    @property
    def connections(self) -> int:
        """How many were made so far; after a new one the runtime may be another."""
        return self._grpc.connections

    async def ask(self, call: CriCall[A], request: msgspec.Struct, *, extra_s: float = 0.0) -> A:
        """The answer, within the call's deadline and `extra_s`; CallRefusedError otherwise."""
        data, deadline_s = encode(request), call.deadline_s + extra_s
        clock = asyncio.get_running_loop().time
        give_up, pause_s = clock() + min(self._patience_s, deadline_s), FIRST_PAUSE_S
        while True:
            try:
                return decode(call.answer, await self._answer(call, data, deadline_s))
            except ProtobufError as error:
                raise CallRefusedError(call.name, GrpcError(INTERNAL, f"malformed answer: {error}")) from error
            except GrpcError as error:
                again = _nothing_done(error) or (call.repeats and error.code == UNAVAILABLE)
                if not again or clock() + pause_s > give_up:
                    raise CallRefusedError(call.name, error) from error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _answer(self, call: CriCall[A], data: bytes, deadline_s: float) -> bytes:
        if not call.finishes:
            return await self._grpc.unary(call.path, data, deadline_s, call.headers)
        asking = asyncio.create_task(self._grpc.unary(call.path, data, deadline_s, call.headers), name=call.name)
        self._asking.add(asking)
        asking.add_done_callback(self._asked)
        return await asyncio.shield(asking)

    def _asked(self, asking: asyncio.Task[bytes]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # there may be no waiter

    async def follow(self, call: CriCall[A], request: msgspec.Struct) -> AsyncIterator[A]:
        """The answers of a stream as they come; CallRefusedError if it breaks."""
        try:
            async for data in self._grpc.stream(call.path, encode(request)):
                yield decode(call.answer, data)
        except ProtobufError as error:
            raise CallRefusedError(call.name, GrpcError(INTERNAL, f"malformed answer: {error}")) from error
        except GrpcError as error:
            raise CallRefusedError(call.name, error) from error

    def close(self) -> None:
        self._grpc.close()


def _nothing_done(error: GrpcError) -> bool:
    """The call was not sent, or containerd does not serve CRI yet."""
    return isinstance(error, GrpcUnavailableError) or "server is not initialized yet" in error.message
