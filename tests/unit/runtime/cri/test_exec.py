"""An exec session over a streaming server that speaks the remote command protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from plimsoll.net.websocket import WebSocket
from plimsoll.runtime.cri.exec import ExecStream
from plimsoll.runtime.interface import RuntimeCallError
from tests.unit.net.websocket_server import Serve, websocket_server


@asynccontextmanager
async def _session(serve: Serve) -> AsyncIterator[ExecStream]:
    async with websocket_server(serve) as port:
        session = await ExecStream.connect(f"http://127.0.0.1:{port}/exec/token")
        try:
            yield session
        finally:
            await session.close()


async def _all(chunks: AsyncIterator[bytes]) -> bytes:
    data = b""
    async for chunk in chunks:
        if not chunk:
            break
        data += chunk
    return data


async def test_streams_and_exit_code() -> None:
    received: list[bytes] = []

    async def serve(socket: WebSocket) -> None:
        for _ in range(3):
            received.append(await socket.receive() or b"")
        await socket.send(b"\x01out")
        await socket.send(b"\x02err")
        await socket.send(
            b'\x03{"status":"Failure","reason":"NonZeroExitCode",'
            b'"details":{"causes":[{"reason":"ExitCode","message":"3"}]}}'
        )
        await socket.close()

    async with _session(serve) as session:
        await session.write(b"in")
        await session.resize(80, 24)
        await session.close_stdin()
        assert await asyncio.gather(_all(session.stdout()), _all(session.stderr())) == [b"out", b"err"]
        assert await session.wait() == 3
    assert received == [b"\x00in", b'\x04{"Width":80,"Height":24}', b"\xff\x00"]


async def test_a_stream_that_breaks_is_an_error() -> None:
    async def serve(socket: WebSocket) -> None:
        await socket.send(b"\x01out")

    async with _session(serve) as session:
        assert await asyncio.gather(_all(session.stdout()), _all(session.stderr())) == [b"out", b""]
        with pytest.raises(RuntimeCallError, match="the stream broke: the peer closed the connection"):
            await session.wait()


async def test_no_server_is_an_error() -> None:
    with pytest.raises(RuntimeCallError, match="Exec"):
        await ExecStream.connect("http://127.0.0.1:1/exec/token")
