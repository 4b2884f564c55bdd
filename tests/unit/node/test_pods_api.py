"""The Pods API of a whole agent, asked by gRPC on its socket."""

from __future__ import annotations

import asyncio
import contextlib
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.codec.protobuf.kube import MAGIC, from_protobuf
from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.codec.protobuf.wire import bytes_field
from plimsoll.net.grpc.client import GrpcClient
from plimsoll.net.grpc.status import FAILED_PRECONDITION, NOT_FOUND, UNIMPLEMENTED, GrpcError
from plimsoll.node.pods_api import (
    ADDED,
    DELETED,
    INITIAL_SYNC_COMPLETE,
    MODIFIED,
    RESOURCE_EXHAUSTED,
    SERVICE,
    GetPodRequest,
    GetPodResponse,
    ListPodsResponse,
    RateLimit,
    WatchPodsEvent,
    serve_pods,
    unverified_status,
)
from plimsoll.rules.model.pod_status import RunStatus
from tests.unit.node.test_agent import WAIT_S, World, pod, shell

Document = dict[str, Any]
MOST_EVENTS = 2_000  # 20 MB: more than sockets and windows hold
RUNS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


def document(pod: bytes) -> Document:
    names = bytes_field(1, b"v1") + bytes_field(2, b"Pod")
    return from_protobuf(MAGIC + bytes_field(1, names) + bytes_field(2, pod))


class Served:
    def __init__(self, world: World, agent: Any, client: GrpcClient) -> None:
        self.world, self.agent, self.client = world, agent, client

    async def pods(self) -> list[Document]:
        answer = await self.client.unary(f"{SERVICE}/ListPods", b"", WAIT_S)
        return [document(each) for each in decode(ListPodsResponse, answer).pods]

    async def pod(self, uid: str) -> Document:
        answer = await self.client.unary(f"{SERVICE}/GetPod", encode(GetPodRequest(uid)), WAIT_S)
        return document(decode(GetPodResponse, answer).pod)

    async def watched(self) -> AsyncIterator[tuple[int, Document]]:
        async for answer in self.client.stream(f"{SERVICE}/WatchPods", b""):
            event = decode(WatchPodsEvent, answer)
            yield event.type, document(event.pod) if event.pod else {}

    def metrics(self) -> list[str]:
        return [line for line in self.agent.meters.page().splitlines() if line.startswith("kubelet_pod_")]


@contextlib.asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    world = World(directory, pod(shell("c", RUNS)))
    async with world.running() as agent:
        serving = asyncio.create_task(serve_pods(agent, directory))
        socket = directory / "pods-api/pods-api.sock"
        async with asyncio.timeout(WAIT_S):
            while not socket.exists() and not serving.done():  # noqa: ASYNC110 (another task creates it)
                await asyncio.sleep(0.01)
        client = GrpcClient(str(socket))
        try:
            yield Served(world, agent, client)
        finally:
            client.close()
            serving.cancel()
            await asyncio.wait([serving])
            assert not socket.exists()


async def test_pods_are_listed_read_and_watched_from_start_to_end(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.world.until(lambda status: status.get("phase") == "Running")
        (listed,) = await api.pods()
        assert (listed["metadata"]["uid"], listed["spec"]["containers"][0]["name"]) == ("u-1", "c")
        assert listed["status"]["phase"] == "Running"
        assert listed["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        assert await api.pod("u-1") == listed
        events = api.watched()
        assert [await anext(events), await anext(events)] == [(ADDED, listed), (INITIAL_SYNC_COMPLETE, {})]
        api.world.api.delete(30, time.time())
        seen = []
        async with asyncio.timeout(WAIT_S):
            async for kind, shown in events:
                seen.append((kind, shown))
                if kind == DELETED:
                    break
        assert {kind for kind, _ in seen[:-1]} <= {MODIFIED}
        assert seen[-1] == (
            DELETED,
            {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web", "namespace": "default", "uid": "u-1"}},
        )
        mode = stat.S_IMODE((tmp_path / "pods-api/pods-api.sock").stat().st_mode)
        assert (mode, stat.S_IMODE((tmp_path / "pods-api").stat().st_mode)) == (0o600, 0o700)
        metrics = api.metrics()
        assert 'kubelet_pod_requests_list_total{server_api_version="v1alpha1",status_code="OK"} 1' in metrics
        assert 'kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="OK"} 1' in metrics


async def refused(call: Any) -> tuple[int, str]:
    with pytest.raises(GrpcError) as caught:
        await call
    return caught.value.code, caught.value.message


async def test_refusals_are_the_kubelets(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.world.until(lambda status: status.get("phase") == "Running")
        assert await refused(api.pod("u-2")) == (NOT_FOUND, "pod with UID u-2 not found")
        assert (await refused(api.client.unary(f"{SERVICE}/DeletePod", b"", WAIT_S)))[0] == UNIMPLEMENTED
        api.agent.pods.all_known = False
        assert await refused(api.pods()) == (FAILED_PRECONDITION, "Kubelet is initializing")
        assert await refused(anext(api.watched())) == (FAILED_PRECONDITION, "Kubelet is initializing")
        api.agent.pods.all_known = True
        codes = await asyncio.gather(*(code_of(api.pods()) for _ in range(60)))
        assert RESOURCE_EXHAUSTED in codes
        assert api.metrics().count(
            'kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="NotFound"} 1'
        )


async def code_of(call: Any) -> int:
    try:
        await call
    except GrpcError as error:
        return error.code
    return 0


async def test_a_watcher_that_does_not_read_is_ended(tmp_path: Path) -> None:
    """Its events are not kept in memory without end, and others get theirs."""
    async with served(tmp_path) as api:
        await api.world.until(lambda status: status.get("phase") == "Running")
        idle = Served(api.world, api.agent, GrpcClient(api.client.socket_path))
        slow, quick = idle.watched(), api.watched()
        for events in (slow, quick):
            assert [(await anext(events))[0], (await anext(events))[0]] == [ADDED, INITIAL_SYNC_COMPLETE]
        assert idle.client._connection is not None and idle.client._connection._transport is not None
        transport = idle.client._connection._transport
        transport.pause_reading()
        (server,) = (listener.__self__ for listener in api.agent.reports.listeners)
        worker = api.agent.pods.workers["u-1"]
        for number in range(MOST_EVENTS):
            worker.status = RunStatus(phase=str(number), message="x" * 10_000)
            server.reported("u-1", worker.status)
            kind, shown = await anext(quick)
            assert (kind, shown["status"]["phase"]) == (MODIFIED, str(number))
            if len(server._watchers) == 1:
                break
        assert number < MOST_EVENTS - 1
        transport.resume_reading()
        with pytest.raises(GrpcError) as caught:
            async for _ in slow:
                pass
        assert (caught.value.code, caught.value.message) == (RESOURCE_EXHAUSTED, "watch client channel closed")
        assert "kubelet_pod_watch_events_dropped_total 1" in api.metrics()
        idle.client.close()


def test_the_status_of_a_pod_that_was_not_observed_yet_is_not_ready() -> None:
    ready, other = {"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}
    message = "Kubelet is initializing pod containers"
    assert unverified_status({}) == {"phase": "Pending"}
    assert unverified_status({"phase": "Running", "conditions": [ready, other]}) == {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": message},
            other,
        ],
    }


def test_rate_limit() -> None:
    now = [0.0]
    limit = RateLimit(10, 3, lambda: now[0])
    assert [limit.allows() for _ in range(4)] == [True, True, True, False]
    now[0] = 0.1  # one token
    assert [limit.allows(), limit.allows()] == [True, False]
    now[0] = 99.0
    assert [limit.allows() for _ in range(4)] == [True, True, True, False]
