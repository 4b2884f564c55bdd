"""The kubelet's Pods API, gRPC on STATE/pods-api/pods-api.sock: the node's pods for other programs on this machine.

    /v1alpha1.Pods/ListPods · /v1alpha1.Pods/GetPod (by uid) · /v1alpha1.Pods/WatchPods

Gate PodsAPI, on by default since 1.37. A pod is the bytes of a v1.Pod, as the API server last sent it, with the status
that this node last computed. A watch begins with ADDED for each pod and INITIAL_SYNC_COMPLETE; then come ADDED with the
first status of a pod, MODIFIED with each other one, and DELETED (name, namespace and uid) when it has terminated here.
A watcher that does not read is ended when 100 events wait for it. The socket has mode 0600 in a directory of 0700: pods
of the embedded runtime never see it, and a hostPath to the state directory is refused.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec

from plimsoll.codec.protobuf.encode import to_protobuf
from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.codec.protobuf.wire import ProtobufError
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.metrics.exposition import Counter
from plimsoll.net.grpc.server import GrpcServer
from plimsoll.net.grpc.status import (
    CODE_NAMES,
    FAILED_PRECONDITION,
    INTERNAL,
    NOT_FOUND,
    OK,
    RESOURCE_EXHAUSTED,
    GrpcError,
)
from plimsoll.node.agent import Agent
from plimsoll.node.metrics import PodsApiMeters
from plimsoll.node.pod_source import shown_document
from plimsoll.node.pods.worker import PodWorker
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.pod_status import RunStatus

SERVICE: Final = "/v1alpha1.Pods"
VERSION: Final = "v1alpha1"
DIRECTORY, SOCKET = "pods-api", "pods-api.sock"
ADDED, MODIFIED, DELETED, INITIAL_SYNC_COMPLETE = 1, 2, 3, 4
WAITING_EVENTS = 100  # of a watcher
CALLS_PER_S, BURST = 100.0, 10.0  # of ListPods and GetPod together


class ListPodsResponse(msgspec.Struct, frozen=True):
    pods: Annotated[tuple[bytes, ...], 1] = ()


class GetPodRequest(msgspec.Struct, frozen=True):
    pod_uid: Annotated[str, 1] = ""


class GetPodResponse(msgspec.Struct, frozen=True):
    pod: Annotated[bytes, 1] = b""


class WatchPodsEvent(msgspec.Struct, frozen=True):
    type: Annotated[int, 1] = 0
    pod: Annotated[bytes, 2] = b""


class RateLimit:
    """A token bucket, full at the start."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._tokens, self._at_s = burst, clock()

    def allows(self) -> bool:
        now_s = self._clock()
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class _Watcher:
    def __init__(self) -> None:
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_EVENTS + 1)

    def put(self, event: bytes) -> bool:
        """False where too many wait already: the watch ends after them."""
        if self.events.qsize() < WAITING_EVENTS:
            self.events.put_nowait(event)
            return True
        self.events.put_nowait(None)
        return False


class PodsApi:
    def __init__(self, agent: Agent, meters: PodsApiMeters, limit: RateLimit | None = None) -> None:
        self._agent, self._meters = agent, meters
        self._limit = limit or RateLimit(CALLS_PER_S, BURST)
        self._watchers: set[_Watcher] = set()
        self._encoded: dict[str, tuple[bytes, RunStatus | None, bytes]] = {}  # uid → body and status it was made of
        self._last: dict[str, RunStatus | None] = {worker.uid: worker.status for worker in agent.pods}  # None: ended
        self.server = GrpcServer(
            {
                f"{SERVICE}/ListPods": partial(self._unary, self._list, meters.lists),
                f"{SERVICE}/GetPod": partial(self._unary, self._get, meters.gets),
            },
            {f"{SERVICE}/WatchPods": self._watch},
        )

    # --- what the agent reports ---

    def reported(self, uid: str, status: RunStatus | None) -> None:
        """A status was computed; None: the pod has terminated."""
        worker = self._agent.pods.workers.get(uid)
        is_new = uid not in self._last
        if worker is None or (not is_new and (self._last[uid] is None or self._last[uid] == status)):
            return
        self._last[uid] = status
        if status is None:
            self._forget_removed()
        if self._watchers:
            kind = DELETED if status is None else ADDED if is_new else MODIFIED
            self._send(encode(WatchPodsEvent(kind, self._shown(worker) if status is not None else _named(worker))))

    def _forget_removed(self) -> None:
        known = self._agent.pods.workers
        self._last = {uid: status for uid, status in self._last.items() if uid in known}
        self._encoded = {uid: entry for uid, entry in self._encoded.items() if uid in known}

    def _send(self, event: bytes) -> None:
        slow = [watcher for watcher in self._watchers if not watcher.put(event)]
        for watcher in slow:
            self._meters.dropped.add()
            self._watchers.discard(watcher)

    # --- methods ---

    async def _unary(self, method: Callable[[bytes], Awaitable[bytes]], counter: Counter, request: bytes) -> bytes:
        code = OK
        try:
            if not self._limit.allows():
                raise GrpcError(RESOURCE_EXHAUSTED, "rejected by rate limit")
            self._check_ready()
            return await method(request)
        except GrpcError as error:
            code = error.code
            raise
        finally:
            self._meters.count(counter, VERSION, CODE_NAMES[code])

    async def _list(self, _: bytes) -> bytes:
        return encode(ListPodsResponse(tuple([pod async for pod in self._all()])))

    async def _get(self, request: bytes) -> bytes:
        try:
            uid = decode(GetPodRequest, request).pod_uid
        except ProtobufError as error:
            raise GrpcError(INTERNAL, f"grpc: error unmarshalling request: {error}") from None
        worker = self._agent.pods.workers.get(uid)
        if worker is None:
            raise GrpcError(NOT_FOUND, f"pod with UID {uid} not found")
        return encode(GetPodResponse(self._shown(worker)))

    async def _watch(self, _: bytes) -> AsyncGenerator[bytes, None]:
        code = "Canceled"  # where the client ends it
        watcher = _Watcher()
        try:
            self._check_ready()
            self._watchers.add(watcher)
            async for pod in self._all():
                yield encode(WatchPodsEvent(ADDED, pod))
            yield encode(WatchPodsEvent(INITIAL_SYNC_COMPLETE))
            while (event := await watcher.events.get()) is not None:
                yield event
            raise GrpcError(RESOURCE_EXHAUSTED, "watch client channel closed")
        except GrpcError as error:
            code = CODE_NAMES[error.code]
            raise
        finally:
            self._watchers.discard(watcher)
            self._meters.count(self._meters.watches, VERSION, code)

    def _check_ready(self) -> None:
        if not self._agent.pods.all_known:
            raise GrpcError(FAILED_PRECONDITION, "Kubelet is initializing")

    async def _all(self) -> AsyncIterator[bytes]:
        """In the order of their uids; other work of the agent goes on between two pods."""
        for uid in sorted(self._agent.pods.workers):
            if (worker := self._agent.pods.workers.get(uid)) is not None:
                yield self._shown(worker)
                await asyncio.sleep(0)

    def _shown(self, worker: PodWorker) -> bytes:
        made = self._encoded.get(worker.uid)
        if made is None or made[0] is not worker.body or made[1] is not worker.status:
            document = shown_document(worker)
            if worker.status is None:
                document["status"] = unverified_status(document.get("status") or {})
            made = self._encoded[worker.uid] = worker.body, worker.status, to_protobuf("v1", "Pod", document)
        return made[2]


def _named(worker: PodWorker) -> bytes:
    meta = worker.pod.metadata
    return to_protobuf("v1", "Pod", {"metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}})


def unverified_status(status: JsonObject) -> JsonObject:
    """The API server's status of a pod that this agent has not looked at yet: never Ready."""
    conditions = [
        {
            **condition,
            "status": "False",
            "reason": "ContainersNotReady",
            "message": "Kubelet is initializing pod containers",
        }
        if condition.get("type") == "Ready" and condition.get("status") == "True"
        else condition
        for condition in status.get("conditions") or ()
    ]
    return {**status, "phase": status.get("phase") or "Pending", **({"conditions": conditions} if conditions else {})}


async def serve_pods(agent: Agent, state_dir: Path) -> None:
    """Until cancelled. Waits for the agent's pods only where a client calls, as a kubelet does."""
    meters = PodsApiMeters()
    agent.meters.registry.add(*meters.all())
    api = PodsApi(agent, meters)
    agent.reports.listeners.append(api.reported)
    # Through the directory's fd, because an address holds at most 107 bytes.
    directory = os.open(private_directory(state_dir / DIRECTORY), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        await api.server.listen(Path(f"/proc/self/fd/{directory}") / SOCKET)
        await asyncio.Event().wait()
    finally:
        agent.reports.listeners.remove(api.reported)
        await api.server.close()
        os.close(directory)
