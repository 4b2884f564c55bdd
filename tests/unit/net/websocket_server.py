"""A server that accepts WebSockets on the loopback, for one test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from plimsoll.net.websocket import WebSocket

Serve = Callable[[WebSocket], Awaitable[None]]


@asynccontextmanager
async def websocket_server(serve: Serve, subprotocol: str = "v5.channel.k8s.io") -> AsyncIterator[int]:
    """Its port. At the end it waits until `serve` has returned."""
    ended = asyncio.Event()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        headers = [(name.lower(), value.strip()) for line in lines[1:-2] for name, _, value in [line.partition(b":")]]
        target = lines[0].split()[1].decode()
        await serve(await WebSocket.accept(headers, target, subprotocol, reader, writer))
        writer.close()
        ended.set()

    async with asyncio.timeout(60), await asyncio.start_server(run, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        await ended.wait()
