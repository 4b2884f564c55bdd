"""attach and port-forward at the endpoint, over WebSockets; test_portforward.py has SPDY."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll.api.auth.ca import endpoint_name
from plimsoll.kube.request import ApiError
from plimsoll.kube.websocket import connect
from plimsoll.net.websocket import WebSocket
from tests.unit.node.endpoint_world import ID, NODE, World


async def _open(world: World, path: str) -> WebSocket:
    return await connect(
        "127.0.0.1",
        world.port,
        path,
        tls=world.authority.client_context(),
        server_name=endpoint_name(NODE),
        subprotocols=("v4.channel.k8s.io",),
    )


async def test_attach_uses_the_container_s_own_terminal_setting(world: World) -> None:
    far = await _open(world, "/attach/default/web/c?stdin=true&stdout=true&tty=true")
    assert await far.receive() == b"\x01"
    await far.send(b"\0hello")
    assert await far.receive() == b"\x01hello"
    await far.close()
    assert world.containers.asked == [(ID, (), True, False)]  # it has none, whatever the client says


async def test_ports_over_channels(world: World) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(100)).upper())
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    closed = await asyncio.start_server(shout, "127.0.0.1", 0)
    other = closed.sockets[0].getsockname()[1]
    closed.close()
    far = await _open(world, f"/portForward/default/web?ports={port}&ports={other}")
    async with asyncio.timeout(60):
        first = [await far.receive() for _ in range(5)]
        assert first[:4] == [
            bytes([channel]) + number.to_bytes(2, "little")
            for channel, number in ((0, port), (1, port), (2, other), (3, other))
        ]
        assert first[4] is not None and first[4][0] == 3
        assert f"error forwarding port {other} to pod web_default, uid uid-web: ".encode() in first[4]
        assert b"connection refused" in first[4]
        await far.send(b"\0hello")
        assert await far.receive() == b"\0HELLO"
        assert await far.receive() is None
    await far.close()
    server.close()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("/portForward/default/web", "is required", id="no port"),
        pytest.param("/portForward/default/web?ports=0", "is not a port from 1 to 65535", id="port 0"),
        pytest.param("/portForward/default/web?ports=http", "is not a port from 1 to 65535", id="a name"),
        pytest.param("/portForward/default/none?ports=80", 'pod "none" not found', id="no pod"),
        pytest.param("/attach/default/web/c", "at least 1 of stdin, stdout, stderr", id="no stream"),
    ],
)
async def test_refusals(world: World, path: str, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        await _open(world, path)
