"""File systems, writable layers and sandbox updates, with a fake runtime."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll.codec.protobuf.structs import Unsigned, decode, encode
from plimsoll.net.grpc.status import UNIMPLEMENTED, GrpcError
from plimsoll.rules.eviction.usage import FsUsage
from plimsoll.runtime.cri import image_messages as im
from plimsoll.runtime.cri import messages as m
from plimsoll.runtime.cri.answers import Filesystems
from plimsoll.runtime.cri.calls import CallRefusedError
from plimsoll.runtime.cri.runtime import CriRuntime
from plimsoll.runtime.interface import CriResources
from tests.unit.net.grpc.grpc_server import Server

SIZE = CriResources(cpu_shares=512, cpu_quota_us=50_000, cpu_period_us=100_000, memory_limit_bytes=64 << 20)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-cri-") as directory:
        async with Server(Path(directory) / "s") as made:
            yield made


@pytest.fixture
async def runtime(server: Server) -> AsyncIterator[CriRuntime]:
    made = CriRuntime(server.socket_path, patience_s=1.0)
    yield made
    await made.close()


def fs(mount_point: str = "", used_bytes: int | None = None, inodes: int | None = None) -> im.FilesystemUsage:
    return im.FilesystemUsage(
        fs_id=im.FilesystemIdentifier(mountpoint=mount_point) if mount_point else None,
        used_bytes=None if used_bytes is None else m.UInt64Value(value=Unsigned(used_bytes)),
        inodes_used=None if inodes is None else m.UInt64Value(value=Unsigned(inodes)),
    )


async def test_writable_layers_that_the_runtime_reports(server: Server, runtime: CriRuntime) -> None:
    def of(each: str, layer: im.FilesystemUsage | None) -> im.ContainerStats:
        return im.ContainerStats(attributes=im.ContainerAttributes(id=each), writable_layer=layer)

    stats = (of("a", fs("/x", 20 << 20, 5)), of("b", fs("/x", 4096)), of("new", None), im.ContainerStats())

    async def answer(server: Server, request: bytes) -> bytes:
        return encode(im.ListContainerStatsResponse(stats=stats))

    server.handlers["ListContainerStats"] = answer
    assert await runtime.writable_layers() == {"a": FsUsage(20 << 20, 5), "b": FsUsage(4096, None)}


@pytest.mark.parametrize(
    ("images", "containers", "expected"),
    [
        pytest.param((fs("/i"),), (), Filesystems("/i", ""), id="containerd-1.6"),
        pytest.param((fs("/i"),), (fs("/c"),), Filesystems("/i", "/c"), id="both"),
        pytest.param((fs(), fs("/i"), fs("/j")), (fs(),), Filesystems("/i", ""), id="first-that-is-named"),
        pytest.param((), (), Filesystems(), id="nothing"),
    ],
)
async def test_where_images_and_writable_layers_are_stored(
    server: Server, runtime: CriRuntime, images: tuple[im.FilesystemUsage, ...],
    containers: tuple[im.FilesystemUsage, ...], expected: Filesystems,
) -> None:  # fmt: skip
    async def answer(server: Server, request: bytes) -> bytes:
        return encode(im.ImageFsInfoResponse(image_filesystems=images, container_filesystems=containers))

    server.handlers["ImageFsInfo"] = answer
    assert await runtime.filesystems() == expected


async def test_a_runtime_gets_a_pods_size_in_full(server: Server, runtime: CriRuntime) -> None:
    heard: list[m.UpdatePodSandboxResourcesRequest] = []

    async def hear(server: Server, request: bytes) -> bytes:
        heard.append(decode(m.UpdatePodSandboxResourcesRequest, request))
        return b""

    server.handlers["UpdatePodSandboxResources"] = hear
    await runtime.update_sandbox("s", SIZE)
    assert [each.pod_sandbox_id for each in heard] == ["s"]
    assert heard[0].resources == m.LinuxContainerResources(
        cpu_period=100_000, cpu_quota=50_000, cpu_shares=512, memory_limit_in_bytes=64 << 20
    )


async def test_an_unimplemented_call_is_made_once_per_connection(server: Server, runtime: CriRuntime) -> None:
    async def unknown(server: Server, request: bytes) -> bytes:
        raise GrpcError(UNIMPLEMENTED, "unknown method UpdatePodSandboxResources")

    server.handlers["UpdatePodSandboxResources"] = unknown
    for _ in range(3):
        await runtime.update_sandbox("s", SIZE)
    assert server.calls == ["UpdatePodSandboxResources"]
    await server.stop()
    await server.start()
    with pytest.raises(CallRefusedError):  # by another call it is found to be another
        await runtime.writable_layers()
    await runtime.update_sandbox("s", SIZE)
    assert server.calls.count("UpdatePodSandboxResources") == 2


async def test_a_refusal_is_raised(server: Server, runtime: CriRuntime) -> None:
    async def refuse(server: Server, request: bytes) -> bytes:
        raise GrpcError(9, "the virtual machine cannot grow")

    server.handlers["UpdatePodSandboxResources"] = refuse
    for _ in range(2):
        with pytest.raises(CallRefusedError, match="the virtual machine cannot grow"):
            await runtime.update_sandbox("s", SIZE)
    assert server.calls.count("UpdatePodSandboxResources") == 2
