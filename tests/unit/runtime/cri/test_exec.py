"""A session over a streaming server that speaks the remote command protocol in SPDY/3.1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from plimsoll.codec.spdy import SpdyConnection, StreamData, StreamOpened
from plimsoll.runtime.cri.exec import ERROR, RESIZE, STDERR, STDIN, STDOUT, ExecStream
from plimsoll.runtime.interface import RuntimeCallError

FAILED = b'{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}'


class Server:
    """The runtime's side: accepts every stream, and records what it gets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.spdy, self._reader, self._writer = SpdyConnection(), reader, writer
        self.streams: dict[int, str] = {}
        self.got: list[tuple[int, bytes, bool]] = []

    async def read(self) -> None:
        data = await self._reader.read(4096)
        assert data
        for event in self.spdy.receive(data):
            if isinstance(event, StreamOpened):
                self.streams[event.stream] = event.headers["streamtype"]
                self._writer.write(self.spdy.accept(event.stream))
            elif isinstance(event, StreamData):
                self.got.append(tuple(event))

    def send(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        self._writer.write(self.spdy.data(stream, data, is_last=is_last))

    def leave(self) -> None:
        self._writer.close()


Serve = Callable[[Server], Awaitable[None]]


@asynccontextmanager
async def _session(serve: Serve, *, tty: bool = False) -> AsyncIterator[tuple[ExecStream, Server]]:
    serving: asyncio.Future[Server] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"POST /exec/token HTTP/1.1\r\n") and b"\r\nUpgrade: SPDY/3.1\r\n" in head
        assert b"\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\n")
        serving.set_result(Server(reader, writer))
        await serve(serving.result())

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    session = await ExecStream.connect("Exec", f"http://127.0.0.1:{port}/exec/token", stdin=True, tty=tty)
    try:
        yield session, await serving
    finally:
        await session.close()
        server.close()


async def _all(chunks: AsyncIterator[bytes]) -> bytes:
    data = b""
    async for chunk in chunks:
        if not chunk:
            break
        data += chunk
    return data


async def test_streams_and_exit_code() -> None:
    async def serve(server: Server) -> None:
        while not any(is_last for _, _, is_last in server.got):
            await server.read()
        server.send(STDOUT, b"out")
        server.send(STDERR, b"err")
        server.send(ERROR, FAILED, is_last=True)

    async with _session(serve) as (session, server):
        assert server.streams == {ERROR: "error", STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr"}
        await session.write(b"in")
        await session.resize(80, 24)  # without a terminal there is no stream for it
        await session.close_stdin()
        await session.write(b"too late")
        assert await asyncio.gather(_all(session.stdout()), _all(session.stderr())) == [b"out", b"err"]
        assert await session.wait() == 3
        assert server.got == [(STDIN, b"in", False), (STDIN, b"", True)]


async def test_a_terminal_has_a_size_and_no_stderr() -> None:
    async def serve(server: Server) -> None:
        while not server.got:
            await server.read()
        server.send(ERROR, b'{"status":"Success"}', is_last=True)

    async with _session(serve, tty=True) as (session, server):
        assert server.streams == {ERROR: "error", STDIN: "stdin", STDOUT: "stdout", RESIZE: "resize"}
        await session.resize(80, 24)
        assert await session.wait() == 0
        assert server.got == [(RESIZE, b'{"Width":80,"Height":24}', False)]


async def test_a_stream_that_breaks_is_an_error() -> None:
    async def serve(server: Server) -> None:
        while len(server.streams) < 4:
            await server.read()
        server.send(STDOUT, b"out")
        server.leave()

    async with _session(serve) as (session, _):
        assert await asyncio.gather(_all(session.stdout()), _all(session.stderr())) == [b"out", b""]
        with pytest.raises(RuntimeCallError, match="the stream broke: the runtime closed the connection"):
            await session.wait()


async def test_a_status_before_the_end_of_the_connection_counts() -> None:
    """containerd closes the connection, and not its stream before."""

    async def serve(server: Server) -> None:
        while len(server.streams) < 4:
            await server.read()
        server.send(ERROR, FAILED)
        server.leave()

    async with _session(serve) as (session, _):
        assert await session.wait() == 3


async def test_no_server_is_an_error() -> None:
    with pytest.raises(RuntimeCallError, match="Attach"):
        await ExecStream.connect("Attach", "http://127.0.0.1:1/exec/token", stdin=False, tty=False)


async def test_a_server_that_refuses_is_an_error() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/exec/token"
    with pytest.raises(RuntimeCallError, match=r"answered HTTP/1\.1 404 Not Found"):
        await ExecStream.connect("Exec", url, stdin=False, tty=False)
    server.close()
