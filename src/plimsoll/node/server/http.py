"""A small HTTPS server for the node's endpoint: HTTP/1.1, kept connections, streamed answers, upgrades.

asyncio streams carry, httptools checks and reads the head of a request. A handler is given a `HttpRequest` and returns
what to answer: a `Reply`, a `HttpStream`, or an `Upgrade` that takes the connection over. There is little that a
stranger can make it hold: a head of at most 16 KiB within ten seconds, no body to speak of, and a number of
connections.

It is not the API server's uvicorn, because it is part of an agent that shall stay small: half the memory, and a
stream's client that leaves is noticed without asking.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote

import httptools
import msgspec

from plimsoll.errors import PlimsollError

HEAD_BYTES, HEAD_S, IDLE_S, HANDSHAKE_S = 16384, 10.0, 120.0, 10.0
BODY_BYTES = 65536  # nothing here takes one; a client that sends one is read out and then answered
MOST_CONNECTIONS = 512
TEXT, JSON = "text/plain; charset=utf-8", "application/json"

log = logging.getLogger(__name__)


class PortInUseError(PlimsollError):
    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(host, port, reason)
        self.host, self.port, self.reason = host, port, reason

    def __str__(self) -> str:
        return f"cannot listen on {self.host}:{self.port}: {self.reason}"


class HttpRequest(msgspec.Struct, frozen=True):
    method: str
    target: str  # as it was sent
    path: tuple[str, ...]  # its components, unquoted: names to look up, never a path to open
    query: Mapping[str, list[str]]
    headers: tuple[tuple[bytes, bytes], ...]  # names in lower case
    peer: Mapping[str, Any] | None  # the client's certificate, checked by TLS

    def header(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key == name), b"")

    @property
    def wants_upgrade(self) -> bool:
        return b"upgrade" in self.header(b"connection").lower()


class Reply(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


class HttpStream(msgspec.Struct, frozen=True):
    """Sent piece by piece; closed when the client leaves."""

    pieces: AsyncGenerator[bytes, None]
    content_type: str = TEXT


class Upgrade(msgspec.Struct, frozen=True):
    """`run` owns the connection until it returns."""

    run: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


HttpResponse = Reply | HttpStream | Upgrade


class HttpHandler(Protocol):
    async def __call__(self, request: HttpRequest) -> HttpResponse: ...


def text(status: int, message: str) -> Reply:
    return Reply(status, message.encode() if message.endswith("\n") else f"{message}\n".encode())


class HttpServer:
    """`start`, then `port` says where; `close` ends every connection."""

    def __init__(self, handler: HttpHandler, tls: ssl.SSLContext) -> None:
        self._handler, self._tls = handler, tls
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str, port: int, *, or_another: bool) -> None:
        """`or_another`: any free port where this one is taken; else PortTaken."""
        try:
            bound = _bound(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not or_another:
                raise PortInUseError(host, port, error.strerror or str(error)) from error
            bound = _bound(host, 0)
        self.port = bound.getsockname()[1]
        self._server = await asyncio.start_server(
            self._connected, sock=bound, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S, limit=HEAD_BYTES
        )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            await _Connection(self._handler, reader, writer).serve()
        except (OSError, EOFError, TimeoutError, ssl.SSLError) as error:
            log.debug("a connection of the endpoint ended: %r", error)
        except asyncio.CancelledError:
            pass  # by `close`; asyncio would print it as a fault of ours
        finally:
            self._connections.discard(task)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()


class _Connection:
    def __init__(self, handler: HttpHandler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._handler, self._reader, self._writer = handler, reader, writer
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        self._peer: Mapping[str, Any] | None = tls.getpeercert()

    async def serve(self) -> None:
        idle_s = HEAD_S
        while True:
            try:
                async with asyncio.timeout(idle_s):
                    head = await self._reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                await self._reply(text(431, "the head of the request is too long"), close=True)
                return
            except asyncio.IncompleteReadError:
                return
            idle_s = IDLE_S
            parsed = _Head(head)
            if parsed.problem or parsed.is_chunked or parsed.body_bytes > BODY_BYTES:
                status = 413 if parsed.body_bytes > BODY_BYTES else 400
                reason = parsed.problem or "no body is taken here"
                await self._reply(text(status, reason), close=True)
                return
            async with asyncio.timeout(HEAD_S):
                await self._reader.readexactly(parsed.body_bytes)
            if not await self._answer(parsed.request(self._peer), parsed.keep_alive):
                return

    async def _answer(self, request: HttpRequest, keep_alive: bool) -> bool:
        """Whether the connection goes on."""
        answer = await self._handler(request)
        match answer:
            case Reply():
                await self._reply(answer, close=not keep_alive)
                return keep_alive
            case HttpStream():
                return await self._stream(answer) and keep_alive
            case Upgrade():
                await answer.run(self._reader, self._writer)
                return False

    async def _reply(self, reply: Reply, *, close: bool) -> None:
        headers = [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body))), *reply.headers]
        if close:
            headers.append(("Connection", "close"))
        self._writer.write(_head(reply.status, headers) + reply.body)
        await self._writer.drain()

    async def _stream(self, stream: HttpStream) -> bool:
        """Sends while the client is there. A connection that is lost cancels whoever waits for the next piece."""
        headers = [("Content-Type", stream.content_type), ("Transfer-Encoding", "chunked")]
        self._writer.write(_head(200, headers))
        sending = asyncio.create_task(self._send(stream.pieces))
        left = asyncio.create_task(self._left())
        try:
            await asyncio.wait((sending, left), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                return False
            sending.result()
            return True
        finally:
            for task in (sending, left):
                task.cancel()
            await asyncio.gather(sending, left, return_exceptions=True)

    async def _send(self, pieces: AsyncGenerator[bytes, None]) -> None:
        async with aclosing(pieces):
            await self._writer.drain()
            async for piece in pieces:
                self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await self._writer.drain()
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def _left(self) -> None:
        with suppress(OSError, ssl.SSLError):
            # Shielded: cancelling whoever waits would cancel the connection's own future.
            await asyncio.shield(self._writer.wait_closed())


class _Head:
    """One request's line and headers: httptools' callbacks, and what is made of them."""

    def __init__(self, head: bytes) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self.problem = ""
        self.is_chunked, self.body_bytes = False, 0
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as error:
            self.problem = f"no HTTP: {error}"
            return
        self.method = parser.get_method().decode("latin-1")
        self.keep_alive = parser.should_keep_alive()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._headers.append((name, value))
        if name == b"content-length" and value.isdigit():
            self.body_bytes = int(value)
        self.is_chunked |= name == b"transfer-encoding"

    def request(self, peer: Mapping[str, Any] | None) -> HttpRequest:
        target = self._target.decode("latin-1")
        path, _, query = target.partition("?")
        components = tuple(unquote(each) for each in path.strip("/").split("/"))
        asked = parse_qs(query, keep_blank_values=True, max_num_fields=1000)
        return HttpRequest(self.method, target, components, asked, tuple(self._headers), peer)


def _head(status: int, headers: list[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _bound(host: str, port: int) -> socket.socket:
    """Named by its protocol: asyncio sets TCP_NODELAY only on sockets that say they are TCP."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        found.bind((host, port))
        # Two may bind one address with SO_REUSEADDR; only one may listen there.
        found.listen(128)
    except OSError:
        found.close()
        raise
    return found
