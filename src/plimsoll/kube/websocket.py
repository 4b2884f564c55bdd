"""A WebSocket to a server, for exec: wsproto speaks the protocol, asyncio streams carry it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from plimsoll.kube.request import ApiResponse, UnreachableError, api_error

CONNECT_S = 10.0
CHUNK = 1 << 16


class WebSocket:
    """Use `connect`. Messages are whole, whatever frames they came in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._ready: list[bytes] = []
        self._partial: list[bytes] = []
        self._ended = False
        self.subprotocol = ""

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        target: str,
        *,
        tls: ssl.SSLContext | None,
        server_name: str | None,
        subprotocols: Sequence[str],
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> WebSocket:
        """ApiError where the server answers something else than an upgrade; Unreachable where it does not answer."""
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=server_name)
                found = cls(reader, writer)
                await found._handshake(host, target, subprotocols, headers)
        except TimeoutError:
            raise UnreachableError(f"{host}:{port}: no answer within {CONNECT_S:g} s") from None
        except (OSError, EOFError) as error:
            raise UnreachableError(f"{host}:{port}: {error}") from error
        return found

    async def _handshake(
        self, host: str, target: str, subprotocols: Sequence[str], headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        request = Request(host=host, target=target, subprotocols=list(subprotocols), extra_headers=list(headers))
        await self._send(self._connection.send(request))
        refused: RejectConnection | None = None
        body = b""
        while True:
            await self._feed()
            for event in self._connection.events():
                if isinstance(event, AcceptConnection):
                    self.subprotocol = event.subprotocol or ""
                    return
                if isinstance(event, RejectConnection):
                    refused = event
                    if event.has_body:
                        continue
                elif isinstance(event, RejectData):
                    body += event.data
                    if not event.body_finished:
                        continue
                else:
                    continue
                self.abort()
                raise api_error(ApiResponse(refused.status_code if refused else 500, body))

    async def receive(self) -> bytes | None:
        """The next message; None when the other side has closed."""
        await self._taken()  # messages may have come together with the answer to the handshake
        while not self._ready and not self._ended:
            try:
                await self._feed()
            except (OSError, EOFError):
                self._ended = True
                break
            await self._taken()
        return self._ready.pop(0) if self._ready else None

    async def send(self, data: bytes) -> None:
        if not self._ended:
            await self._send(self._connection.send(BytesMessage(data)))

    async def close(self, code: int = 1000) -> None:
        if not self._ended:
            with suppress(LocalProtocolError, OSError):  # the other side may have closed first
                await self._send(self._connection.send(CloseConnection(code)))
        self.abort()

    def abort(self) -> None:
        self._ended = True
        with suppress(OSError, RuntimeError):
            self._writer.close()

    async def _taken(self) -> None:
        for event in self._connection.events():
            match event:
                case BytesMessage() | TextMessage():
                    data = event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
                    self._partial.append(data)
                    if event.message_finished:
                        self._ready.append(b"".join(self._partial))
                        self._partial = []
                case Ping():
                    await self._send(self._connection.send(event.response()))
                case CloseConnection():
                    with suppress(LocalProtocolError, OSError):
                        await self._send(self._connection.send(event.response()))
                    self._ended = True

    async def _feed(self) -> None:
        data = await self._reader.read(CHUNK)
        if not data:
            raise EOFError("closed")
        try:
            self._connection.receive_data(data)
        except RemoteProtocolError as error:
            raise OSError(f"no WebSocket: {error}") from error

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
