"""The server's side of a WebSocket, for exec: wsproto speaks the protocol, asyncio streams carry it.

Messages are handed on in the pieces they come in, so that a client cannot make us keep a large one. wsproto is imported
when the first WebSocket comes: most agents never see one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from plimsoll.node.server.http import HttpRequest

if TYPE_CHECKING:
    from wsproto import WSConnection

CHUNK = 1 << 16


def offered_subprotocols(request: HttpRequest) -> list[str]:
    values = [value for name, value in request.headers if name == b"sec-websocket-protocol"]
    return [name.strip() for value in values for name in value.decode("latin-1").split(",") if name.strip()]


def handshake_problem(request: HttpRequest) -> str:
    """Why this is not a WebSocket request; empty where it is one."""
    upgrade = request.header(b"upgrade").lower()
    if not request.wants_upgrade or not upgrade:
        return "Upgrade request required"
    if b"spdy" in upgrade:
        return "SPDY is not supported: exec uses WebSockets (kubectl 1.30 or newer)"
    if request.method != "GET" or upgrade != b"websocket" or request.header(b"sec-websocket-version") != b"13":
        return "exec needs a GET request for a WebSocket of version 13"
    if not request.header(b"sec-websocket-key") or not request.header(b"host"):
        return "the WebSocket request lacks Sec-WebSocket-Key or Host"
    return ""


class ServerWebSocket:
    """Use `accepted`. Whatever the other side does wrong ends `pieces`."""

    def __init__(self, connection: WSConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connection, self._reader, self._writer = connection, reader, writer
        self._closed = False

    @classmethod
    async def accepted(
        cls, request: HttpRequest, subprotocol: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> ServerWebSocket:
        from wsproto import ConnectionType, WSConnection
        from wsproto.events import AcceptConnection

        connection = WSConnection(ConnectionType.SERVER)
        connection.initiate_upgrade_connection(list(request.headers), request.target)
        for _ in connection.events():
            pass  # the request itself, which is known
        made = cls(connection, reader, writer)
        await made._write(connection.send(AcceptConnection(subprotocol=subprotocol)))
        return made

    async def pieces(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Parts of messages, each with whether it is its message's last; ends when the other side has left."""
        from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
        from wsproto.utilities import LocalProtocolError, RemoteProtocolError

        while not self._closed:
            try:
                data = await self._reader.read(CHUNK)
                self._connection.receive_data(data or None)
            except (OSError, RemoteProtocolError):
                return
            try:
                for event in self._connection.events():
                    match event:
                        case BytesMessage():
                            yield bytes(event.data), event.message_finished
                        case TextMessage():
                            yield event.data.encode(), event.message_finished
                        case Ping():
                            await self._write(self._connection.send(event.response()))
                        case CloseConnection():
                            with suppress(LocalProtocolError, OSError):
                                await self._write(self._connection.send(event.response()))
                            self._closed = True
            except RemoteProtocolError:
                return
            if not data:
                return

    async def send(self, data: bytes) -> None:
        """OSError where the other side has left."""
        from wsproto.events import BytesMessage
        from wsproto.utilities import LocalProtocolError

        try:
            await self._write(self._connection.send(BytesMessage(data)))
        except LocalProtocolError as error:
            raise ConnectionError("the other side has closed the WebSocket") from error

    async def close(self, code: int = 1000) -> None:
        from wsproto.events import CloseConnection
        from wsproto.utilities import LocalProtocolError

        self._closed = True
        with suppress(LocalProtocolError, OSError):
            await self._write(self._connection.send(CloseConnection(code)))

    async def gone(self) -> None:
        """Returns when the connection is lost."""
        with suppress(OSError):
            # Shielded: cancelling whoever waits would cancel the connection's own future.
            await asyncio.shield(self._writer.wait_closed())

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
