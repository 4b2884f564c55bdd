"""Port-forward over SPDY/3.1 with a client that speaks the real frames, to real sockets of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from plimsoll.codec.spdy import SpdyConnection, StreamAccepted, StreamData, StreamReset
from plimsoll.node.server import portforward
from plimsoll.node.server.idle import IdleClock
from plimsoll.node.server.portforward import KEPT_BYTES, ForwardedConnection, PortRefusedError, Streams

OPEN, CLOSED, DEAF = 80, 81, 82
WAIT_S = 60.0


class Client:
    """kubectl's side: `streams` has the data of each stream, and b"" at its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.spdy, self.reader, self.writer = SpdyConnection(), reader, writer
        self.accepted, self.reset = set[int](), set[int]()
        self.streams: dict[int, bytes] = {}
        self.ended: set[int] = set()

    def pair(self, request: int, port: int | str = OPEN) -> tuple[int, int]:
        error, data = 4 * request + 1, 4 * request + 3
        for stream, kind in ((error, "error"), (data, "data")):
            headers = {"streamType": kind, "port": str(port), "requestID": str(request)}
            self.writer.write(self.spdy.open(stream, headers, is_last=kind == "error"))
        return error, data

    def send(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        self.writer.write(self.spdy.data(stream, data, is_last=is_last))

    async def until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not seen():
                data = await self.reader.read(65536)
                assert data, "the node closed the connection"
                for event in self.spdy.receive(data):
                    match event:
                        case StreamAccepted(stream=stream):
                            self.accepted.add(stream)
                        case StreamReset(stream=stream):
                            self.reset.add(stream)
                        case StreamData(stream=stream, data=piece, is_last=is_last):
                            self.streams[stream] = self.streams.get(stream, b"") + piece
                            if is_last:
                                assert stream not in self.ended, "a stream ends once"
                                self.ended.add(stream)


async def _shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data.upper())
        await writer.drain()
    writer.write(b"bye")
    writer.close()


async def _deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        writer.close()


@asynccontextmanager
async def forwarding(idle_s: float = 60.0) -> AsyncIterator[Client]:
    pods = {OPEN: await asyncio.start_server(_shout, "127.0.0.1", 0)}
    pods[DEAF] = await asyncio.start_server(_deaf, "127.0.0.1", 0, limit=1024)
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))

    async def connect(port: int) -> Streams:
        if port not in pods:
            raise PortRefusedError("connection refused")
        return await asyncio.open_connection(*pods[port].sockets[0].getsockname())

    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ForwardedConnection("web", connect, IdleClock(idle_s), (reader, writer)).run()
        writer.close()
        done.set()

    node = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client(*await asyncio.open_connection(*node.sockets[0].getsockname()))
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert b"X-Stream-Protocol-Version: portforward.k8s.io\r\n" in head
    try:
        yield client
    finally:
        client.writer.close()
        async with asyncio.timeout(WAIT_S):
            await done.wait()
        for server in (node, *pods.values()):
            server.close()
    assert not problems


async def test_many_connections_at_once_each_half_ends_by_itself() -> None:
    async with forwarding() as client:
        pairs = [client.pair(number) for number in range(50)]
        for error, data in pairs:
            client.send(data, b"from %d" % error)
        await client.until(lambda: all(client.streams.get(data) == b"FROM %d" % error for error, data in pairs))
        for _, data in pairs:
            client.send(data, b"", is_last=True)
        await client.until(lambda: {stream for pair in pairs for stream in pair} <= client.ended)
        assert all(client.streams[data] == b"FROM %dbye" % error for error, data in pairs)
        assert all(client.streams[error] == b"" for error, _ in pairs)


async def test_what_went_wrong_is_on_the_error_stream() -> None:
    async with forwarding() as client:
        error, data = client.pair(0, CLOSED)
        await client.until(lambda: {error, data} <= client.ended)
        assert client.streams[error] == b"error forwarding port 81 to pod web: connection refused"


@pytest.mark.parametrize("headers", [{"port": "80"}, {"streamType": "video", "port": "80"}, {"streamType": "data"},
                                     {"streamType": "data", "port": "0"}, {"streamType": "data", "port": "99999"}])  # fmt: skip
async def test_a_stream_with_wrong_headers_is_reset(headers: dict[str, str]) -> None:
    async with forwarding() as client:
        client.writer.write(client.spdy.open(1, headers))
        await client.until(lambda: client.reset == {1})


async def test_a_pod_that_does_not_read_is_cut_off_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portforward, "STALLED_S", 0.2)
    async with forwarding() as client:
        _, deaf = client.pair(0, DEAF)
        _, other = client.pair(1)
        size = 0
        while size < 4 * KEPT_BYTES:
            client.send(deaf, bytes(1 << 20))
            size += 1 << 20
        client.send(other, b"still here")
        await client.until(lambda: client.streams.get(other) == b"STILL HERE")
        await client.until(lambda: deaf in client.reset)


async def test_streams_without_the_other_half_of_their_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portforward, "CREATION_S", 0.1)
    async with forwarding() as client:
        client.writer.write(client.spdy.open(1, {"streamType": "error", "port": "80", "requestID": "7"}))
        await client.until(lambda: 1 in client.ended)
        assert client.streams[1] == b"timed out waiting for the streams of request 7"


async def test_clients_that_leave_early_leave_nothing_behind() -> None:
    async with forwarding() as client:
        _, data = client.pair(0)
        client.pair(1, CLOSED)
        client.send(data, b"x" * 100_000)
        client.writer.write(client.spdy.reset(data))
        client.pair(2)


async def test_an_idle_connection_is_closed() -> None:
    async with forwarding(idle_s=0.05) as client:
        async with asyncio.timeout(WAIT_S):
            assert await client.reader.read() == b""
