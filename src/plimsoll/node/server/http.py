"""A small HTTPS server for the node: HTTP/1.1, keep-alive, streamed responses, upgrades.

It uses asyncio streams; httptools parses the head of a request. A handler gets a `HttpRequest` and returns a `Reply`, a
`HttpStream`, or an `Upgrade` that takes over the connection. A client can only use bounded resources: a head of at most
16 KiB within ten seconds (80 KiB with a client certificate), a small body, and a limited number of connections.

The agent does not use uvicorn, as the API server does, because it must stay small: this server needs half the memory,
and it notices at once when the client of a stream disconnects.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote

import httptools
import msgspec

from plimsoll.aio import cancel_all, connection_ended
from plimsoll.errors import StructuredError

HEAD_BYTES, HEAD_S, IDLE_S, HANDSHAKE_S = 16384, 10.0, 120.0, 10.0
FORWARDED_HEAD_BYTES = 80 * 1024  # what the API server accepts, and its own headers
BODY_BYTES = 65536  # no request needs one; one that is sent is read and ignored
MAX_CONNECTIONS = 512
PIECE_BYTES = 1 << 16  # of a body: a large block is mapped and cleared for each step of TLS
TEXT, JSON = "text/plain; charset=utf-8", "application/json"

log = logging.getLogger(__name__)


class PortInUseError(StructuredError):
    host: str
    port: int
    reason: str
    template = "cannot listen on {host}:{port}: {reason}"


class HttpError(StructuredError):
    """A rejected request: the HTTP status and the message."""

    status: int
    message: str


class HttpRequest(msgspec.Struct, frozen=True):
    method: str
    target: str  # as it was sent
    path: tuple[str, ...]  # its components, unquoted: names to look up, never file names
    query: Mapping[str, list[str]]
    headers: tuple[tuple[bytes, bytes], ...]  # names in lower case
    peer: Mapping[str, Any] | None  # the client certificate, verified by TLS

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
    """Sent piece by piece; closed when the client disconnects."""

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
    """After `start`, `port` is the port it listens on; `close` ends every connection."""

    def __init__(self, handler: HttpHandler, tls: ssl.SSLContext) -> None:
        self._handler, self._tls = handler, tls
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str, port: int, *, or_another: bool) -> None:
        """`or_another`: use any free port where this one is in use; else raise PortInUseError."""
        try:
            listener = _listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not or_another:
                raise PortInUseError(host, port, error.strerror or str(error)) from error
            listener = _listen(host, 0)
        self.port = listener.getsockname()[1]
        self._server = await asyncio.start_server(
            self._serve, sock=listener, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S, limit=HEAD_BYTES
        )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await cancel_all(self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            await _Connection(self._handler, reader, writer).serve()
        except (OSError, EOFError, TimeoutError, ssl.SSLError) as error:
            log.debug("connection to the node's server ended: %r", error)
        except asyncio.CancelledError:
            pass  # by `close`; asyncio would log it as an error
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
                    head = await self._read_head()
            except asyncio.LimitOverrunError:
                await self._reply(text(431, "the request head is too large"), close=True)
                return
            except asyncio.IncompleteReadError:
                return
            idle_s = IDLE_S
            parsed = _Head(head)
            if parsed.problem or parsed.is_chunked or parsed.body_bytes > BODY_BYTES:
                status = 413 if parsed.body_bytes > BODY_BYTES else 400
                reason = parsed.problem or "a request body is not accepted"
                await self._reply(text(status, reason), close=True)
                return
            async with asyncio.timeout(HEAD_S):
                await self._reader.readexactly(parsed.body_bytes)
            if not await self._answer(parsed.request(self._peer), parsed.keep_alive):
                return

    async def _read_head(self) -> bytes:
        """Raises LimitOverrunError. A verified client may send as much as an API server forwards (exec of a long
        command)."""
        longest, begun = FORWARDED_HEAD_BYTES if self._peer else HEAD_BYTES, b""
        while True:
            try:
                return begun + await self._reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError as error:
                if len(begun) + error.consumed > longest:
                    raise
                begun += await self._reader.readexactly(error.consumed)

    async def _answer(self, request: HttpRequest, keep_alive: bool) -> bool:
        """Whether the connection stays open."""
        response = await self._handler(request)
        match response:
            case Reply():
                await self._reply(response, close=not keep_alive)
                return keep_alive
            case HttpStream():
                return await self._stream(response) and keep_alive
            case Upgrade():
                await response.run(self._reader, self._writer)
                return False

    async def _reply(self, reply: Reply, *, close: bool) -> None:
        headers = [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body))), *reply.headers]
        if close:
            headers.append(("Connection", "close"))
        self._writer.write(_head(reply.status, headers) + reply.body[:PIECE_BYTES])
        await self._writer.drain()
        rest = memoryview(reply.body)
        for start in range(PIECE_BYTES, len(rest), PIECE_BYTES):
            self._writer.write(rest[start : start + PIECE_BYTES])
            await self._writer.drain()

    async def _stream(self, stream: HttpStream) -> bool:
        """Send until the end or until the client disconnects, which cancels the wait for the next piece."""
        headers = [("Content-Type", stream.content_type), ("Transfer-Encoding", "chunked")]
        self._writer.write(_head(200, headers))
        sending = asyncio.create_task(self._send(stream.pieces))
        disconnected = asyncio.create_task(connection_ended(self._writer))
        try:
            await asyncio.wait((sending, disconnected), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                return False
            sending.result()
            return True
        finally:
            await cancel_all((sending, disconnected))

    async def _send(self, pieces: AsyncGenerator[bytes, None]) -> None:
        async with aclosing(pieces):
            await self._writer.drain()
            async for piece in pieces:
                self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await self._writer.drain()
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()


class _Head:
    """The request line and headers: the callbacks of httptools and their result."""

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
            self.problem = f"not an HTTP request: {error}"
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
        components = tuple(unquote(name) for name in path.strip("/").split("/"))
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=1000)
        return HttpRequest(self.method, target, components, fields, tuple(self._headers), peer)


def _head(status: int, headers: list[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _listen(host: str, port: int) -> socket.socket:
    """With an explicit protocol: asyncio sets TCP_NODELAY only on sockets that name TCP."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.bind((host, port))
        # With SO_REUSEADDR two sockets may bind one address, but only one may listen.
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener
