"""A runtime that fails: every call, refused before, lost after it was done, or slow, between us and containerd.

A caller that retries succeeds, and in the end there is exactly one sandbox with exactly one container in it that was
started once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import pytest

from plimsoll.net.grpc.status import GrpcError
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import RuntimeCallError
from tests.kernel.containerd import Containerd, cgroup_parent
from tests.kernel.containerd_checks import Bench
from tests.kernel.test_host_containerd import daemon  # noqa: F401
from tests.unit.net.grpc.grpc_server import Handler, HangUpError, Server

CALLS = [
    "Version", "Status", "RuntimeConfig", "ListPodSandbox", "PodSandboxStatus", "RunPodSandbox", "StopPodSandbox",
    "RemovePodSandbox", "ListContainers", "ContainerStatus", "CreateContainer", "StartContainer", "StopContainer",
    "RemoveContainer", "UpdateContainerResources", "UpdatePodSandboxResources", "ListContainerStats",
    "ReopenContainerLog", "ExecSync", "Exec", "Attach", "ImageStatus", "ImageFsInfo",
]  # fmt: skip
Fault = Literal["refused", "unavailable", "lost-before", "lost-after", "slow"]
FAULTS: list[Fault] = ["refused", "unavailable", "lost-before", "lost-after", "slow"]
TRIES = 50  # one step of ours is several calls, each of which fails at first
T = TypeVar("T")


def faulty(path: str, fault: Fault) -> Handler:
    """The first two calls meet the fault, the others pass."""
    met = 0

    async def handle(server: Server, request: bytes) -> bytes:
        nonlocal met
        met += 1
        if met <= 2:
            if fault == "refused":
                raise GrpcError(2, "out of order")
            if fault == "unavailable":
                raise GrpcError(14, "try again")
            if fault == "lost-before":
                raise HangUpError
            if fault == "slow":
                await asyncio.sleep(0.3)
            if fault == "lost-after":
                await server.forward(path, request)
                raise HangUpError
        return await server.forward(path, request)

    return handle


@pytest.fixture
def place() -> Iterator[str]:
    with cgroup_parent() as parent:
        yield parent


@pytest.fixture
async def proxy(daemon: Containerd) -> AsyncIterator[Server]:  # noqa: F811
    socket_path = daemon.directory / "proxy.sock"
    async with Server(socket_path, forward_to=daemon.socket) as server:
        yield server


async def insist(ask: Callable[[], Awaitable[T]]) -> T:
    """As the agent does: a failed call is repeated."""
    for _ in range(TRIES):
        try:
            return await ask()
        except RuntimeCallError:
            continue
    return await ask()


async def live(proxy: Server, place: str, logs: Path) -> None:
    """One pod's life, with every call in it."""
    runtime = CriRuntime(proxy.socket_path)
    bench = Bench(runtime, place, logs)
    await insist(runtime.open)
    spec = bench.sandbox()
    container = await insist(partial(bench.container, "main", ("sh", "-c", "echo started; sleep 1000")))
    sandbox_id = await insist(partial(runtime.make_sandbox, spec))
    made = await insist(partial(runtime.make_container, spec, sandbox_id, container))
    await insist(partial(runtime.start_container, made))
    seen = await insist(runtime.seen)
    assert [each.id for each in seen.sandboxes] == [sandbox_id]
    assert [(each.id, each.phase, each.attempt) for each in seen.containers] == [(made, "running", 0)]
    await bench.logged(seen.containers[0], "started")
    await insist(partial(runtime.update_sandbox, sandbox_id, container.resources))
    await insist(partial(runtime.update_container, made, container.resources))
    assert (await insist(runtime.filesystems)).images
    assert set(await insist(runtime.writable_layers)) <= {made}
    await insist(partial(runtime.reopen_log, made))
    assert (await insist(partial(runtime.run_in, made, ("true",), 10))).exit_code == 0
    session = await insist(partial(runtime.exec, made, ("true",), stdin=False, tty=False))
    assert await session.wait() == 0
    await session.close()
    attached = await insist(partial(runtime.attach, made, stdin=False, tty=False))
    await attached.close()
    await insist(partial(runtime.stop_container, made, 0))
    await insist(partial(runtime.remove_container, made))
    await insist(partial(runtime.stop_sandbox, sandbox_id))
    await insist(partial(runtime.remove_sandbox, sandbox_id))
    left = await insist(runtime.seen)
    assert (left.sandboxes, left.containers) == ((), ())
    await runtime.close()


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_call_fails_at_first(proxy: Server, place: str, tmp_path: Path, fault: Fault) -> None:
    proxy.handlers = {name: faulty(path(name), fault) for name in CALLS}
    await live(proxy, place, tmp_path)
    assert set(CALLS) <= set(proxy.calls)


@pytest.mark.parametrize("name", ["RunPodSandbox", "CreateContainer", "StartContainer", "RemovePodSandbox"])
async def test_a_call_was_carried_out_and_its_answer_lost(proxy: Server, place: str, tmp_path: Path, name: str) -> None:
    proxy.handlers = {name: faulty(path(name), "lost-after")}
    await live(proxy, place, tmp_path)
    assert name in proxy.calls


def path(name: str) -> str:
    return f"/runtime.v1.{'ImageService' if name.startswith('Image') else 'RuntimeService'}/{name}"
