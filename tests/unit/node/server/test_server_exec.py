"""Exec at the node endpoint: real TLS, WebSocket channels, and how it ends."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec
import pytest

from plimsoll.api.auth.ca import endpoint_name
from plimsoll.kube.request import ApiError
from plimsoll.kube.websocket import connect
from plimsoll.net.websocket import WebSocket
from tests.unit.node.endpoint_world import ID, NODE, World, eventually, pod


async def _exec(world: World, query: str, *protocols: str) -> WebSocket:
    return await connect(
        "127.0.0.1",
        world.port,
        f"/exec/default/web/c?{query}",
        tls=world.authority.client_context(),
        server_name=endpoint_name(NODE),
        subprotocols=protocols or ("v5.channel.k8s.io", "v4.channel.k8s.io"),
    )


def _status(message: bytes | None) -> dict[str, Any]:
    assert message is not None
    assert message[:1] == b"\x03"
    found: dict[str, Any] = msgspec.json.decode(message[1:])
    return found


async def test_exec_with_a_terminal_and_everything(world: World) -> None:
    far = await _exec(world, "command=echo&command=a+b&stdin=true&stdout=true&tty=true")
    assert far.subprotocol == "v5.channel.k8s.io"
    assert await far.receive() == b"\x01"
    await far.send(b'\x04{"Width":80,"Height":24}')
    await far.send(b"\0hello")
    assert await far.receive() == b"\x01hello"
    await far.send(b"\0" + b"x" * 300_000)
    got = b""
    async with asyncio.timeout(60):
        while len(got) < 300_000:
            got += (await far.receive() or b"")[1:]
    await far.send(b"\xff\x00")
    assert _status(await far.receive()) == {"metadata": {}, "status": "Success"}
    assert await far.receive() is None
    await far.close()
    assert world.containers.asked == [(ID, ("echo", "a b"), True, True)]
    assert world.containers.sessions[0].sizes == [(80, 24)]


@pytest.mark.parametrize("protocols", [("channel.k8s.io",), ()], ids=["channel.k8s.io", "none"])
async def test_exec_without_a_version_has_no_status(world: World, protocols: tuple[str, ...]) -> None:
    async def run(query: str) -> list[bytes]:
        far = await connect(
            "127.0.0.1",
            world.port,
            f"/exec/default/web/c?{query}",
            tls=world.authority.client_context(),
            server_name=endpoint_name(NODE),
            subprotocols=protocols,
        )
        assert far.subprotocol == "".join(protocols)
        messages = []
        async with asyncio.timeout(60):
            while (message := await far.receive()) is not None:
                messages.append(message)
                if len(messages) == 1 and "echo" in query:
                    await eventually(lambda: bool(world.containers.sessions))
                    await world.containers.sessions[-1].put(b"done")
                    await world.containers.sessions[-1].end(0)
        await far.close()
        return messages

    assert await run("command=echo&stdout=1") == [b"\x01", b"\x01done"]
    assert (await run("command=ls&stdout=1"))[1:] == [
        b'\x03Internal error occurred: error executing command in container: exec: "ls": no such file'
    ]


@pytest.mark.parametrize(
    ("query", "broken", "message"),
    [
        pytest.param("command=ls&stdout=1", False, 'Internal error occurred: error executing command in container: exec: "ls": no such file', id="no such program"),
        pytest.param("command=echo&stdout=1", True, 'unable to upgrade connection: container not found ("c")', id="not running"),
    ],
)  # fmt: skip
async def test_exec_that_fails(world: World, query: str, broken: bool, message: str) -> None:
    if broken:
        world.pods.pods["default", "web"] = pod(state={"waiting": {}})
    far = await _exec(world, query, "v4.channel.k8s.io")
    assert far.subprotocol == "v4.channel.k8s.io"
    assert await far.receive() == b"\x01"
    assert _status(await far.receive())["message"] == message
    await far.close()


async def test_exec_without_a_subprotocol_we_know(world: World) -> None:
    with pytest.raises(ApiError, match="exec needs one of these WebSocket subprotocols") as refused:
        await _exec(world, "command=ls&stdout=1", "v9.channel.k8s.io")
    assert refused.value.code == 400


@pytest.mark.parametrize("how", ["abort", "close"])
async def test_a_client_that_leaves_ends_the_process(world: World, how: str) -> None:
    far = await _exec(world, "command=echo&stdin=1&stdout=1")
    await far.receive()
    await eventually(lambda: bool(world.containers.sessions))
    if how == "abort":
        far._writer.transport.abort()
    else:
        await far.close()
    async with asyncio.timeout(60):
        await world.containers.sessions[0].closed.wait()
    await eventually(lambda: not world.endpoint._server._connections)


async def test_a_plain_connection_gets_nothing(world: World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port, family=socket.AF_INET)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(60):
        assert b"200" not in await reader.read()
    writer.close()
