"""The WebSocket client against a server that writes everything at once."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, RejectConnection, RejectData, Request

from plimsoll.api.auth.ca import Authority
from plimsoll.kube.request import ApiError
from plimsoll.kube.websocket import connect
from plimsoll.net.websocket import WebSocket


class _Served:
    """One connection: answers the request for an upgrade with these events, in a single write."""

    def __init__(self, *events: object) -> None:
        self._events = events

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = WSConnection(ConnectionType.SERVER)
        asked = False
        while not asked:
            connection.receive_data(await reader.read(65536))
            asked = any(isinstance(event, Request) for event in connection.events())
        writer.write(b"".join(connection.send(event) for event in self._events))  # type: ignore[arg-type]
        await writer.drain()
        writer.close()


async def _connected(tmp_path: Path, *events: object) -> WebSocket:
    authority = Authority(tmp_path)
    authority.prepare(("127.0.0.1",))
    server = await asyncio.start_server(_Served(*events), "127.0.0.1", 0, ssl=authority.server_context())
    port = server.sockets[0].getsockname()[1]
    tls = ssl.create_default_context(cafile=str(authority.ca_file))
    async with asyncio.timeout(60), server:
        return await connect(
            "127.0.0.1", port, "/", tls=tls, server_name="127.0.0.1", subprotocols=["v5.channel.k8s.io"]
        )


async def test_messages_that_come_with_the_handshake_are_not_lost(tmp_path: Path) -> None:
    accepted = AcceptConnection(subprotocol="v5.channel.k8s.io")
    far = await _connected(tmp_path, accepted, BytesMessage(b"\x01a"), BytesMessage(b"\x03b"), CloseConnection(1000))
    assert far.subprotocol == "v5.channel.k8s.io"
    async with asyncio.timeout(60):
        assert [await far.receive(), await far.receive(), await far.receive()] == [b"\x01a", b"\x03b", None]
    await far.close()


async def test_a_rejection_has_the_servers_message(tmp_path: Path) -> None:
    refused = RejectConnection(status_code=404, has_body=True, headers=[(b"content-length", b"4")])
    with pytest.raises(ApiError) as error:
        await _connected(tmp_path, refused, RejectData(b"gone"))
    assert (error.value.code, error.value.message) == (404, "gone")
