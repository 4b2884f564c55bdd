"""A task that containerd's CRI side has lost is killed, and deleted as soon as it is dead."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll.net.grpc.status import FAILED_PRECONDITION, NOT_FOUND, GrpcError
from plimsoll.runtime.cri.calls import CallRefusedError
from plimsoll.runtime.cri.runtime import CriRuntime
from tests.unit.net.grpc.grpc_server import Handler, Server

UNKNOWN = 2
RUNS = GrpcError(FAILED_PRECONDITION, 'failed to delete containerd container "c": cannot delete running task c')


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-cri-") as directory:
        async with Server(Path(directory) / "s") as made:
            yield made


def after(*refusals: GrpcError) -> Handler:
    """Answers with each of them once, then takes the call."""
    left = list(refusals)

    async def answer(server: Server, request: bytes) -> bytes:
        if left:
            raise left.pop(0)
        return b""

    return answer


async def removed(server: Server, *refusals: GrpcError) -> list[str]:
    server.handlers["RemoveContainer"] = after(RUNS)
    server.handlers["Kill"] = after()
    server.handlers["Delete"] = after(*refusals)
    runtime = CriRuntime(server.socket_path, patience_s=1.0)
    try:
        await runtime.remove_container("c")
    finally:
        await runtime.close()
    return [each for each in server.calls if each in ("RemoveContainer", "Kill", "Delete")]


@pytest.mark.parametrize(
    "refusal",
    [
        GrpcError(FAILED_PRECONDITION, "task must be stopped before deletion: running"),
        GrpcError(UNKNOWN, "failed to delete task: cannot delete a running process: unknown"),
    ],
    ids=["containerds", "the-shims"],
)
async def test_one_that_is_not_dead_yet_is_tried_again(server: Server, refusal: GrpcError) -> None:
    assert await removed(server, refusal) == ["RemoveContainer", "Kill", "Delete", "Kill", "Delete", "RemoveContainer"]


async def test_one_that_is_gone_is_gone(server: Server) -> None:
    gone = GrpcError(NOT_FOUND, "task c not found")
    assert await removed(server, gone) == ["RemoveContainer", "Kill", "Delete", "RemoveContainer"]


async def test_other_refusals_are_raised(server: Server) -> None:
    with pytest.raises(CallRefusedError, match="read-only"):
        await removed(server, GrpcError(UNKNOWN, "read-only file system"))
