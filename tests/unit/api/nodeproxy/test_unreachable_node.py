"""Requests for a node that does not answer: what the client gets, in Kubernetes' words, and no traceback in the log."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from plimsoll.api.auth.ca import Authority
from plimsoll.api.nodeproxy.client import NodeCalls
from plimsoll.api.nodeproxy.streams import SUBPROTOCOLS, NodeStreams
from plimsoll.api.server.app import App, Options
from plimsoll.api.server.server import Listener, serving
from plimsoll.kube.request import ApiError
from plimsoll.kube.websocket import connect
from plimsoll.linux.files.state_dir import private_directory
from tests.unit.api.api_client import ADMIN, PODS, pod

EXEC = f"{PODS}/p/exec?command=true&stdout=true"
Served = tuple[str, int]  # the URL, and the port of the node


@pytest.fixture
async def refusing(tmp_path: Path) -> AsyncIterator[Served]:
    """No process listens on the node's port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with _served(tmp_path, port) as made:
        yield made


@pytest.fixture
async def closing(tmp_path: Path) -> AsyncIterator[Served]:
    """The connection is closed in the middle of the TLS handshake, as a killed agent does it."""

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.close()

    node = await asyncio.start_server(close, "127.0.0.1")
    async with node, _served(tmp_path, node.sockets[0].getsockname()[1]) as made:
        yield made


@asynccontextmanager
async def _served(directory: Path, port: int) -> AsyncIterator[Served]:
    authority = Authority(private_directory(directory / "api"))
    authority.prepare(("127.0.0.1",))
    streams = NodeStreams(NodeCalls(authority))
    options = Options(
        directory / "state",
        lambda *_: ADMIN,
        streamers={
            ("", "pods", "log"): streams.log,
            ("", "pods", "exec"): streams.over_http,
            ("", "nodes", "proxy"): streams.proxy,
        },
        sockets={("", "pods", name): streams.over_websocket for name in SUBPROTOCOLS},
    )
    async with asyncio.timeout(60), serving(App(options), Listener("127.0.0.1", 0)) as url:
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.post("/api/v1/nodes", json={"metadata": {"name": "n1"}})).status_code == 201
            status = {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            }
            merge = {"content-type": "application/merge-patch+json"}
            done = await client.patch("/api/v1/nodes/n1/status", json={"status": status}, headers=merge)
            assert done.status_code == 200
            document = pod("p")
            document["spec"]["nodeName"] = "n1"
            assert (await client.post(PODS, json=document)).status_code == 201
        yield url, port


def _refused(port: int) -> str:
    return f"dial tcp 127.0.0.1:{port}: connect: connection refused"


async def test_a_log(refusing: Served) -> None:
    url, port = refusing
    async with httpx.AsyncClient(base_url=url) as client:
        answer = await client.get(f"{PODS}/p/log?tailLines=5")
        (container,) = (await client.get(f"{PODS}/p")).json()["spec"]["containers"]
    path = f"/containerLogs/default/p/{container['name']}?tailLines=5"
    assert answer.status_code == answer.json()["code"] == 500
    assert answer.json()["message"] == f'Get "https://127.0.0.1:{port}{path}": {_refused(port)}'
    assert "reason" not in answer.json()


async def test_the_proxy(refusing: Served) -> None:
    url, port = refusing
    async with httpx.AsyncClient(base_url=url) as client:
        answer = await client.get("/api/v1/nodes/n1/proxy/healthz")
    assert (answer.status_code, answer.json()["reason"]) == (503, "ServiceUnavailable")
    assert answer.json()["message"] == f"error trying to reach service: {_refused(port)}"


async def test_exec_over_spdy(refusing: Served) -> None:
    url, port = refusing
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    head = f"POST {EXEC} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"
    writer.write(head.encode())
    status, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    assert status.split()[1] == b"500"
    length = next(int(line.split(b":")[1]) for line in rest.lower().split(b"\r\n") if b"content-length" in line)
    message = json.loads(await reader.readexactly(length))["message"]
    assert message == f"error dialing backend: {_refused(port)}"
    writer.close()


async def _exec(url: str) -> ApiError:
    port = int(url.rpartition(":")[2])
    with pytest.raises(ApiError) as refused:
        await connect("127.0.0.1", port, EXEC, tls=None, server_name=None, subprotocols=["v5.channel.k8s.io"])
    return refused.value


async def test_exec_over_a_websocket(refusing: Served, caplog: pytest.LogCaptureFixture) -> None:
    url, port = refusing
    error = await _exec(url)
    assert (error.code, error.message) == (500, f"error dialing backend: {_refused(port)}")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_exec_where_the_node_ends_meanwhile(closing: Served, caplog: pytest.LogCaptureFixture) -> None:
    url, _ = closing
    error = await _exec(url)
    assert error.code == 500
    assert error.message.startswith("error dialing backend: ")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_client_that_has_left_is_no_error_of_the_server(
    closing: Served, caplog: pytest.LogCaptureFixture
) -> None:
    url, _ = closing
    for _ in range(20):
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        lines = (
            f"GET {EXEC} HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: v5.channel.k8s.io", "", "",
        )  # fmt: skip
        writer.write("\r\n".join(lines).encode())
        await asyncio.sleep(0)
        writer.transport.abort()
    await _exec(url)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
