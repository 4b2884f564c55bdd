"""A plugin session against the runtime's side: requests and answers, time-outs, defects, reconnection, impostors."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from plimsoll.net.ttrpc.framing import FramingError
from plimsoll.net.ttrpc.peer import TtrpcError
from plimsoll.runtime.nri import messages as m
from plimsoll.runtime.nri import plugin as sessions
from plimsoll.runtime.nri.plugin import NriError, NriSession
from tests.unit.runtime.nri.fake_runtime import FakeRuntime, fake_runtime

POD = m.PodSandbox("s", "web", "uid", "default")
CONTAINER = m.Container("c", "s", "main")
ADJUSTED = m.ContainerAdjustment(m.LinuxContainerAdjustment(m.LinuxResources(unified={"memory.high": "8192"})))


class Recorder:
    def __init__(self) -> None:
        self.seen: list[object] = []
        self.wait = asyncio.Event()
        self.wait.set()
        self.broken = False

    def configured(self, runtime: str, version: str) -> None:
        self.seen.append((runtime, version))

    def synchronized(self, pods: Sequence[m.PodSandbox], containers: Sequence[m.Container]) -> None:
        self.seen.append(([pod.uid for pod in pods], [each.id for each in containers]))

    async def created(self, pod: m.PodSandbox, container: m.Container) -> m.ContainerAdjustment | None:
        await self.wait.wait()
        if self.broken:
            raise ZeroDivisionError
        return ADJUSTED

    async def updated(
        self, pod: m.PodSandbox, container: m.Container, resources: m.LinuxResources
    ) -> m.ContainerUpdate:
        return m.unified_update(container.id, {**resources.unified, "memory.low": "4096"})

    def changed(self, event: int, pod: m.PodSandbox | None, container: m.Container | None) -> None:
        self.seen.append((event, container.id if container else None))

    def answered(self, method: str, seconds: float, late: bool) -> None:
        self.seen.append((method, late))


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nri-") as directory:  # a socket's path must be short
        yield Path(directory, "s")


def written(path: Path) -> None:
    path.write_text("")


def removed(path: Path) -> None:
    path.unlink(missing_ok=True)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_session(path: Path) -> None:
    plugin = Recorder()
    session = NriSession(path, "plimsoll", "95", plugin)
    async with fake_runtime(path) as runtime:
        runtime.pods, runtime.containers = (POD,), (CONTAINER, m.Container("d", "s", "side"))
        running = asyncio.create_task(session.once())
        assert await session.ready(30)
        assert runtime.plugins == [("plimsoll", "95")]
        assert plugin.seen == [("containerd", "v2.1.9"), (["uid"], ["c", "d"])]
        # CreateContainer 4, PostStart 7, Update 8, PostUpdate 9, Stop 10, Remove 11, RemovePodSandbox 3: bit n − 1
        assert runtime.events == 0b111_1100_1100
        assert await runtime.create(POD, CONTAINER) == ADJUSTED
        (update,) = await runtime.update(POD, CONTAINER, m.LinuxResources(unified={"memory.high": "max"}))
        assert update.linux is not None and update.linux.resources is not None and update.ignore_failure
        assert update.linux.resources.unified == {"memory.high": "max", "memory.low": "4096"}
        await runtime.call("StateChange", m.StateChangeEvent(m.POST_START_CONTAINER, POD, CONTAINER))
        await runtime.call("StopContainer", m.ContainerRequest(POD, CONTAINER))
        await runtime.call("RemoveContainer", m.ContainerRequest(POD, CONTAINER))  # of later releases
        assert plugin.seen[-3:] == [(7, "c"), (10, "c"), (11, "c")]
        runtime.apply = lambda update: update.container_id != "gone"
        updates = [m.unified_update(each, {"memory.high": "max"}) for each in ("c", "gone")]
        assert await session.update(updates) == set()
        assert [each.container_id for each in runtime.updates] == ["c", "gone"]
        with pytest.raises(TtrpcError, match="some containers failed"):
            await session.update([m.unified_update("gone", {"memory.high": "max"}, may_fail=False)])
        runtime.names_failed = True
        assert await session.update(updates) == {"gone"}
        await ended(running)
        with pytest.raises(TtrpcError, match="not connected"):
            await session.update(updates)


async def test_a_late_answer_and_a_defect_leave_the_container_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "ANSWER_S", 0.05)
    plugin = Recorder()
    session = NriSession(path, "plimsoll", "95", plugin)
    async with fake_runtime(path) as runtime:
        running = asyncio.create_task(session.once())
        assert await session.ready(30)
        plugin.wait.clear()
        assert await runtime.create(POD, CONTAINER) is None
        assert plugin.seen[-1] == ("CreateContainer", True)
        plugin.wait.set()
        plugin.broken = True
        assert await runtime.create(POD, CONTAINER) is None
        plugin.broken = False
        assert await runtime.create(POD, CONTAINER) == ADJUSTED
        await ended(running)


async def test_the_session_comes_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "RETRY_FIRST_S", 0.01)
    problems: asyncio.Queue[str] = asyncio.Queue()
    session = NriSession(path, "plimsoll", "95", Recorder())
    running = asyncio.create_task(session.run(problems.put_nowait))
    async with asyncio.timeout(60):
        assert "does not exist" in await problems.get()
        for _ in range(2):
            async with fake_runtime(path):
                assert await session.ready(30)
            assert await problems.get() == "the runtime has closed the connection"
            removed(path)
            await problems.get()
    await ended(running)


async def test_what_is_not_a_runtime_is_refused(path: Path) -> None:
    session = NriSession(path, "plimsoll", "95", Recorder())
    with pytest.raises(NriError, match="does not exist: containerd 2 has NRI on by default"):
        await session.once()
    written(path)
    with pytest.raises(NriError, match="is not a socket"):
        await session.once()
    removed(path)
    if os.geteuid() == 0:
        async with fake_runtime(path):
            os.chown(path, 1234, 1234)
            with pytest.raises(NriError, match="belongs to uid 1234: only a runtime of root is trusted"):
                async with asyncio.timeout(60):
                    await session.once()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", FramingError),
        (bytes.fromhex("00000001 ffffffff"), FramingError),
        (bytes.fromhex("00000001 0000000c 00000002 00000001 01 00 ffff"), None),  # a request that is not protobuf
        (bytes.fromhex("00000063 00000001 00"), None),  # a connection that does not exist
        (bytes.fromhex("00000001 0000000a 00000000 00000001 03 00"), FramingError),  # stream data
    ],
    ids=["http", "4 GiB", "no protobuf", "no connection", "stream"],
)
async def test_a_fake_runtime(path: Path, data: bytes, error: type[Exception] | None) -> None:
    plugin = Recorder()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        await reader.read(100)
        writer.close()

    server = await asyncio.start_unix_server(talk, path)
    try:
        with pytest.raises(error or TtrpcError):
            async with asyncio.timeout(60):
                await NriSession(path, "plimsoll", "95", plugin).once()
    finally:
        server.close()
    assert plugin.seen == []


async def test_a_flood_of_requests_is_cut_off(path: Path) -> None:
    class Flood(FakeRuntime):
        async def begin(self) -> None:
            await super().begin()
            await asyncio.gather(*(self.create(POD, CONTAINER) for _ in range(300)), return_exceptions=True)

    plugin = Recorder()
    plugin.wait.clear()
    runtime = Flood(path)
    server = await asyncio.start_unix_server(runtime.connected, path)
    try:
        with pytest.raises(FramingError, match="more than 256 requests at once"):
            async with asyncio.timeout(60):
                await NriSession(path, "plimsoll", "95", plugin).once()
    finally:
        server.close()
