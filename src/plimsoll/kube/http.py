"""HTTP/1.1 to one API server: a few idle connections for reuse, TLS, streamed responses.

A request that fails on a reused connection before any response arrived is sent again on another one: servers close idle
connections at any time.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from plimsoll import __version__
from plimsoll.kube.exec_plugin import Credentials, PluginCredentials
from plimsoll.kube.kubeconfig import Access
from plimsoll.kube.request import ApiResponse, Request, UnreachableError, UnusableAnswerError
from plimsoll.net.http import HttpClientConnection

if TYPE_CHECKING:
    from plimsoll.net.websocket import WebSocket

CONNECT_S, ANSWER_S = 10.0, 30.0
MAX_IDLE = 8
MAX_LINE_BYTES, MAX_BODY_BYTES = 32 << 20, 256 << 20  # objects have at most 3 MiB, pages 500 of them


class HttpTransport:
    """`send` for a whole response, `lines` for a stream. Close it when done."""

    def __init__(
        self,
        access: Access,
        *,
        agent: str = f"plimsoll/{__version__}",
        tls: ssl.SSLContext | None = None,
        at_once: int | None = None,
        idle: int = MAX_IDLE,
    ) -> None:
        """`tls`: used in place of the certificates in `access`. `at_once`: how many calls of `send` are on their way at
        one time, each on a connection of its own; others wait. Streams do not count.
        `idle`: how many connections are kept for later requests."""
        self._access = access
        target = urlsplit(access.server)
        self._secure = target.scheme == "https"
        self._host = target.hostname or ""
        self._port = target.port or (443 if self._secure else 80)
        self._prefix, self._authority = target.path, target.netloc
        self._agent = agent
        self._tls = tls
        self._plugin = PluginCredentials(access.plugin) if access.plugin is not None else None
        self._tls_of: Credentials | None = None  # the plugin's credentials that the TLS context has
        self._idle: list[HttpClientConnection] = []
        self._max_idle = idle
        self._places = asyncio.Semaphore(at_once) if at_once is not None else nullcontext()

    async def send(self, request: Request) -> ApiResponse:
        async with self._places, asyncio.timeout(ANSWER_S), self._exchange(request) as (connection, status):
            if status == 401 and self._plugin is not None:
                self._plugin.forget()  # the next request gets new credentials
            return ApiResponse(status, await self._whole(connection))

    async def lines(self, request: Request) -> AsyncGenerator[ApiResponse | bytes, None]:
        """First an ApiResponse with the status (and the body of an error), then each line as it arrives."""
        rest = b""
        async with aclosing(self.stream(request)) as stream:
            async for part in stream:
                if isinstance(part, ApiResponse):
                    yield part
                    continue
                *whole, rest = (rest + part).split(b"\n")
                if len(rest) > MAX_LINE_BYTES:
                    raise UnusableAnswerError(f"{self._access.server}: a line has more than {MAX_LINE_BYTES} bytes")
                for line in filter(None, whole):
                    yield line
        if rest:
            yield rest

    async def stream(self, request: Request) -> AsyncGenerator[ApiResponse | bytes, None]:
        """The same in pieces, as they arrive."""
        async with self._exchange(request) as (connection, status):
            content_type = connection.headers.get(b"content-type", b"")
            if status >= 400:
                yield ApiResponse(status, await self._whole(connection), content_type)
                return
            yield ApiResponse(status, b"", content_type, connection.headers.get(b"location", b""))
            async for part in connection.parts():
                yield part

    @property
    def server(self) -> str:
        """The address, without a slash at its end."""
        return self._access.server.rstrip("/")

    async def _whole(self, connection: HttpClientConnection) -> bytes:
        parts, size = [], 0
        async for part in connection.parts():
            size += len(part)
            if size > MAX_BODY_BYTES:
                raise UnusableAnswerError(f"{self._access.server}: a response has more than {MAX_BODY_BYTES} bytes")
            parts.append(part)
        return b"".join(parts)

    async def websocket(self, path: str, subprotocols: Sequence[str]) -> WebSocket:
        """A WebSocket to the same server, as the same user."""
        from plimsoll.kube.websocket import connect

        token = await self._bearer()
        headers = [(b"Authorization", f"Bearer {token}".encode("latin-1"))] if token else []
        return await connect(
            self._host,
            self._port,
            self._prefix + path,
            tls=await self._context(),
            server_name=self._server_name,
            subprotocols=subprotocols,
            headers=[(b"User-Agent", self._agent.encode("latin-1")), *headers],
        )

    def renew(self, certificate: bytes, key: bytes) -> None:
        """Use this certificate for new connections."""
        self._access = msgspec.structs.replace(self._access, certificate=certificate, key=key)
        self._tls = None
        self._close_idle()

    async def close(self) -> None:
        self._close_idle()

    def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @asynccontextmanager
    async def _exchange(self, request: Request) -> AsyncIterator[tuple[HttpClientConnection, int]]:
        connection, status = await self._begin(request)
        try:
            yield connection, status
        except OSError as error:
            connection.close()
            raise UnreachableError(f"{self._access.server}: {error}") from error
        except BaseException:
            connection.close()
            raise
        if connection.reusable and len(self._idle) < self._max_idle:
            self._idle.append(connection)
        else:
            connection.close()

    async def _begin(self, request: Request) -> tuple[HttpClientConnection, int]:
        while True:
            idle = self._idle.pop() if self._idle else None
            connection = idle or await self._connect()
            try:
                return connection, await connection.begin(await self._bytes(request))
            except (OSError, EOFError) as error:
                connection.close()
                if idle is None:
                    raise UnreachableError(
                        f"{self._access.server}: {str(error) or 'the connection closed without a response'}"
                    ) from error
            except BaseException:
                connection.close()
                raise

    async def _connect(self) -> HttpClientConnection:
        tls = await self._context()
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=tls, server_hostname=self._server_name, limit=1 << 20
                )
        except TimeoutError as error:
            raise UnreachableError(f"{self._access.server}: no connection within {CONNECT_S:g} s") from error
        except OSError as error:
            raise UnreachableError(f"{self._access.server}: {error.strerror or error}") from error
        return HttpClientConnection(reader, writer)

    async def _context(self) -> ssl.SSLContext | None:
        credentials = None
        if self._secure and self._plugin is not None and self._access.certificate is None:
            credentials = await self._plugin.current()
        if self._secure and (self._tls is None or credentials != self._tls_of):
            self._tls, self._tls_of = _tls(self._access, credentials), credentials
            self._close_idle()
        return self._tls

    @property
    def _server_name(self) -> str | None:
        return (self._access.server_name or self._host) if self._secure else None

    async def _bytes(self, request: Request) -> bytes:
        head = [
            f"{request.method} {self._prefix}{request.path} HTTP/1.1",
            f"Host: {self._authority}",
            f"User-Agent: {self._agent}",
            f"Accept: {request.accept}",
        ]
        if token := await self._bearer():
            head.append(f"Authorization: Bearer {token}")
        if request.content_type:
            head.append(f"Content-Type: {request.content_type}")
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            head.append(f"Content-Length: {len(request.body)}")
        return "\r\n".join([*head, "", ""]).encode("latin-1") + request.body

    async def _bearer(self) -> str:
        """Empty over plain HTTP, as in client-go. A token file is read for each request, because it is rotated."""
        access = self._access
        if not self._secure:
            return ""
        if access.token_file:
            return (await asyncio.to_thread(Path(access.token_file).read_text)).strip()
        if access.token or self._plugin is None:
            return access.token
        return (await self._plugin.current()).token


def _tls(access: Access, credentials: Credentials | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=access.ca.decode() if access.ca else None)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = access.certificate, access.key
    if credentials is not None and certificate is None:
        certificate, key = credentials.certificate, credentials.key
    if certificate is not None and key is not None:
        # OpenSSL reads keys from files only; this file is 0600 and removed before the first byte is sent.
        with tempfile.NamedTemporaryFile(prefix="plimsoll-") as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context
