"""The kubelet's PodsAPI: pods in protobuf over a unix socket, read as the API would show them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.audit.pods_socket import LIST_PODS, PodsSocketError, _listed
from plimsoll.codec.protobuf.wire import bytes_field
from tests.unit.net.grpc.grpc_server import Server


def text(number: int, value: str) -> bytes:
    return bytes_field(number, value.encode())


def pod() -> bytes:
    """As v1.Pod#Marshal: metadata 1 (name 1, namespace 3, uid 5), spec 2 (containers 2, nodeName 10), status 3 (phase 1)."""
    limit = bytes_field(1, text(1, "memory") + bytes_field(2, text(1, "64Mi")))
    container = text(1, "app") + bytes_field(8, limit)
    metadata = text(1, "web") + text(3, "shop") + text(5, "0000aaaa")
    status = text(1, "Running")
    return (
        bytes_field(1, metadata) + bytes_field(2, bytes_field(2, container) + text(10, "n1")) + bytes_field(3, status)
    )


class Kubelet(Server):
    async def answer(self, path: str, request: bytes) -> bytes:
        assert path == LIST_PODS
        return bytes_field(1, pod()) + bytes_field(1, pod())


def test_pods_of_the_socket(tmp_path: Path) -> None:
    async def asked() -> list[dict[str, object]]:
        async with Kubelet(tmp_path / "s"):
            return await _listed(str(tmp_path / "s"))

    first, _ = asyncio.run(asked())
    assert first["kind"] == "Pod"
    assert first["metadata"] == {"name": "web", "namespace": "shop", "uid": "0000aaaa"}
    assert first["spec"] == {
        "containers": [{"name": "app", "resources": {"limits": {"memory": "64Mi"}}}],
        "nodeName": "n1",
    }


def test_no_kubelet_there(tmp_path: Path) -> None:
    with pytest.raises(PodsSocketError, match="PodsAPI"):
        asyncio.run(_listed(str(tmp_path / "none")))


def test_something_else_there(tmp_path: Path) -> None:
    class Other(Server):
        async def answer(self, path: str, request: bytes) -> bytes:
            return bytes_field(1, b"\xff\xff\xff")

    async def asked() -> None:
        async with Other(tmp_path / "s"):
            await _listed(str(tmp_path / "s"))

    with pytest.raises(PodsSocketError):
        asyncio.run(asked())
