"""Both sides of a WebSocket, connected to each other over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, Message, Ping, Request, TextMessage

from plimsoll.net.websocket import MAX_MESSAGE_BYTES, RejectedError, WebSocket
from tests.unit.net.websocket_server import Serve, websocket_server


@asynccontextmanager
async def _connected(serve: Serve) -> AsyncIterator[WebSocket]:
    async with websocket_server(serve) as port:
        client = await WebSocket.connect("127.0.0.1", port, "/exec?a=b", subprotocols=["v5.channel.k8s.io", "v4"])
        try:
            yield client
        finally:
            await client.close()


async def test_whole_messages_go_both_ways_and_a_close_ends_them() -> None:
    received = []

    async def echo(socket: WebSocket) -> None:
        while (message := await socket.receive()) is not None:
            received.append(message)
            await socket.send(message)
            if message == b"last":
                await socket.close()

    async with _connected(echo) as client:
        assert client.subprotocol == "v5.channel.k8s.io"
        big = b"x" * (1 << 18)
        for message in (b"", big, b"last"):
            await client.send(message)
        assert [await client.receive() for _ in range(4)] == [b"", big, b"last", None]
        with pytest.raises(ConnectionError):
            await client.send(b"too late")
    assert received == [b"", big, b"last"]


async def test_a_message_without_end_ends_the_connection() -> None:
    """A node that is taken over may send one to the API server, in an exec of an administrator."""
    sent_bytes = 0

    async def endless(socket: WebSocket) -> None:
        nonlocal sent_bytes
        with contextlib.suppress(OSError):
            while sent_bytes < 8 * MAX_MESSAGE_BYTES:
                await socket._send(BytesMessage(b"x" * (1 << 18), message_finished=False))
                sent_bytes += 1 << 18

    async with _connected(endless) as client:
        assert await client.receive() is None
    assert MAX_MESSAGE_BYTES < sent_bytes < 4 * MAX_MESSAGE_BYTES


async def test_a_large_message_arrives_in_pieces() -> None:
    sizes: list[tuple[int, bool]] = []

    async def collect(socket: WebSocket) -> None:
        async for data, is_last in socket.pieces():
            sizes.append((len(data), is_last))

    async with _connected(collect) as client:
        await client.send(b"x" * (1 << 20))
    assert len(sizes) > 4 and sum(size for size, _ in sizes) == 1 << 20
    assert [is_last for _, is_last in sizes] == [False] * (len(sizes) - 1) + [True]


async def test_pieces_raise_where_the_connection_is_lost_and_receive_ends() -> None:
    async def lose(socket: WebSocket) -> None:
        socket._writer.transport.abort()

    async with _connected(lose) as client:
        with pytest.raises(OSError):
            async for _ in client.pieces():
                pass
        assert await client.receive() is None


async def _raw(answer: bytes, *messages: Message | Ping) -> WebSocket:
    """A client of a server that writes its answer, or accepts and writes these messages, in one go."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.readuntil(b"\r\n\r\n")
        if messages:
            connection = WSConnection(ConnectionType.SERVER)
            connection.receive_data(data)
            assert any(isinstance(event, Request) for event in connection.events())
            writer.write(b"".join(connection.send(event) for event in (AcceptConnection(), *messages)))
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with asyncio.timeout(60), await asyncio.start_server(run, "127.0.0.1", 0) as server:
        return await WebSocket.connect("127.0.0.1", server.sockets[0].getsockname()[1], "/", subprotocols=[])


async def test_messages_after_the_handshake_are_kept_and_pings_are_answered() -> None:
    parts = (BytesMessage(b"a", message_finished=False), BytesMessage(b"b"), Ping(), TextMessage("\u00e9"))
    client = await _raw(b"", *parts)
    assert [await client.receive() for _ in range(3)] == [b"ab", "\u00e9".encode(), None]
    client.abort()


async def test_bytes_that_are_no_frame_end_it() -> None:
    client = await _raw(b"\xff" * 16, BytesMessage(b"a"))
    assert [piece async for piece in client.pieces()] == [(b"a", True)]
    client.abort()


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        pytest.param(b"HTTP/1.1 404 X\r\nContent-Length: 4\r\n\r\ngone", RejectedError, "status 404: gone", id="body"),
        pytest.param(b"HTTP/1.1 403 X\r\nContent-Length: 0\r\n\r\n", RejectedError, "status 403: $", id="empty"),
        pytest.param(b"SSH-2.0\r\n\r\n", ConnectionError, "invalid WebSocket data", id="not HTTP"),
        pytest.param(b"", ConnectionError, "the peer closed the connection", id="nothing"),
    ],
)
async def test_an_upgrade_that_fails(answer: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await _raw(answer)
