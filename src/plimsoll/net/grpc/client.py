"""gRPC over a unix socket or TCP: calls with a deadline, and streams.

A call is one HTTP/2 stream: headers that name the method, one message with a prefix of five bytes (a flag, its length),
answers framed the same way, and trailers with the status. One connection carries all calls; it is made for the
first one and again after it broke. A broken connection fails every call on it (UNAVAILABLE); the caller decides whether
to retry. `GrpcUnavailableError` means that nothing was sent. When a server goes away, streams end (UNAVAILABLE), unary
calls are still answered, and new calls use a new connection. `unary_over` makes one call over any connected socket.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from plimsoll.net.grpc.status import GrpcError, GrpcUnavailableError

if TYPE_CHECKING:
    from plimsoll.net.grpc.client_connection import ClientConnection, StreamCall, UnaryCall

CONNECT_S = 5.0
Headers = tuple[tuple[str, str], ...]


class Keepalive(Protocol):
    """Something that keeps a connection open beside us; `end` is called when no call needs it any more."""

    def end(self) -> None: ...


KeptAlive = Callable[[int], Keepalive]  # called with the file descriptor of each new connection


class GrpcClient:
    """Of a unix socket, or with `address` of a TCP port; `tls` has to offer `h2` by ALPN."""

    def __init__(
        self,
        socket_path: str = "",
        *,
        address: tuple[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
        kept_alive: KeptAlive | None = None,
        connect_s: float = CONNECT_S,
    ) -> None:
        self.socket_path, self._address, self._tls, self._connect_s = socket_path, address, tls, connect_s
        self._kept_alive = kept_alive
        self.name = socket_path if address is None else authority_of(*address)
        self.connections = 0  # made so far
        self._connection: ClientConnection | None = None
        self._before: list[ClientConnection] = []  # take no new calls, and end with their last one
        self._connecting = asyncio.Lock()

    async def unary(self, method: str, request: bytes, deadline_s: float, headers: Headers = ()) -> bytes:
        """One request, one answer. `method` is the whole path."""
        connection, left_s = self._connection, deadline_s
        if connection is None or not connection.is_usable:
            loop = asyncio.get_running_loop()
            end = loop.time() + deadline_s
            try:
                async with asyncio.timeout(deadline_s):
                    connection = await self._connected()
            except TimeoutError:
                raise GrpcUnavailableError(f"{self.name}: not connected within {deadline_s:g} s") from None
            left_s = end - loop.time()
        return await _answer(connection.unary(method, request, deadline_s, headers, left_s))

    async def stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """The answers as they come, without a deadline, until the server ends the stream."""
        stream = await self.open(method)
        try:
            await stream.send(request, is_last=True)
            while (answer := await stream.received()) is not None:
                yield answer
        finally:
            stream.leave()

    async def open(self, method: str, headers: Headers = ()) -> GrpcStream:
        """A call on which both sides send messages at any time."""
        return GrpcStream((await self._connected()).open(method, headers))

    def close(self, why: str = "closed by us") -> None:
        self.leave(why)
        for connection in [*self._before]:
            connection.fail(why)
        self._before.clear()

    def leave(self, why: str) -> None:
        """End the calls in flight, but not those that a server which goes away still lets end."""
        if self._connection is not None:
            if self._connection.is_going_away:
                self._before.append(self._connection)
            else:
                self._connection.fail(why)
            self._connection = None

    async def _connected(self) -> ClientConnection:
        async with self._connecting:
            if self._connection is None or not self._connection.is_usable:
                loop = asyncio.get_running_loop()
                try:
                    async with asyncio.timeout(self._connect_s):
                        connection = await self._connect(loop)
                except TimeoutError:
                    raise GrpcUnavailableError(f"{self.name}: not connected within {self._connect_s:g} s") from None
                except OSError as error:  # also of TLS
                    reason = error.strerror or str(error) or "the connection was reset"
                    raise GrpcUnavailableError(f"{self.name}: {reason}") from error
                self.connections += 1
                if self._connection is not None:
                    self._connection.retire()
                    self._before.append(self._connection)
                self._before = [each for each in self._before if not each.lost]
                self._connection = connection
            return self._connection

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> ClientConnection:
        from plimsoll.net.grpc.client_connection import ClientConnection

        if self._address is None:
            factory = partial(ClientConnection, kept_alive=self._kept_alive)
            return (await loop.create_unix_connection(factory, self.socket_path))[1]
        host, port = self._address
        factory = partial(ClientConnection, authority=self.name, scheme="http" if self._tls is None else "https")
        return (await loop.create_connection(factory, host, port, ssl=self._tls))[1]


def authority_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class GrpcStream:
    """`received` raises GrpcError when the call has failed; it returns None when the server has ended it."""

    def __init__(self, call: StreamCall) -> None:
        self._call = call

    async def send(self, message: bytes, *, is_last: bool = False) -> None:
        await self._call.send(message, is_last=is_last)

    async def received(self) -> bytes | None:
        answer = await self._call.received.get()
        if isinstance(answer, GrpcError):
            raise answer
        return answer

    def received_at_once(self) -> list[bytes]:
        """The messages that are there already."""
        queue, messages = self._call.received, []
        while not queue.empty():
            answer = queue.get_nowait()
            if not isinstance(answer, bytes):
                queue.put_nowait(answer)
                break
            messages.append(answer)
        return messages

    def leave(self) -> None:
        self._call.leave()


async def unary_over(
    connected: socket.socket, authority: str, method: str, request: bytes, deadline_s: float, headers: Headers = ()
) -> bytes:
    """One call on a connection of its own, which is closed afterwards. The caller limits the time. The server may be
    anyone's."""
    from plimsoll.net.grpc.client_connection import ForeignConnection

    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(partial(ForeignConnection, authority), sock=connected)
    try:
        return await _answer(connection.unary(method, request, deadline_s, headers))
    finally:
        connection.fail("closed by us")


async def _answer(call: UnaryCall) -> bytes:
    try:
        answer = await call.answer
    finally:
        call.leave()
    if isinstance(answer, GrpcError):
        raise answer
    return answer
