"""exec over SPDY/3.1: streams become channels, in both directions, with a client that speaks the real frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from plimsoll.codec.spdy import PingReceived, SpdyConnection, StreamAccepted, StreamData, StreamReset
from plimsoll.node.server.exec import ExecOptions
from plimsoll.node.server.http import HttpRequest
from plimsoll.node.server.spdy import EARLY_BYTES, SpdyChannels, expected_streams, is_spdy, offered_versions


class Client:
    """kubectl's side of the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection, self.reader, self.writer = SpdyConnection(), reader, writer
        self.events: list[object] = []

    async def upgraded(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    def open(self, stream: int, kind: str, *, is_last: bool = False) -> None:
        self.writer.write(self.connection.open(stream, {"streamType": kind}, is_last=is_last))

    async def until(self, kind: type, count: int = 1) -> list[object]:
        async with asyncio.timeout(60):
            while sum(isinstance(event, kind) for event in self.events) < count:
                data = await self.reader.read(4096)
                assert data, self.events
                self.events += self.connection.receive(data)
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def session(options: ExecOptions) -> AsyncIterator[tuple[Client, asyncio.Future[SpdyChannels]]]:
    accepted: asyncio.Future[SpdyChannels] = asyncio.get_running_loop().create_future()
    finished = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            accepted.set_result(await SpdyChannels.accepted(options, reader, writer))
        except (ConnectionError, TimeoutError) as error:
            accepted.set_exception(error)
        await finished.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client(*await asyncio.open_connection(*server.sockets[0].getsockname()))
    try:
        yield client, accepted
    finally:
        finished.set()
        client.writer.close()
        server.close()


async def test_streams_are_channels() -> None:
    async with session(ExecOptions(("cat",), stdin=True)) as (client, accepted):
        head = await client.upgraded()
        assert head.startswith(b"HTTP/1.1 101 ") and b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in head
        for stream, kind in ((1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")):
            client.open(stream, kind)
        channels = await accepted
        assert [event.stream for event in await client.until(StreamAccepted, 4)] == [1, 3, 5, 7]
        client.writer.write(client.connection.data(3, b"hello") + client.connection.data(3, b"", is_last=True))
        pieces = channels.pieces()
        assert [await anext(pieces), await anext(pieces)] == [(b"\0hello", True), (b"\xff\0", True)]
        await channels.send(b"\1hello")
        await channels.send(b"\3{}")
        await channels.close()
        data = [(event.stream, event.data, event.is_last) for event in await client.until(StreamData, 6)]
        assert data[:2] == [(5, b"hello", False), (1, b"{}", False)]
        assert sorted(data[2:]) == [(stream, b"", True) for stream in (1, 3, 5, 7)]


async def test_input_before_the_last_stream_is_kept() -> None:
    async with session(ExecOptions(("sh",), stdin=True, stderr=False, tty=True)) as (client, accepted):
        await client.upgraded()
        client.open(1, "error")
        client.open(3, "stdin")
        client.writer.write(client.connection.data(3, b"early"))
        client.open(5, "stdout")
        client.open(7, "resize")
        client.writer.write(client.connection.data(7, b'{"Width":80,"Height":24}'))
        pieces = (await accepted).pieces()
        assert [await anext(pieces), await anext(pieces)] == [(b"\0early", True), (b'\4{"Width":80,"Height":24}', True)]


async def test_pings_are_answered_and_unknown_streams_reset() -> None:
    async with session(ExecOptions(("true",), stderr=False)) as (client, accepted):
        await client.upgraded()
        client.open(1, "video")
        client.open(3, "error")
        client.open(5, "error")
        client.writer.write(client.connection.pong(9))
        client.open(7, "stdout")
        await accepted
        assert [event.stream for event in await client.until(StreamReset, 2)] == [1, 5]
        assert await client.until(PingReceived) == [PingReceived(9)]


@pytest.mark.parametrize(
    "text", [pytest.param(b"", id="leaves"), pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="speaks HTTP")]
)
async def test_a_client_without_streams(text: bytes) -> None:
    async with session(ExecOptions(("true",))) as (client, accepted):
        await client.upgraded()
        client.writer.write(text)
        client.writer.write_eof()
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(accepted, 60)


async def test_input_before_the_last_stream_has_a_limit() -> None:
    async with session(ExecOptions(("cat",), stdin=True)) as (client, accepted):
        await client.upgraded()
        client.open(1, "stdin")
        client.writer.write(client.connection.data(1, bytes(EARLY_BYTES + 1)))
        with pytest.raises(ConnectionError, match="before its streams"):
            await asyncio.wait_for(accepted, 60)


def test_the_request() -> None:
    headers = (
        (b"connection", b"Upgrade"),
        (b"upgrade", b"SPDY/3.1"),
        (b"x-stream-protocol-version", b"v5.channel.k8s.io, v4.channel.k8s.io"),
        (b"x-stream-protocol-version", b"v3.channel.k8s.io"),
    )
    request = HttpRequest("POST", "/exec/a/b/c", ("exec", "a", "b", "c"), {}, headers, None)
    assert is_spdy(request)
    assert offered_versions(request) == ["v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io"]
    assert expected_streams(ExecOptions(("sh",), stdin=True, stderr=False, tty=True)) == {
        "error",
        "stdin",
        "stdout",
        "resize",
    }
