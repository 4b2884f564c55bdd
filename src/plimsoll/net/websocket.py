"""Both sides of a WebSocket: wsproto has the protocol, asyncio streams carry it.

A message is passed on in the pieces in which it arrives, so a peer cannot make this process store a large one;
`receive` joins the pieces for callers that need whole messages. Messages that arrive with the handshake are kept.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from plimsoll.aio import connection_ended

CONNECT_S = 10.0
CHUNK = 1 << 16
MAX_MESSAGE_BYTES = 16 << 20  # of one that is joined: as much as uvicorn accepts of a client
MAX_REFUSAL_BYTES = 1 << 16
Headers = Iterable[tuple[bytes, bytes]]


class RejectedError(ConnectionError):
    """The server answered the upgrade request with another status than 101."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP status {status}: {body.decode(errors='replace').strip()}")
        self.status, self.body = status, body


class WebSocket:
    """Use `connect` or `accept`. Every failure of the connection is an OSError.

    `receive` ends at a message of more than `MAX_MESSAGE_BYTES`.
    """

    def __init__(self, side: ConnectionType, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connection = WSConnection(side)
        self._is_client = side is ConnectionType.CLIENT
        self._reader, self._writer = reader, writer
        self._pieces: deque[tuple[bytes, bool]] = deque()
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._closed = False
        self.subprotocol = ""

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        target: str,
        *,
        subprotocols: Sequence[str],
        headers: Headers = (),
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> WebSocket:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        request = Request(authority, target, subprotocols=list(subprotocols), extra_headers=list(headers))
        writer = None
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=server_name)
                socket = cls(ConnectionType.CLIENT, reader, writer)
                await socket._send(request)
                await socket._upgraded()
        except BaseException as error:
            if writer is not None:
                writer.close()
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"no answer within {CONNECT_S:g} s") from None
            raise
        return socket

    @classmethod
    async def accept(
        cls,
        headers: Headers,
        target: str,
        subprotocol: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> WebSocket:
        """Answer an upgrade request that an HTTP server has read."""
        socket = cls(ConnectionType.SERVER, reader, writer)
        socket._connection.initiate_upgrade_connection(list(headers), target)
        for _ in socket._connection.events():
            pass  # the request itself
        socket.subprotocol = subprotocol
        await socket._send(AcceptConnection(subprotocol=subprotocol or None))
        return socket

    async def pieces(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Parts of messages, each with whether it is the last part of its message, until the peer closes."""
        while (piece := await self._next_piece()) is not None:
            yield piece

    async def receive(self) -> bytes | None:
        """The next whole message; None when the peer has closed or the connection is lost."""
        with suppress(OSError):
            while (piece := await self._next_piece()) is not None:
                data, is_last = piece
                self._partial.append(data)
                self._partial_bytes += len(data)
                if self._partial_bytes > MAX_MESSAGE_BYTES:
                    self._partial.clear()
                    self.abort()
                    return None
                if is_last:
                    message, self._partial, self._partial_bytes = b"".join(self._partial), [], 0
                    return message
        self._closed = True
        return None

    async def send(self, data: bytes) -> None:
        try:
            await self._send(BytesMessage(data))
        except LocalProtocolError as error:
            raise ConnectionError("the WebSocket is closed") from error

    async def close(self, code: int = 1000) -> None:
        """Send a close frame. The client also closes the connection; the server's connection is its HTTP server's."""
        self._closed = True
        with suppress(LocalProtocolError, OSError):  # the peer may have closed first
            await self._send(CloseConnection(code))
        if self._is_client:
            self.abort()

    def abort(self) -> None:
        """Close the connection without waiting for the peer."""
        self._closed = True
        with suppress(LocalProtocolError, OSError, RuntimeError):
            self._writer.write(self._connection.send(CloseConnection(1000)))
        with suppress(OSError, RuntimeError):
            self._writer.close()

    async def gone(self) -> None:
        """Return when the connection is lost."""
        await connection_ended(self._writer)

    async def _upgraded(self) -> None:
        """Read the answer to the upgrade request."""
        status, body = 0, b""
        while True:
            await self._read()
            for event in self._connection.events():
                match event:
                    case AcceptConnection():
                        self.subprotocol = event.subprotocol or ""
                        return
                    case RejectConnection():
                        status = event.status_code
                        if not event.has_body:
                            raise RejectedError(status, body)
                    case RejectData():
                        body += event.data
                        if event.body_finished or len(body) > MAX_REFUSAL_BYTES:
                            raise RejectedError(status, body)

    async def _next_piece(self) -> tuple[bytes, bool] | None:
        while True:
            if self._pieces:
                return self._pieces.popleft()
            try:
                for event in self._connection.events():
                    await self._handle(event)
            except RemoteProtocolError as error:
                raise ConnectionError(f"invalid WebSocket data: {error}") from error
            if not self._pieces:
                if self._closed:
                    return None
                await self._read()

    async def _handle(self, event: Event) -> None:
        match event:
            case BytesMessage():
                self._pieces.append((bytes(event.data), event.message_finished))
            case TextMessage():
                self._pieces.append((event.data.encode(), event.message_finished))
            case Ping() | CloseConnection():
                self._closed |= isinstance(event, CloseConnection)
                with suppress(LocalProtocolError, OSError):  # the connection may be closed already
                    await self._send(event.response())

    async def _read(self) -> None:
        data = await self._reader.read(CHUNK)
        if not data:
            raise ConnectionError("the peer closed the connection")
        try:
            self._connection.receive_data(data)
        except RemoteProtocolError as error:
            raise ConnectionError(f"invalid WebSocket data: {error}") from error

    async def _send(self, event: Event) -> None:
        self._writer.write(self._connection.send(event))
        await self._writer.drain()
