"""Metrics over HTTP, one short request per connection: for Prometheus on the same node or behind a NetworkPolicy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plimsoll.errors import PlimsollError

REQUEST_S = 5.0
MOST_BYTES = 8192
_MOST_CONNECTIONS = 16


async def serve_metrics(host: str, port: int, text: Callable[[], str]) -> None:
    """Without end. Raises PlimsollError if the address cannot be used."""
    free = asyncio.Semaphore(_MOST_CONNECTIONS)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S), free:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].partition(b"?")[0] if head.startswith(b"GET ") else b""
                found = path in (b"/metrics", b"/healthz")
                body = (text() if path == b"/metrics" else "ok\n" if found else "try /metrics\n").encode()
                status = b"200 OK" if found else b"404 Not Found"
                writer.write(
                    b"HTTP/1.1 %b\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                    b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)
                )
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            return  # a client that does not speak HTTP, or has gone
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=MOST_BYTES)
    except OSError as error:
        raise PlimsollError(f"metrics cannot be served at {host}:{port}: {error.strerror or error}") from None
    async with server:
        await server.serve_forever()
