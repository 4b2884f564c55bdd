"""Snapshots and changes, with a fake runtime that sends events or does not."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.net.grpc.status import GrpcError
from plimsoll.runtime.cri import events as changes_module
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import RuntimeCallError
from tests.unit.net.grpc.grpc_server import Server

SOON_S = 20.0


class Table:
    """A runtime's memory: one sandbox `s` of pod `u`, and containers by id with their state."""

    def __init__(self, server: Server) -> None:
        self.containers: dict[str, m.ContainerStatus] = {}
        self.pids: dict[str, int] = {}
        self.handlers: tuple[m.RuntimeHandler, ...] = ()
        self.release = "1"
        self.events: asyncio.Queue[m.ContainerEventResponse] | None = None
        self.server = server
        server.handlers.update(
            Version=self.version,
            Status=self.status,
            ListPodSandbox=self.list_sandboxes,
            PodSandboxStatus=self.sandbox_status,
            ListContainers=self.list_containers,
            ContainerStatus=self.container_status,
            GetContainerEvents=self.get_events,
        )

    def put(self, each: str, state: int, pid: int = 0, **more: object) -> None:
        self.containers[each] = m.ContainerStatus(id=each, state=state, **more)  # type: ignore[arg-type]
        self.pids[each] = pid

    async def version(self, server: Server, request: bytes) -> bytes:
        return encode(m.VersionResponse(runtime_name="table", runtime_version=self.release))

    async def status(self, server: Server, request: bytes) -> bytes:
        return encode(m.StatusResponse(runtime_handlers=self.handlers))

    async def list_sandboxes(self, server: Server, request: bytes) -> bytes:
        metadata = m.PodSandboxMetadata(name="web", uid="u", namespace="n")
        return encode(m.ListPodSandboxResponse(items=(encode(m.PodSandbox(id="s", metadata=metadata)),)))

    async def sandbox_status(self, server: Server, request: bytes) -> bytes:
        info = {"info": json.dumps({"pid": os.getpid(), "config": {"linux": {"cgroup_parent": "/x"}}})}
        network = m.PodSandboxNetworkStatus(ip="10.0.0.9")
        return encode(m.PodSandboxStatusResponse(status=m.PodSandboxStatus(id="s", network=network), info=info))

    async def list_containers(self, server: Server, request: bytes) -> bytes:
        listed = [
            m.Container(id=each, state=status.state, pod_sandbox_id="s", labels={"io.kubernetes.pod.uid": "u"})
            for each, status in self.containers.items()
        ]
        return encode(m.ListContainersResponse(containers=tuple(map(encode, listed))))

    async def container_status(self, server: Server, request: bytes) -> bytes:
        each = decode(m.ContainerRequest, request).container_id
        if each not in self.containers:
            raise GrpcError(5, "not found")
        info = {"info": json.dumps({"pid": self.pids[each]})}
        return encode(m.ContainerStatusResponse(status=self.containers[each], info=info))

    async def get_events(self, server: Server, request: bytes) -> AsyncIterator[bytes]:
        if self.events is None:
            raise GrpcError(12, "method GetContainerEvents not implemented")
        return self._sent(self.events)

    async def _sent(self, events: asyncio.Queue[m.ContainerEventResponse]) -> AsyncIterator[bytes]:
        while True:
            yield encode(await events.get())


@pytest.fixture
def at() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-cri-") as directory:
        yield Path(directory) / "s"


@pytest.fixture
async def table(at: Path) -> AsyncIterator[Table]:
    async with Server(at) as server:
        yield Table(server)


@pytest.fixture
async def runtime(table: Table) -> AsyncIterator[CriRuntime]:
    opened = CriRuntime(table.server.socket_path, patience_s=0.05)
    await opened.open()
    yield opened
    await opened.close()


async def test_handlers_of_a_runtime_that_was_restarted(table: Table, runtime: CriRuntime) -> None:
    assert runtime.features.handlers == ()
    table.handlers = (m.RuntimeHandler(name="runc"), m.RuntimeHandler(name="kata"))
    await runtime.health()
    assert runtime.features.handlers == ("runc", "kata")


async def test_version_of_a_runtime_that_was_upgraded(table: Table, runtime: CriRuntime) -> None:
    await runtime.health()
    assert (runtime.version, table.server.calls.count("Version")) == ("1", 1), "it is asked once for each connection"
    await table.server.stop()
    table.release = "2"
    await table.server.start()
    await runtime.health()
    assert runtime.version == "2"


async def woken(changes: AsyncIterator[str]) -> str:
    return await asyncio.wait_for(anext(changes), SOON_S)


async def test_a_status_is_asked_once_per_state(table: Table, runtime: CriRuntime) -> None:
    table.put("c", m.RUNNING, os.getpid(), started_at=2 * 10**9)
    seen = await runtime.seen()
    (container,), (sandbox,) = seen.containers, seen.sandboxes
    assert (container.phase, container.pid, container.started_s, container.pod_uid) == (
        "running",
        os.getpid(),
        2.0,
        "u",
    )
    assert (sandbox.ip, sandbox.cgroup_parent, sandbox.ready) == ("10.0.0.9", "/x", True)
    for _ in range(3):
        assert await runtime.seen() == seen
    assert (table.server.calls.count("ContainerStatus"), table.server.calls.count("PodSandboxStatus")) == (1, 1)
    table.put("c", m.EXITED, exit_code=1, reason="Error")
    assert [(each.phase, each.exit_code, each.reason) for each in (await runtime.seen()).containers] == [
        ("exited", 1, "")
    ]
    await runtime.seen()
    assert table.server.calls.count("ContainerStatus") == 2
    del table.containers["c"]
    assert (await runtime.seen()).containers == ()


async def test_the_status_of_a_kill_is_read_until_it_has_a_reason(table: Table, runtime: CriRuntime) -> None:
    table.put("c", m.EXITED, exit_code=137, reason="Error")
    assert (await runtime.seen()).containers[0].reason == ""
    table.put("c", m.EXITED, exit_code=137, reason="OOMKilled")
    assert (await runtime.seen()).containers[0].reason == "OOMKilled"


async def test_concurrent_callers_share_a_new_snapshot(table: Table, runtime: CriRuntime) -> None:
    table.put("c", m.CREATED)
    before = table.server.calls.count("ListContainers")
    first = asyncio.create_task(runtime.seen())
    await asyncio.sleep(0)
    others = [asyncio.create_task(runtime.seen()) for _ in range(20)]
    others[0].cancel()  # the one that would have read for all of them
    await asyncio.gather(first, *others, return_exceptions=True)
    assert [task.result().containers[0].id for task in others[1:]] == ["c"] * 19
    assert table.server.calls.count("ListContainers") - before <= 3


async def test_without_a_runtime_all_pods_are_named(table: Table, runtime: CriRuntime) -> None:
    await table.server.stop()
    answers = await asyncio.gather(*(runtime.seen() for _ in range(3)), return_exceptions=True)
    assert [type(each).__mro__[1] for each in answers] == [RuntimeCallError] * 3


async def test_polling_finds_what_has_changed(
    table: Table, runtime: CriRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "BUSY_S", 0.02)
    async with aclosing(runtime.changes()) as changes:  # type: ignore[type-var]
        assert await woken(changes) == ""
        table.put("c", m.CREATED)
        assert await woken(changes) == "u"
        await table.server.stop()
        waiting = asyncio.create_task(woken(changes))
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.2)
        assert not waiting.done()
        await table.server.start()
        assert await waiting == ""  # whatever happened meanwhile
        assert len((await runtime.seen()).containers) == 1


async def test_an_ended_process_is_asked_about_until_the_runtime_knows(table: Table, runtime: CriRuntime) -> None:
    asked = asyncio.Queue[None]()

    async def count(server: Server, request: bytes) -> bytes:
        asked.put_nowait(None)
        return await table.list_containers(server, request)

    process = await asyncio.create_subprocess_exec("sleep", "1000")
    table.put("c", m.RUNNING, process.pid)
    async with aclosing(runtime.changes()) as changes:  # type: ignore[type-var]
        assert await woken(changes) == ""
        table.server.handlers["ListContainers"] = count
        process.kill()
        waiting = asyncio.create_task(woken(changes))
        for _ in range(3):  # the runtime does not know yet
            await asyncio.wait_for(asked.get(), SOON_S)
        assert not waiting.done()
        table.put("c", m.EXITED, exit_code=137)
        assert await waiting == "u"
    await process.wait()


async def test_events_name_their_pods(table: Table, runtime: CriRuntime) -> None:
    table.events = asyncio.Queue()
    async with aclosing(runtime.changes()) as changes:  # type: ignore[type-var]
        assert await woken(changes) == ""
        for uid in ("a", "b"):
            sandbox = m.PodSandboxStatus(metadata=m.PodSandboxMetadata(uid=uid))
            table.events.put_nowait(m.ContainerEventResponse(container_id="c", pod_sandbox_status=sandbox))
            assert await woken(changes) == uid
        await table.server.stop()
        await table.server.start()
        found = ""
        while found != "c":  # the stream is taken up again; pods may be named all at once before
            sandbox = m.PodSandboxStatus(metadata=m.PodSandboxMetadata(uid="c"))
            table.events.put_nowait(m.ContainerEventResponse(pod_sandbox_status=sandbox))
            found = await woken(changes)
            assert found in ("", "c")


async def test_a_closed_runtime_has_no_more_changes(table: Table, runtime: CriRuntime) -> None:
    changes = runtime.changes()
    assert await woken(changes) == ""
    await runtime.close()
    assert [each async for each in changes] == []
